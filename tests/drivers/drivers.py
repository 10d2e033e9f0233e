"""The drivers that `make drivers` tries, and a Python that loads each."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

from tests.silicon import packages

LIBRARIES = "usr/lib/x86_64-linux-gnu"
MESA = ("mesa-opencl-icd", "mesa-vulkan-drivers")
REDIRECT = pathlib.Path(__file__).with_name("redirect.c")


@dataclasses.dataclass(frozen=True)
class Driver:
    """An OpenCL driver on this machine's processor."""

    name: str
    device: str  # what TORCH_OCL_DEVICES takes
    suite: str = ""  # Debian's, whose packages are unpacked into a folder; "": what is installed
    packages: tuple = ()
    library: str = ""  # below the folder
    environment: dict = dataclasses.field(default_factory=dict)
    tune_as: str = ""  # "gpu": the kernels for GPUs
    files: str = ""  # another suite, whose files below /usr the driver finds first
    vulkan: tuple = ()  # where a system's own Vulkan driver may have its manifest

    @property
    def manifest(self):
        """The manifest of the system's Vulkan driver, or None."""
        return next((path for path in self.vulkan if os.path.exists(path)), None)

    @property
    def is_possible(self):
        """Whether this machine has what can't be fetched."""
        return not self.vulkan or self.manifest is not None


def _mesa(name, suite, device="llvmpipe", **more):
    rusticl = {"RUSTICL_ENABLE": "llvmpipe", "MESA_SHADER_CACHE_DISABLE": "true"}
    if device == "zink":
        rusticl["GALLIUM_DRIVER"] = "zink"
        # Without it zink asks Vulkan for a GPU.
        if "vulkan" not in more:
            rusticl["LIBGL_ALWAYS_SOFTWARE"] = "true"
    environment = rusticl | more.pop("environment", {})
    library = f"{LIBRARIES}/libRusticlOpenCL.so.1"
    # libclc 22 has no fma() for Mesa: programs with one don't build.
    files = "trixie" if suite == "sid" else ""
    return Driver(name, "rusticl", suite, MESA, library, environment, files=files, **more)


def _pocl(name, suite):
    library = f"{LIBRARIES}/libpocl.so.2"
    return Driver(name, "portable", suite, ("pocl-opencl-icd",), library)


_NVIDIA_VULKAN = tuple(
    f"{folder}/vulkan/icd.d/nvidia_icd.json"
    for folder in ("/usr/share", "/etc", "/usr/local/nvidia/share")
)
_WIDE = {"RUSTICL_FEATURES": "fp64,fp16"}
DRIVERS = (
    Driver("intel", "intel"),
    Driver("intel-as-gpu", "intel", tune_as="gpu"),
    Driver("pocl-3", "portable"),
    _pocl("pocl-6", "trixie"),
    _pocl("pocl-7", "sid"),
    _mesa("rusticl-25", "trixie"),
    _mesa("rusticl-25-fp64", "trixie", environment=_WIDE),
    _mesa("rusticl-25-as-gpu", "trixie", tune_as="gpu"),
    _mesa("rusticl-26", "sid"),
    _mesa("rusticl-26-fp64", "sid", environment=_WIDE),
    _mesa("rusticl-26-as-gpu", "sid", tune_as="gpu"),
    _mesa("zink-26", "sid", "zink", tune_as="gpu"),
    _mesa("zink-26-nvidia", "sid", "zink", tune_as="gpu", vulkan=_NVIDIA_VULKAN),
)
NAMES = tuple(driver.name for driver in DRIVERS)


def named(name):
    """The driver of a name."""
    return next(driver for driver in DRIVERS if driver.name == name)


def prepare(driver, folder):
    """A command that starts Python with the driver, and its environment. Fetches what is missing.

    Raises RuntimeError where packages can't be had.
    """
    inherited = {name: value for name, value in os.environ.items() if "TORCH_OCL" not in name}
    environment = inherited | driver.environment | {"TORCH_OCL_DEVICES": driver.device}
    if driver.tune_as:
        environment["TORCH_OCL_TUNE_AS"] = driver.tune_as
    # A list of failing kernels concerns one driver, and two drivers may have the same name.
    environment["TORCH_OCL_CACHE_DIR"] = str(folder / driver.name / "cache")
    if not driver.suite:
        return [sys.executable], environment
    if not driver.is_possible:
        raise RuntimeError(f"{driver.name} needs one of {', '.join(driver.vulkan)}")
    name, root = _unpacked(driver, driver.suite, folder)
    _, files = _unpacked(driver, driver.files or driver.suite, folder)
    vendors = folder / name / "vendors"
    vendors.mkdir(exist_ok=True)
    environment |= {
        "OCL_ICD_FILENAMES": str(root / driver.library),
        # An installed driver of the same name in one process with this one would crash both.
        "OCL_ICD_VENDORS": f"{vendors}/",
        "DRIVER_ROOTS": f"{files}:{root}",
    }
    for vulkan in root.glob("usr/share/vulkan/icd.d/lvp_icd*.json"):
        environment["VK_DRIVER_FILES"] = str(_own_vulkan(vulkan, root, folder / name))
    if driver.vulkan:
        environment["VK_DRIVER_FILES"] = driver.manifest
    return [str(_python(root, folder / name))], environment


def _unpacked(driver, suite, folder):
    """The name of a folder, and the root of the packages in it."""
    name = f"{suite}-{driver.packages[0]}"
    root = folder / name / "root"
    if not (root / driver.library).exists():
        packages.fetch(folder / name, suite, driver.packages)
    return name, root


def _own_vulkan(manifest, root, folder):
    """A copy of a Vulkan driver's manifest, which names the library below the root."""
    text = manifest.read_text()
    own = folder / manifest.name
    own.write_text(text.replace("/usr/lib", f"{root}/usr/lib"))
    return own


def _python(root, folder):
    """A program that starts this Python by the packages' loader, with their C library.

    It lies in a virtual environment of its own, which has this one's packages, so that Python finds
    them, and the processes it starts are started so, too.
    """
    libraries = root / LIBRARIES
    redirect = _redirect(folder)
    program = folder / "bin" / "python"
    program.parent.mkdir(parents=True, exist_ok=True)
    base = pathlib.Path(sys.prefix)
    shutil.copyfile(base / "pyvenv.cfg", folder / "pyvenv.cfg")
    if not (folder / "lib").exists():
        (folder / "lib").symlink_to(base / "lib")
    program.write_text(
        "#!/bin/sh\n"
        f"exec {libraries}/ld-linux-x86-64.so.2 --library-path {libraries}:/{LIBRARIES} \\\n"
        f'  --preload {redirect} --argv0 {program} {os.path.realpath(sys.executable)} "$@"\n'
    )
    program.chmod(0o755)
    return program


def _redirect(folder):
    library = folder / "redirect.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed")
    command = [compiler, "-O1", "-shared", "-fPIC", str(REDIRECT), "-ldl", "-o", str(library)]
    subprocess.run(command, check=True)
    return library
