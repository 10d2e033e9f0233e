"""Builds with a sanitizer, beside the working tree's own, and how a process runs with one."""

import pathlib
import shutil
import subprocess
import sys
import sysconfig

from tests.opencl import test_floor1

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "sanitize"
SUPPRESSIONS = pathlib.Path(__file__).with_name("suppressions")
# Types of torch's libraries have no names that ours could compare (vptr).
KINDS = {
    "address": "-fsanitize=address,undefined -fno-sanitize=vptr",
    "thread": "-fsanitize=thread",
}
MAIN = """\
int Py_BytesMain(int argc, char** argv);
int main(int argc, char** argv) { return Py_BytesMain(argc, argv); }
"""


def _tool(name):
    local = pathlib.Path(sys.executable).parent / name
    return str(local) if local.exists() else name


def build(kind, jobs, target):
    """Compiles the package, or one target; returns the folder of the build."""
    folder = FOLDER / kind / "build"
    flags = f"{KINDS[kind]} -fno-omit-frame-pointer -O1 -g1"
    subprocess.run(
        [
            *(_tool("cmake"), "-S", str(ROOT), "-B", str(folder), "-G", "Ninja"),
            *(f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}", f"-DPython_EXECUTABLE={sys.executable}"),
            *("-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_CXX_FLAGS={flags}"),
        ],
        check=True,
    )
    subprocess.run(
        [_tool("cmake"), "--build", str(folder), "-j", str(jobs), "--target", target], check=True
    )
    return folder


def tree(kind):
    """A copy of the checkout with that build in it: tests import what lies beside them."""
    folder = FOLDER / kind / "tree"
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.check_output(["git", "-C", str(ROOT), "ls-files", "-z"], text=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    build_folder = FOLDER / kind / "build"
    command = [_tool("cmake"), "--install", str(build_folder), "--prefix", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def python(kind):
    """A Python that begins with the sanitizer's library: it can't come later, and ThreadSanitizer's
    can't be preloaded. It has the packages of this one.

    Raises RuntimeError where this Python has no shared library.
    """
    library = sysconfig.get_config_var("LDLIBRARY") or ""
    if not library.endswith(".so"):
        raise RuntimeError("a Python with a shared library is needed (libpython3-dev)")
    folder, place = FOLDER / kind / "venv", sysconfig.get_config_var("LIBDIR")
    program = folder / "bin" / "python"
    program.parent.mkdir(parents=True, exist_ok=True)
    base = pathlib.Path(sys.prefix)
    if (base / "pyvenv.cfg").exists():
        shutil.copyfile(base / "pyvenv.cfg", folder / "pyvenv.cfg")
    if not (folder / "lib").exists():
        (folder / "lib").symlink_to(base / "lib")
    source = folder / "main.c"
    source.write_text(MAIN)
    linked = [f"-L{place}", f"-Wl,-rpath,{place}", "-l" + library[len("lib") : -len(".so")]]
    subprocess.run(
        ["gcc", *KINDS[kind].split(), str(source), "-o", str(program), *linked], check=True
    )
    return program


def unshuffled(command):
    """The command with addresses where ThreadSanitizer expects them, where that is allowed."""
    fixed = ["setarch", "-R"]
    allowed = shutil.which("setarch") and subprocess.run([*fixed, "true"]).returncode == 0
    return [*(fixed if allowed else []), *map(str, command)]


def environment(kind, logs):
    """Variables of a process with a sanitizer, which writes reports into a folder."""
    log = f"log_path={logs}/{kind}"
    stacks = f"{log}:print_stacktrace=1:suppressions={SUPPRESSIONS}/undefined.txt"
    # Python frees little at its end, and drivers less. A sanitizer's own signals hide Python's.
    address = f"{log}:detect_leaks=0:handle_segv=0:use_sigaltstack=0:allocator_may_return_null=1"
    address += f":detect_odr_violation=0:suppressions={SUPPRESSIONS}/address.txt"
    thread = f"{log}:exitcode=0:history_size=7:report_signal_unsafe=0:handle_segv=0"
    thread += f":suppressions={SUPPRESSIONS}/thread.txt"
    return {
        **test_floor1.environment(),
        "ASAN_OPTIONS": address,
        "UBSAN_OPTIONS": stacks,
        "TSAN_OPTIONS": thread,
        # The time of a step says nothing here.
        "TORCH_OCL_NOTICES": "0",
    }
