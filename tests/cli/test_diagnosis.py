"""python -m torch_ocl says what is wrong in a first minute: one line for each thing, with a
command, and an exit status. Drivers are real ones, or a loader that makes them faulty."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.c_library import build_loader
from torch_ocl import _loader
from torch_ocl.cli import diagnosis, machine

HERE = pathlib.Path(__file__).resolve().parent
#: Where pip's drivers are out of sight.
WITHOUT_PIP_DRIVERS = """
import runpy, sys, types
loader = types.ModuleType("torch_ocl._loader")
loader.find_loaders = loader.find_drivers = lambda: []
sys.modules["torch_ocl._loader"] = loader
runpy.run_module("torch_ocl", run_name="__main__")
"""
#: A driver that is here for sure.
ONE = {"TORCH_OCL_DEVICES": os.environ.get("TORCH_OCL_DEVICES") or "0"}
ALL = {"TORCH_OCL_DEVICES": ""}


def wrong(*start, **environment):
    """The lines of what is wrong, of `python -m torch_ocl` or of other arguments."""
    done = subprocess.run(
        [sys.executable, *(start or ("-m", "torch_ocl"))],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    _, there_is, lines = done.stdout.partition("What is wrong:\n")
    assert done.returncode == (1 if there_is else 0), done.stdout + done.stderr
    lines = lines.splitlines()
    assert all(line.startswith("  - ") for line in lines), lines
    return lines


def one(lines, *parts):
    """The one line with such parts."""
    found = [line for line in lines if all(part in line for part in parts)]
    assert len(found) == 1, (parts, lines)
    return found[0]


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    library = tmp_path_factory.mktemp("stand_in") / "libstand_in.so"
    return build_loader(HERE / "stand_in.c", library)


def test_nothing_is_wrong():
    assert wrong(**ONE) == []


def test_no_loader():
    lines = wrong(TORCH_OCL_LOADER="/nonexistent")
    one(lines, "libOpenCL.so.1", "/nonexistent", f"Mend it: {machine.loader_command()}")


def test_no_driver(tmp_path):
    loader = next(iter(_loader.find_loaders()), "libOpenCL.so.1")
    environment = {"OCL_ICD_VENDORS": f"{tmp_path}/", "OCL_ICD_FILENAMES": "", **ALL}
    lines = wrong("-c", WITHOUT_PIP_DRIVERS, TORCH_OCL_LOADER=loader, **environment)
    assert len(lines) == 1
    one(lines, "No OpenCL driver is installed.", f"Mend it: {machine.driver_command()}")


def test_a_driver_without_devices(stand_in):
    lines = wrong(TORCH_OCL_LOADER=stand_in, STAND_IN="no_devices", **ALL)
    one(lines, "offer no usable device", "which offers no devices", machine.driver_command())


def test_a_driver_without_its_compiler(stand_in):
    lines = wrong(TORCH_OCL_LOADER=stand_in, STAND_IN="no_compiler", **ALL)
    one(lines, "offer no usable device")
    assert any("came without its compiler" in line and "install" in line for line in lines)


def test_a_compiler_that_fails(stand_in, tmp_path):
    settings = {"TORCH_OCL_LOADER": stand_in, "STAND_IN": "broken_compiler", **ONE}
    lines = wrong(TORCH_OCL_CACHE_DIR=str(tmp_path), **settings)
    one(lines, "computes nothing", "CL_COMPILER_NOT_AVAILABLE", "Update its driver (sudo ")


@pytest.mark.slow
def test_two_drivers_for_a_gpu(stand_in):
    """Found by its place. A choice of the user's ends it."""
    settings = {"TORCH_OCL_LOADER": stand_in, "STAND_IN": "one_gpu"}
    lines = wrong(**settings, **ALL)
    line = one(lines, "ocl:0 and ocl:1 are one device, by two drivers")
    assert line.endswith("Mend it: export TORCH_OCL_DEVICES=0")
    assert wrong(**settings, TORCH_OCL_DEVICES="0") == []


def test_two_drivers_for_a_cpu():
    lines = wrong(**ALL)
    one(lines, "ocl:0 and ocl:1 are one device, by two drivers", "Intel", "Portable")


def test_drivers_of_several_devices_are_not_confused(monkeypatch):
    gpu = {"type": "gpu", "uuid": "", "platform_name": "A"}
    devices = [
        {**gpu, "index": 0, "pci": (0, 1, 0)},
        {**gpu, "index": 1, "pci": (0, 2, 0)},
        {**gpu, "index": 2, "pci": (0, 2, 0), "platform_name": "B"},
        {**gpu, "index": 3, "pci": None, "platform_name": "C"},
        {**gpu, "index": 4, "pci": None, "type": "cpu"},
    ]
    monkeypatch.delenv("TORCH_OCL_DEVICES", raising=False)
    (line,) = diagnosis._two_drivers({"devices": devices})
    assert line.startswith("ocl:1 and ocl:2") and line.endswith("TORCH_OCL_DEVICES=0,1,3,4")


def test_devices_that_are_not_there():
    lines = wrong(TORCH_OCL_DEVICES="nothing")
    one(lines, 'TORCH_OCL_DEVICES="nothing" matches none', "Mend it: unset TORCH_OCL_DEVICES")


def test_a_cache_that_others_write_to(tmp_path):
    tmp_path.chmod(0o777)
    lines = wrong(TORCH_OCL_CACHE="1", TORCH_OCL_CACHE_DIR=str(tmp_path), **ONE)
    one(lines, "Compiled kernels are not kept", f"Mend it: chmod go-w {tmp_path}")
    tmp_path.chmod(0o700)
    assert wrong(TORCH_OCL_CACHE="1", TORCH_OCL_CACHE_DIR=str(tmp_path), **ONE) == []


def test_a_cache_that_can_t_be_written():
    """Not by root either."""
    lines = wrong(TORCH_OCL_CACHE="1", TORCH_OCL_CACHE_DIR="/proc/cache", **ONE)
    one(lines, "/proc/cache can't be written", "Mend it: export TORCH_OCL_CACHE_DIR=/var/tmp/")
    assert wrong(TORCH_OCL_CACHE="0", TORCH_OCL_CACHE_DIR="/proc/cache", **ONE) == []


#: `python -m torch_ocl` where torch calls itself another version.
ANOTHER_TORCH = """
import runpy, sys, types, torch
built = types.ModuleType("torch_ocl._built_for")
built.TORCH_VERSION, built.VERSION, built.WHEELS = "2.11.0+cpu", "0.1.0", {wheels!r}
sys.modules["torch_ocl._built_for"] = built
torch.__version__ = {version!r}
runpy.run_module("torch_ocl", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("wheels", "version", "commands"),
    [
        (
            "https://wheels.example",
            "2.15.0",
            (
                "pip install 'torch-ocl==0.1.0+torch2.15' --extra-index-url https://wheels.example",
                "pip install 'torch==2.11.*'",
            ),
        ),
        ("https://wheels.example", "2.99.0", ("pip install 'torch==2.11.*'",)),
        ("", "2.15.0", ("pip install 'torch==2.11.*'", "--force-reinstall .")),
    ],
    ids=["a wheel", "no such wheel", "from source"],
)
def test_another_torch(wheels, version, commands):
    """It names the wheel to take where there is one."""
    code = ANOTHER_TORCH.format(wheels=wheels, version=version)
    lines = wrong("-c", code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **ONE)
    line = one(lines, "it was built for torch 2.11.0+cpu, this is torch " + version, *commands)
    assert ("torch-ocl==" in line) == ("torch-ocl==" in commands[0])


class Machine:
    """A folder that stands in for the machine's: GPUs by PCI's numbers, nodes, a mark."""

    def __init__(self, root):
        self.root = root

    def gpu(self, vendor, place="0000:03:00.0"):
        folder = self.root / "sys/bus/pci/devices" / place
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text("0x030000\n")

    def node(self, name, mode=0o666):
        path = self.root / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(mode)
        return path

    def problems(self, devices=()):
        report = {"devices": list(devices), "left_out": [], "cache": None}
        return diagnosis.problems(report, "")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "ROOT", str(tmp_path))
    monkeypatch.delenv("TORCH_OCL_DEVICES", raising=False)
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("vendor", "given"),
    [
        ("0x1002", "--device /dev/kfd --device /dev/dri"),
        ("0x8086", "--device /dev/dri --group-add"),
        ("0x10de", "--gpus all"),
    ],
)
def test_a_container_without_the_device(elsewhere, vendor, given):
    elsewhere.gpu(vendor)
    (elsewhere.root / ".dockerenv").touch()
    one(elsewhere.problems(), "was not given to this container", f"Mend it: docker run {given}")


@pytest.mark.parametrize(
    ("vendor", "module"), [("0x1002", "amdgpu"), ("0x8086", "i915"), ("0x10de", "nvidia")]
)
def test_a_gpu_without_its_module(elsewhere, vendor, module):
    elsewhere.gpu(vendor)
    one(elsewhere.problems(), "kernel module is not loaded", f"Mend it: sudo modprobe {module}")


def test_a_gpu_without_its_driver(elsewhere):
    (
        elsewhere.gpu("0x8086"),
        elsewhere.gpu("0x1a03", "0000:05:00.0"),
        elsewhere.node("dri/renderD128"),
    )
    one(elsewhere.problems(), "a GPU of Intel, which no OpenCL driver lists", "Mend it: sudo ")
    device = {"type": "gpu", "index": 0, "works": True, "vendor": "Intel(R) Corporation"}
    assert elsewhere.problems([device]) == []


def test_a_gpu_that_the_user_may_not_open(elsewhere, monkeypatch):
    """One line: it is not said that there is no driver, too."""
    elsewhere.gpu("0x1002")
    node = elsewhere.node("dri/renderD128", 0)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may open all
    (line,) = elsewhere.problems()
    group = machine.groups_of([str(node)])[0]
    assert f"Mend it: sudo usermod -aG {group} $USER, then log in again" in line
    (elsewhere.root / ".dockerenv").touch()
    (line,) = elsewhere.problems()
    assert f"Mend it: docker run --group-add {node.stat().st_gid}" in line


AS_NOBODY = """
import os, sys
from torch_ocl.cli import machine
machine.ROOT = sys.argv[1]
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(*machine.closed_nodes())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_may_not_open_it(elsewhere):
    node = elsewhere.node("dri/renderD128", 0o660)
    for folder in [node.parent, *node.parent.parents][: len(node.parts) - 2]:
        folder.chmod(folder.stat().st_mode | 0o055)
    command = [sys.executable, "-c", AS_NOBODY, str(elsewhere.root)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(node)]
