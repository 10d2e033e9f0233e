"""Files tell what this machine has: its GPUs, their nodes, whether it is a container, and which
package has a driver."""

import glob
import grp
import os
import platform
import shutil
from typing import NamedTuple

#: Tests name another.
ROOT = "/"


class Vendor(NamedTuple):
    """A maker of GPUs.

    Attributes:
        name: As drivers call it, too.
        nodes: What a program opens to use its GPUs.
        given: The arguments of `docker run` that hand them to a container.
        module: The kernel's module.
        packages: The package with an OpenCL driver, by the package manager.
        more: What is needed besides the package.
    """

    name: str
    nodes: tuple[str, ...]
    given: str
    module: str
    packages: dict[str, str]
    more: str = ""


_DRI = "--device /dev/dri --group-add $(stat -c %g /dev/dri/renderD128)"
#: By PCI's number of the vendor.
VENDORS = {
    "0x1002": Vendor(
        "AMD",
        ("dev/dri/renderD*",),
        f"--device /dev/kfd {_DRI}",
        "amdgpu",
        {"apt": "mesa-opencl-icd", "dnf": "mesa-libOpenCL", "pacman": "opencl-mesa"},
        " && export RUSTICL_ENABLE=radeonsi",
    ),
    "0x8086": Vendor(
        "Intel",
        ("dev/dri/renderD*",),
        _DRI,
        "i915",
        {
            "apt": "intel-opencl-icd",
            "dnf": "intel-compute-runtime",
            "pacman": "intel-compute-runtime",
        },
    ),
    "0x10de": Vendor(
        "NVIDIA",
        ("dev/nvidiactl",),
        "--gpus all",
        "nvidia",
        {"apt": "nvidia-opencl-icd", "dnf": "xorg-x11-drv-nvidia-cuda", "pacman": "opencl-nvidia"},
    ),
}
_DISPLAY_CONTROLLER = "0x03"


def _find(pattern: str) -> list[str]:
    return sorted(glob.glob(os.path.join(ROOT, pattern)))


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def gpu_vendors() -> list[Vendor]:
    """The vendors of the machine's GPUs. A container sees them, too, whether it may use them or
    not."""
    found = {
        _read(f"{device}/vendor")
        for device in _find("sys/bus/pci/devices/*")
        if _read(f"{device}/class").startswith(_DISPLAY_CONTROLLER)
    }
    return [vendor for number, vendor in VENDORS.items() if number in found]


def nodes_of(vendor: Vendor) -> list[str]:
    return [path for pattern in vendor.nodes for path in _find(pattern)]


def closed_nodes() -> list[str]:
    """GPUs' nodes that this user may not open."""
    patterns = ("dev/dri/renderD*", "dev/kfd", "dev/nvidiactl", "dev/mali0")
    nodes = [path for pattern in patterns for path in _find(pattern)]
    return [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]


def groups_of(nodes: list[str]) -> list[str]:
    """The names of the groups that may open nodes; the number of one that has no name here."""
    groups = []
    for number in dict.fromkeys(os.stat(node).st_gid for node in nodes):
        try:
            groups.append(grp.getgrgid(number).gr_name)
        except KeyError:
            groups.append(str(number))
    return groups


def is_container() -> bool:
    """Whether Docker, Podman or Buildah made what this process sees."""
    marks = (".dockerenv", "run/.containerenv")
    return any(os.path.exists(os.path.join(ROOT, mark)) for mark in marks)


def package_manager() -> str:
    found = {"apt": "apt-get", "dnf": "dnf", "pacman": "pacman"}
    return next((name for name, program in found.items() if shutil.which(program)), "apt")


def install_command(packages: dict[str, str]) -> str:
    manager = package_manager()
    return f"sudo {manager} {'-S' if manager == 'pacman' else 'install'} {packages[manager]}"


def cpu_driver_command() -> str:
    """Needs no root where pip has a driver."""
    if platform.machine() == "x86_64":
        return "pip install intel-opencl-rt"
    return install_command({"apt": "pocl-opencl-icd", "dnf": "pocl", "pacman": "pocl"})


def driver_command() -> str:
    """Installs a driver for what there is: a GPU, else the CPU."""
    vendors = gpu_vendors()
    return (
        install_command(vendors[0].packages) + vendors[0].more if vendors else cpu_driver_command()
    )


def loader_command() -> str:
    if platform.machine() == "x86_64":
        return "pip install 'nvidia-cuda-opencl>=13'"
    return install_command({"apt": "ocl-icd-libopencl1", "dnf": "ocl-icd", "pacman": "ocl-icd"})
