"""The installed package: metadata, linked libraries, and the wheel in a fresh environment."""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

import torch_ocl
from tests import build_folder

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "wheels"))

import contents  # noqa: E402
import write_index  # noqa: E402

PACKAGE = Path(torch_ocl.__file__).parent


def run_python(python: Path | str, code: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(python), "-c", code],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_metadata() -> None:
    """It names the minor version of torch that the library works with."""
    metadata = importlib.metadata.metadata("torch-ocl")
    series = ".".join(torch.__version__.split(".")[:2])
    assert metadata["Version"] == f"{torch_ocl.__version__}+torch{series}"
    assert set(metadata.get_all("Provides-Extra")) >= {"cpu", "test", "demo"}
    requirements = importlib.metadata.requires("torch-ocl")
    assert f"torch=={series}.*" in requirements
    assert any(text.startswith("nvidia-cuda-opencl") for text in requirements)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not run from a clone")
def test_source_distribution(tmp_path: Path) -> None:
    """It has every file that git has, whatever torch is there. Its name has the plain version."""
    subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "-e", str(tmp_path), "sdist"]
        + ["-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (archive,) = tmp_path.glob("torch_ocl-*.tar.gz")
    assert archive.name == f"torch_ocl-{torch_ocl.__version__}.tar.gz"
    with tarfile.open(archive) as tar:
        top = f"torch_ocl-{torch_ocl.__version__}/"
        names = {member.name.removeprefix(top) for member in tar if member.isfile()}
        information = tar.extractfile(f"{top}PKG-INFO").read().decode()
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    tracked = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    assert tracked - names == set()
    made = {"PKG-INFO", "setup.cfg"}
    assert {n for n in names - tracked - made if "egg-info" not in n} <= untracked()
    assert "Requires-Dist: torch<2.16,>=2.11" in information


def untracked() -> set[str]:
    """Files that are about to be added."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return set(listed.stdout.split("\0"))


def test_entry_point() -> None:
    (point,) = [
        point
        for point in importlib.metadata.entry_points(group="torch.backends")
        if point.name == "torch_ocl"
    ]
    assert point.value == "torch_ocl_autoload:autoload"


def test_import_torch_alone_offers_the_device(tmp_path: Path) -> None:
    output = run_python(
        sys.executable, "import torch; print(torch.ones(3, device='ocl').sum().item())", tmp_path
    )
    assert output.strip() == "3.0"


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs binutils")
@pytest.mark.parametrize("pattern", ("libtorch_ocl.so", "_C*.so", "_distributed*.so"))
def test_opencl_is_not_linked(pattern: str) -> None:
    (library,) = PACKAGE.glob(pattern)
    dynamic = subprocess.run(
        ["readelf", "-d", str(library)], capture_output=True, text=True, check=True
    ).stdout
    assert "libOpenCL" not in dynamic
    assert "$ORIGIN" in dynamic


@pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="not run from the source tree")
def test_build_isolation_is_named(tmp_path: Path) -> None:
    """pip builds in an environment of its own unless told otherwise: it has setuptools alone."""
    site = tmp_path / "pip-build-env-1"
    site.mkdir()
    purelib = Path(sysconfig.get_path("purelib"))
    for name in ("setuptools", "_distutils_hack", "pkg_resources"):
        if (purelib / name).exists():
            (site / name).symlink_to(purelib / name)
    done = subprocess.run(
        [sys.executable, "-S", "setup.py", "build_ext", "--build-temp", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "--no-build-isolation" in done.stderr and "requirements/build.txt" in done.stderr


@pytest.mark.skipif(not build_folder.CACHE.exists(), reason="would build everything from scratch")
def test_wheel_works_in_a_fresh_environment(tmp_path: Path) -> None:
    """The wheel is made of the build that is there: README's commands take half a minute."""
    with build_folder.kept_editable():
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps"]
            + ["-w", str(tmp_path), str(ROOT)],
            check=True,
            timeout=1200,
        )
    (wheel,) = tmp_path.glob("torch_ocl-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert f"+torch{'.'.join(torch.__version__.split('.')[:2])}-" in wheel.name
    companions = (
        "libtorch_ocl.so",
        "_built_for.py",
        "device_count",
        "build_worker",
        "ops_manifest.json",
    )
    companions += ("include/torch_ocl/extension.h", "share/cmake/TorchOCL/TorchOCLConfig.cmake")
    assert {f"torch_ocl/{name}" for name in companions} <= set(names)
    assert contents.problems_of(wheel) == []

    # Its own site-packages come first; torch is borrowed from this environment, whose .pth files
    # (the editable install of this package among them) are not read there.
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # The drivers that this environment sees by being where they are.
    code = (
        "import torch, torch_ocl; print(torch_ocl.__file__); "
        "assert torch.ocl.is_available() and not torch.ocl.is_initialized(); "
        "x = torch.arange(6., device='ocl').reshape(2, 3); print((x @ x.t()).sum().item())"
    )
    drivers = list(Path(sys.prefix, "lib").glob("libintelocl.so"))
    environment = {"TORCH_OCL_DEVICES": os.environ.get("TORCH_OCL_DEVICES") or "0"}
    environment |= {"OCL_ICD_FILENAMES": str(drivers[0])} if drivers else {}
    output = run_python(python, code, tmp_path, **environment).split()
    assert output[0].startswith(str(site))
    assert float(output[1]) == 83.0

    # README's commands that need no network, and its first program.
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1]
    commands = re.search(r"\n```\n(pip.*?)```", readme, re.DOTALL)[1]
    lines = [shlex.split(line, comments=True) for line in commands.splitlines()]
    assert [line[:2] for line in lines] == [["pip", "install"]] * 3 + [["python", "-m"]]
    assert lines[1] == ["pip", "install", "-r", "requirements/build.txt"]
    assert lines[2] == ["pip", "install", "--no-build-isolation", ".[cpu]"]
    shown = subprocess.run(
        [str(python), *lines[3][1:]],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert float(run_python(python, program, tmp_path, **environment)) > 0


def test_what_a_wheel_must_not_hold(tmp_path: Path) -> None:
    """A library with symbols for debuggers, a source, a test; too much of it."""
    wheel = tmp_path / "torch_ocl-1-py3-none-any.whl"
    source = tmp_path / "library.c"
    source.write_text("int f(void) { return 1; }\n")
    library = tmp_path / "library.so"
    subprocess.run(["gcc", "-g", "-shared", "-o", library, source], check=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, "torch_ocl/library.so")
        archive.write(source, "torch_ocl/library.c")
        archive.writestr("torch_ocl/include/torch_ocl/extension.h", "")
        archive.writestr("tests/test_a.py", "")
        archive.writestr("torch_ocl/large", os.urandom(contents.LARGEST))
    assert contents.problems_of(wheel) == [
        "it has 12.0 MB, and may have 12",
        "torch_ocl/library.so has .debug_",
        "torch_ocl/library.so has .symtab",
        "torch_ocl/library.c is a source",
        "tests/test_a.py is not of the package",
    ]


def test_pip_finds_wheels_by_the_pages(tmp_path: Path) -> None:
    """It takes the one for its own Python and the version asked for, and checks what came."""
    (tmp_path / "dist").mkdir()
    for series in ("2.14", "2.15"):
        name = f"torch_ocl-0.1.0+torch{series}"
        with zipfile.ZipFile(tmp_path / "dist" / f"{name}-py3-none-any.whl", "w") as archive:
            facts = f"Metadata-Version: 2.1\nName: torch-ocl\nVersion: 0.1.0+torch{series}\n"
            archive.writestr(f"{name}.dist-info/METADATA", facts)
            archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr(f"{name}.dist-info/RECORD", "")
    write_index.write(tmp_path / "dist", tmp_path / "site")
    command = [sys.executable, "-m", "pip", "download", "-q", "--isolated", "--no-deps"]
    command += ["--index-url", (tmp_path / "site").as_uri(), "-d", str(tmp_path / "taken")]
    subprocess.run([*command, "torch-ocl==0.1.0+torch2.14"], check=True)
    (taken,) = (tmp_path / "taken").iterdir()
    assert "torch2.14" in taken.name
    page = tmp_path / "site" / "torch-ocl" / "index.html"
    page.write_text(re.sub(r"sha256=\w", "sha256=x", page.read_text()))
    wrong = subprocess.run([*command, "torch-ocl==0.1.0+torch2.15"], capture_output=True, text=True)
    assert wrong.returncode != 0
