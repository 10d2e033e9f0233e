"""Calls of the driver that fail, or say that they did: nothing is lost, nothing is wrong, nothing
crashes. The loader is one whose calls fail on demand (tests/faults/proxy.cpp), which has the plans'
words. tests/faults tries all calls of whole steps; here are what is seen in the long run, and
drivers that were met."""

import os
import pathlib

import pytest

from tests.c_library import build_loader
from tests.faults import proxy
from tests.fresh import run_script
from torch_ocl import _loader

HERE = pathlib.Path(__file__).resolve().parent

PRELUDE = """
import ctypes, os, sys, torch
loader = ctypes.CDLL(os.environ["TORCH_OCL_LOADER"])
def fault(name, how="before", code=-5, skip=0, count=1):
    calls = range(skip + 1, skip + count + 1)
    loader.faults_plan("".join(f"{name}:{n}:{how}:{code}\\n" for n in calls).encode())
def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise SystemExit(f"no {kind.__name__}")
def variable(name):
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    value = getenv(name.encode())
    return None if value is None else value.decode()
"""


# Answers, as lines of a plan.
PLATFORM = "clGetPlatformInfo:what=0x0902:text:{}\n"
VERSION = "clGetDeviceInfo:what=0x102d:text:{}\n"
NAME = "clGetDeviceInfo:what=0x102b:text:{}\n"
UNITS = "clGetDeviceInfo:what=0x1002:number:{}\n"


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    """The loader that fails, linked against the one that the package would take."""
    return proxy.build(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def check(loader):
    def check(code, plan="", **environment):
        environment = {
            **os.environ,
            "TORCH_OCL_LOADER": loader,
            "FAULTS_PLAN": plan,
            **environment,
        }
        done = run_script(PRELUDE + code, environment=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr

    return check


# A block is in use on another stream for about as long as these products take.
BUSY = """
side = torch.ocl.Stream()
x, factor = torch.ones(3_000_000, device="ocl"), torch.ones(700, 700, device="ocl")
with torch.ocl.stream(side):
    warm_up = factor @ factor, x * 1
torch.ocl.synchronize()
def use_and_free(x):
    side.wait_stream(torch.ocl.current_stream())
    with torch.ocl.stream(side):
        for _ in range(30):
            factor @ factor
        result = x * 1
    x.record_stream(side)
    return result
address = x.data_ptr()
"""


@pytest.mark.parametrize(
    "name, before",
    [("clEnqueueMarkerWithWaitList", True), ("clFlush", True), ("clGetEventInfo", False)],
)
def test_a_block_in_use_is_kept_when_the_driver_fails(check, name, before):
    free = f'fault("{name}"); del x' if before else f'del x; fault("{name}")'
    check(
        BUSY
        + "result = use_and_free(x)\n"
        + free
        + """
other = torch.full((3_000_000,), 5.0, device="ocl")
assert other.data_ptr() != address, "the block was given away"
side.synchronize()
assert result.eq(1).all().item() and other.eq(5).all().item()
assert torch.empty(3_000_000, device="ocl").data_ptr() == address, "the block is lost"
"""
    )


def test_memory_is_kept_while_the_device_does_not_say_that_it_is_over(check):
    check(
        BUSY
        + """
result = use_and_free(x)
del x
fault("clFinish", count=1000), torch.ocl.set_per_process_memory_fraction(1e-6)
raises(torch.OutOfMemoryError, "out of memory", lambda: torch.empty(10**8, device="ocl"))
fault("none"), torch.ocl.set_per_process_memory_fraction(1.0)
side.synchronize()
assert result.eq(1).all().item()
"""
    )


def test_pinned_memory_in_use_is_kept_when_the_driver_fails(check):
    check(
        BUSY
        + """
host = torch.ones(3_000_000).pin_memory()
address = host.data_ptr()
side.wait_stream(torch.ocl.current_stream())
with torch.ocl.stream(side):
    for _ in range(30):
        factor @ factor
    copy = host.to("ocl", non_blocking=True)
fault("clEnqueueMarkerWithWaitList")
del host
other = torch.full((3_000_000,), 5.0).pin_memory()
assert other.data_ptr() != address, "the memory was given away"
side.synchronize()
assert copy.eq(1).all().item()
del other
blocks = [torch.ones(3_000_000).pin_memory() for _ in range(2)]
assert address in [block.data_ptr() for block in blocks], "the memory is lost"
"""
    )


@pytest.mark.parametrize("mode", ["before", "after"])
def test_an_argument_that_may_have_been_set_is_set_again(check, mode):
    check(
        f"""
x = torch.arange(1000.0, device="ocl").view(10, 100)
expected = x.softmax(-1)
first, second = torch.zeros_like(x), torch.zeros_like(x)
for argument in range(20):
    torch.softmax(x, -1, out=first)
    fault("clSetKernelArg", "{mode}", skip=argument)
    try:
        torch.softmax(x, -1, out=second)
    except RuntimeError as error:
        assert "clSetKernelArg" in str(error), error
    else:
        break
    first.zero_(), second.zero_()
    torch.softmax(x, -1, out=first)
    assert first.equal(expected) and second.eq(0).all(), argument
fault("none")
assert argument > 0
"""
    )


def test_a_record_that_can_not_be_read_is_read_by_the_next_wait(check):
    check(
        """
x, good = torch.arange(10.0, device="ocl"), torch.tensor([3], device="ocl")
bad = torch.tensor([99], device="ocl")
torch.index_select(x, 0, good)
torch.ocl.synchronize()
torch.index_select(x, 0, bad)
fault("clEnqueueReadBuffer")
raises(RuntimeError, "clEnqueueReadBuffer", torch.ocl.synchronize)
raises(IndexError, "index", torch.ocl.synchronize)
assert x.gather(0, good).item() == 3
torch.ocl.synchronize()

# The fault of another stream's event, which the waiting one has waited for.
side = torch.ocl.Stream()
with torch.ocl.stream(side):
    torch.index_select(x, 0, bad)
torch.ocl.current_stream().wait_stream(side)
fault("clEnqueueReadBuffer")
stream = torch.ocl.current_stream()
raises(RuntimeError, "clEnqueueReadBuffer", stream.synchronize)
raises(IndexError, "index", stream.synchronize)
torch.ocl.synchronize()
"""
    )


def test_callbacks_that_were_registered_with_an_error(check):
    check(
        """
for _ in range(50):
    event = torch.ocl.Event(enable_timing=True)
    fault("clSetEventCallback", "after")
    raises(RuntimeError, "clSetEventCallback", event.record)
    event.synchronize()
fault("clSetMemObjectDestructorCallback", "after", code=-30)
raises(RuntimeError, "CL_INVALID_VALUE", lambda: torch.empty(10**7, device="ocl"))
fault("clSetMemObjectDestructorCallback", "after")
assert torch.ones(10**7, device="ocl").sum().item() == 10**7
torch.ocl.empty_cache()
""",
        MALLOC_PERTURB_="165",
    )


def test_a_device_without_compute_units(check):
    check(
        """
assert torch.ocl.get_device_properties(0).max_compute_units == 1
x = torch.randn(4, 8, 30, 30)
weight = torch.randn(8, 1, 3, 3)
for call in (
    lambda x, w: torch.nn.functional.conv2d(x, w, groups=8),
    lambda x, w: x.softmax(-1) + x.sum(1, keepdim=True),
    lambda x, w: x @ x.transpose(-1, -2),
):
    torch.testing.assert_close(call(x.to("ocl"), weight.to("ocl")).cpu(), call(x, weight))
""",
        plan=UNITS.format(0),
    )


def test_devices_that_can_not_be_listed_are_looked_for_again(check):
    check("assert torch.ones(2, device='ocl').sum().item() == 2", plan="clGetDeviceIDs:1:before:-5")
    check(
        """
assert torch.ocl.device_count() == 0
assert "clGetDeviceIDs failed: CL_OUT_OF_RESOURCES" in torch.ocl.unavailable_reason()
raises(RuntimeError, "clGetDeviceIDs", lambda: torch.ones(2, device="ocl"))
fault("none")
assert torch.ones(2, device="ocl").sum().item() == 2
assert torch.ocl.is_available() and torch.ocl.unavailable_reason() == ""
""",
        plan="clGetDeviceIDs:1+:before:-5",
    )


def test_drivers_that_offer_nothing_are_named(check):
    code = """
reason = torch.ocl.unavailable_reason()
assert all(word in reason for word in %r), reason
"""
    reasons = {"rusticl": "RUSTICL_ENABLE", "NVIDIA CUDA": "/dev/nvidia", "Other": "no devices"}
    for platform, cause in reasons.items():
        plan = PLATFORM.format(platform) + "clGetDeviceIDs:1+:before:-1"
        check(code % ([platform, cause],), plan)
    # Mesa of Debian 12 computes wrong matrix products.
    words = ["22.3.6", "wrong results", "25.0.7"]
    plan = PLATFORM.format("rusticl") + VERSION
    check(code % (words,), plan.format("22.3.6"), TORCH_OCL_DEVICES="")
    check("assert torch.ocl.is_available()", plan.format("25.0.7"), TORCH_OCL_DEVICES="")


@pytest.mark.parametrize("version, method", [("6.0+debian", "cbs"), ("7.1", None)])
def test_the_compiler_of_pocl_6_is_told_what_it_needs(check, version, method):
    check(
        f"torch.ones(1, device='ocl')\nassert variable('POCL_WORK_GROUP_METHOD') == {method!r}",
        plan=PLATFORM.format("Portable Computing Language") + VERSION.format(version),
    )


@pytest.mark.slow
def test_zinks_missing_local_memory_is_gone_round(check, loader, tmp_path):
    """Mesa's zink gives a kernel of a fixed work-group size no local memory for its arguments, and
    others what their first launch had: the package's kernels have no fixed size there, and all the
    memory. A user's kernel of a fixed size is refused."""
    code = """
x, w = torch.randn(1, 8, 9, 9), torch.randn(12, 8, 3, 3)
def gradients(*inputs):
    inputs = [value.detach().requires_grad_() for value in inputs]
    torch.nn.functional.conv2d(*inputs, stride=2, padding=1).sum().backward()
    return [value.grad.cpu() for value in inputs]
torch.testing.assert_close(gradients(x.to("ocl"), w.to("ocl")), gradients(x, w))
for length in (100, 1000):  # two local arguments
    rows = torch.randn(3, length)
    torch.testing.assert_close(rows.to("ocl").sort().values.cpu(), rows.sort().values)
source = "kernel %s void k(global float* x, local float* s) { s[0] = 2; x[0] = s[0]; }"
y = torch.zeros(1, device="ocl")
memory = torch.ocl.local_memory(4)
kernel = lambda attribute: torch.ocl.compile_kernel(source % attribute, "k")
for nbytes in (4, 400):
    kernel("")(y, torch.ocl.local_memory(nbytes), global_size=1, local_size=1)
assert y.item() == 2
fixed = kernel("__attribute__((reqd_work_group_size(1, 1, 1)))")
call = lambda: fixed(y, memory, global_size=1, local_size=1)
"""
    answers = PLATFORM.format("rusticl"), VERSION.format("26.2.6"), NAME.format("zink Vulkan 1.4")
    zink = {"plan": "".join(answers), "TORCH_OCL_DEVICES": "0"}  # no other name is left
    zink["TORCH_OCL_LOADER"] = build_loader(HERE / "zink.c", tmp_path / "libzink.so", real=loader)
    refused = 'raises(RuntimeError, "reqd_work_group_size", call)'
    for kernels_for in ("cpu", "gpu"):
        check(code + refused, TORCH_OCL_TUNE_AS=kernels_for, **zink)


def test_the_environment_is_left_as_it_was(check):
    icds = _loader.find_icd_files() or ["/nonexistent/first.so"]
    for files in (None, f"{icds[0]}:/nonexistent/second.so"):
        environment = {} if files is None else {"OCL_ICD_FILENAMES": files}
        if files is None and "OCL_ICD_FILENAMES" in os.environ:
            continue
        check(
            f"""
before = variable("OCL_ICD_FILENAMES")
assert before == {files!r}
torch.ones(1, device="ocl")
assert variable("OCL_ICD_FILENAMES") == before, variable("OCL_ICD_FILENAMES")
assert variable("OCL_ICD_VENDORS") == os.environ.get("OCL_ICD_VENDORS")
""",
            **environment,
        )


def test_a_program_that_does_not_build_is_named_at_the_next_wait(check, tmp_path):
    """With the line that launched it, where the launch waited for its program."""
    environment = {
        "TORCH_OCL_CACHE_DIR": str(tmp_path),
        "TORCH_OCL_CACHE": "1",
        "TORCH_OCL_BUILD_WORKERS": "1",
    }
    # With something on disk, no worker is there before it is worth its start.
    check("assert (torch.ones(8, device='ocl') + 1).cpu().eq(2).all()", **environment)
    check(
        """
x = torch.ones(8, device="ocl")
(x + 1).cpu()
fault("clBuildProgram", code=-6)
try:
    y = torch.special.bessel_j1(x)
    torch.ocl.synchronize()
except RuntimeError as error:
    assert "clBuildProgram failed: CL_OUT_OF_HOST_MEMORY" in str(error), error
    assert "Portable" in str(error) or "<string>:" in str(error), error
else:
    raise SystemExit("nothing was raised")
torch.ocl.synchronize()
assert (x + 1).cpu().eq(2).all()
assert torch.special.bessel_j1(x).cpu().sub(0.44005).abs().max() < 1e-4
""",
        **environment,
    )
