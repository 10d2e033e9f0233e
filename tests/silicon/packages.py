"""Packages of a newer Debian, unpacked into a folder of their own: compilers, and drivers.

They need that suite's C library, so its loader starts them (command()). apt resolves what they
depend on with lists of its own: the system's packages are neither asked nor touched.
"""

import pathlib
import shutil
import subprocess

MIRROR = "http://deb.debian.org/debian"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
#: clang with AMD's device libraries, Intel's compilers of both generations, SPIR-V's tools.
COMPILERS = (
    "clang-21 rocm-device-libs-21 llvm-spirv-21 spirv-tools binutils "
    "intel-ocloc libigdfcl2 libigc2 intel-ocloc-legacy libigdfcl1 libigc1"
).split()
CONFIGURATION = """
Dir::State "{apt}";
Dir::State::status "{apt}/status";
Dir::Cache "{apt}/cache";
Dir::Etc::sourcelist "{apt}/sources.list";
Dir::Etc::sourceparts "/dev/null";
APT::Architecture "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Debug::NoLocking "true";
"""


def fetch(folder, suite="sid", names=COMPILERS):
    """Downloads packages with all they need, and unpacks them; the compilers take 1.2 GB."""
    missing = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
    if missing or not pathlib.Path(KEYS).exists():
        raise RuntimeError("Debian's packages are fetched by apt-get, dpkg and Debian's keys")
    apt = folder / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"deb [signed-by={KEYS}] {MIRROR} {suite} main\n")
    configuration = apt / "apt.conf"
    configuration.write_text(CONFIGURATION.format(apt=apt))
    apt_get = ["apt-get", "-qq", "-c", str(configuration)]
    subprocess.run([*apt_get, "update"], check=True)
    subprocess.run([*apt_get, "-y", "--download-only", "install", *names], check=True)
    for package in sorted((apt / "cache/archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, folder / "root"], check=True)
    shutil.rmtree(apt / "cache")


def command(folder, pattern):
    """How a program of the packages starts: its path may have a pattern. None without it."""
    root = folder / "root"
    found = sorted(root.glob(f"usr/bin/{pattern}"))
    if not found:
        return None
    libraries = root / "usr/lib/x86_64-linux-gnu"
    program = str(found[-1])
    loader = [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)]
    return [*loader, "--argv0", program, program]
