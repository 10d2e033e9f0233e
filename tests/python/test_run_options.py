"""Options of Python's own that `python -m torch_ocl run` takes: Python alone is the reference."""

import subprocess
import sys

import pytest

OPTIONS = """
import sys, warnings
flags = sys.flags
print(flags.optimize, flags.no_user_site, flags.dev_mode, *sys.argv[1:])
print(*sys.warnoptions, *sys._xoptions)
warnings.warn("one of the program's")
assert False, "which -O leaves out"
"""


@pytest.mark.parametrize(
    "options, how, first, second",
    [
        ("-O -W ignore", "program.py", "1 0 False", "ignore"),
        ("-OOu -Wignore::UserWarning", "-m program", "2 0 False", "ignore::UserWarning"),
        ("-s -X dev -O -W ignore", "-c", "1 1 True", "default ignore dev"),
    ],
)
def test_options_of_python(tmp_path, options, how, first, second):
    (tmp_path / "program.py").write_text(OPTIONS)
    program = ["-c", OPTIONS] if how == "-c" else how.split()
    done = subprocess.run(
        [sys.executable, "-m", "torch_ocl", "run", *options.split(), *program, "-W", "x"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{first} -W x", second]
    assert "one of the program's" not in done.stderr


@pytest.mark.parametrize("option", ["-I", "-P"])
def test_without_a_folder_of_the_program(tmp_path, option):
    """As with Python alone, the first folder is none of the program's."""
    if option == "-P" and sys.version_info < (3, 11):
        pytest.skip("Python has it since 3.11")
    (tmp_path / "program.py").write_text("import sys; print(sys.path[0])")

    def first_folder(*command):
        command = [sys.executable, *command, option, "program.py"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout

    assert first_folder("-m", "torch_ocl", "run") == first_folder() != f"{tmp_path}\n"
