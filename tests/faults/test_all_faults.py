"""A tenth of all faults, another one each day, leaves right results or an exception that names the
call; and the tools see what doesn't."""

import ctypes
import datetime
import os
import re

import pytest

from tests.faults import careless, inject, proxy, runner, scenarios

SHARE = 10
SEED = os.environ.get("TORCH_OCL_FAULTS_SEED") or datetime.date.today().isoformat()


def texts(faults):
    return "\n".join(f"{defect}\n{defect.text}" for defect in faults.report.defects)


@pytest.mark.slow
@pytest.mark.parametrize("name", scenarios.ALL)
def test_a_tenth_of_the_faults(name):
    faults = runner.Runner(SHARE, SEED)
    faults.run(name)
    assert not faults.report.defects, f"TORCH_OCL_FAULTS_SEED={SEED}:\n" + "\n".join(
        map(str, faults.report.defects)
    )
    assert faults.report.counts[name]["injected"]


# Each was a hang, a leak, an exception that named no call, or a step that failed later.
ONCE_DEFECTS = {
    "a collective": ("clFlush:4:before:-59", "clEnqueueMarkerWithWaitList:1:event:-5"),
    "a collective of copies": ("clFlush:7:lost:-5", "clEnqueueMarkerWithWaitList:9:after:-5"),
    "a graph's capture": ("clCreateBuffer:1:after:-5", "clCreateBuffer:1:lost:-5"),
    "a program": ("clGetProgramInfo:1:before:-5", "clGetDeviceInfo:what=0x1003:ones:0"),
    "copies": ("clCreateBuffer:1:lost:-5", "clCreateBuffer:4:lost:-5"),
    "start-up": (
        "clBuildProgram:1:lost:-5",
        "clCreateProgramWithBinary:1:lost:-36",
        "clGetDeviceInfo:what=0x102f:ones:0",
    ),
    "start-up without a cache": ("clGetDeviceInfo:16:before:-5", "clGetDeviceInfo:15:before:-5"),
    "two devices": ("clSetUserEventStatus:1:before:-5", "clSetUserEventStatus:2:after:-5"),
}


@pytest.mark.parametrize("name", ONCE_DEFECTS)
def test_what_once_was_a_defect(name):
    faults = runner.Runner()
    faults.run(name, [inject.Fault(*plan.split(":")) for plan in ONCE_DEFECTS[name]])
    assert not faults.report.defects, texts(faults)


@pytest.mark.parametrize(
    "name, what",
    [
        ("hides_it", "wrong results, and no exception"),
        ("renames_it", "names no call: ValueError: something is wrong"),
        ("keeps_memory", "bytes"),
        ("hangs", "hung"),
        ("dies", "ended with -6"),
    ],
)
def test_careless_programs_are_seen(name, what, monkeypatch):
    monkeypatch.setattr(inject, "LIMIT", 5)
    faults = runner.Runner(module=careless.__name__)
    faults.run(name, [inject.Fault("clEnqueueReadBuffer", "1", "before", -5)])
    assert len(faults.report.defects) == 1
    assert what in str(faults.report.defects[0])


def test_every_entry_point_is_forwarded(tmp_path):
    library = ctypes.CDLL(proxy.build(tmp_path))
    opencl = proxy.CSRC / "opencl"
    names = re.findall(r"X\((cl\w+)\)", (opencl / "api.h").read_text())
    assert len(names) > 50
    for path in opencl.glob("*.cpp"):
        names += re.findall(r'dlsym\(\w+, "(cl\w+)"\)', path.read_text())
    assert not [name for name in names if not hasattr(library, name)]
    # Those of drivers.
    known = proxy.SOURCE.read_text()
    for path in opencl.glob("*.cpp"):
        for name in re.findall(r'"(cl\w+KHR)"', path.read_text()):
            assert f'"{name}"' in known, name


def test_plans(tmp_path):
    """A plan's lines strike the calls that they name, and nothing else."""
    code = """
import os, torch
from tests.faults import proxy
loader = proxy.Proxy()
x = torch.ones(10, device="ocl")
x.cpu()

def read():
    try:
        x.cpu()
    except RuntimeError as error:
        return str(error).split(" on ")[0]

loader.plan("clEnqueueReadBuffer:2:before:-5")
failed = "clEnqueueReadBuffer failed: CL_OUT_OF_RESOURCES (-5)"
assert [read(), read(), read()] == [None, failed, None]
assert loader.struck() == 1 and loader.calls()["clEnqueueReadBuffer"][0] == 3
loader.plan("clEnqueueReadBuffer:1:lost:-36")
assert [read(), read()] == ["clEnqueueReadBuffer failed: CL_INVALID_COMMAND_QUEUE (-36)"] * 2
loader.plan()
assert read() is None and loader.struck() == 0
held = loader.objects()
torch.ocl.compile_kernel("kernel void k(global float* x) { x[0] = 7; }", "k")(x, global_size=1)
assert x[0].item() == 7
kinds = {kind for kind, _, _ in dict(loader.objects().items() - held.items()).values()}
assert "cl_program" in kinds, kinds
assert not loader.wrong()
"""
    environment = {**os.environ, "TORCH_OCL_LOADER": proxy.build(runner.FOLDER)}
    done = runner.run_script(code, environment=environment, cwd=runner.ROOT)
    assert done.returncode == 0, done.stderr
