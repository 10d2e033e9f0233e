"""Times one case on two sides, in one process, and checks the results against each other: the same
tool says whether a kernel is right and how fast it is.

The sides take turns in blocks with a pause before each: the worker threads of CPU torch (OpenMP)
and of some OpenCL drivers spin for a while after their last task, and would take the other side's
cores (an addition of 1M elements took twice as long without the pause)."""

import gc
import time
from dataclasses import dataclass

import torch
from torch.testing import assert_close

#: Repetitions stop when both sides have had this many seconds, and a few blocks at least.
SECONDS = 0.6
PAUSE = 0.01
BLOCK_CALLS = 10
BLOCK_SECONDS = 0.05
LEAST_CALLS = 5
MOST_CALLS = 400


@dataclass
class Timing:
    """Of one call: least wall time and least CPU time of the process, in seconds."""

    wall: float
    process: float


@dataclass
class Result:
    """A case's timings, ocl's and the other side's, and whether the results agree."""

    name: str
    family: str
    dtype: str
    ocl: Timing
    other: Timing
    bytes: float
    flops: float
    error: str = ""

    @property
    def ratio(self):
        return self.ocl.wall / self.other.wall


def synchronize(device):
    if device == "ocl":
        torch.ocl.synchronize()
    elif device == "cuda":
        torch.cuda.synchronize()


def once(call, device):
    """Wall and process seconds of one call, waiting for its work."""
    synchronize(device)
    wall, process = time.perf_counter(), time.process_time()
    call()
    synchronize(device)
    return time.perf_counter() - wall, time.process_time() - process


def flat(value):
    return [
        leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)
    ]


def check(case, actual, expected):
    """An empty string if both results agree, else how they differ."""
    if case.random:
        return ""
    if case.exact:
        expected = case.exact()
    options = {"check_dtype": not case.exact} | case.tolerance
    try:
        for a, e in zip(flat(actual), flat(expected), strict=True):
            assert_close(a.detach().cpu(), e.detach().cpu(), equal_nan=True, **options)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def block(call, device, best):
    """A pause, then calls; lowers `best`. Returns the calls made and the seconds they took."""
    time.sleep(PAUSE)
    spent, calls = 0.0, 0
    while calls < BLOCK_CALLS and spent < BLOCK_SECONDS:
        wall, process = once(call, device)
        best[:] = [min(best[0], wall), min(best[1], process)]
        spent += wall
        calls += 1
    return calls, spent


def compare(case, ocl_call, other_call, other, seconds=SECONDS, least_calls=LEAST_CALLS):
    """Measures two calls of a case, the first on `ocl`, the second on the device `other`."""
    error = check(case, ocl_call(), other_call())
    sides = ((ocl_call, "ocl", [float("inf")] * 2), (other_call, other, [float("inf")] * 2))
    for call, device, _ in sides:
        once(call, device)
    gc.collect()
    gc.disable()
    spent, calls = 0.0, 0
    while calls < least_calls or (spent < 2 * seconds and calls < MOST_CALLS):
        done = [block(*side) for side in sides]
        calls += min(n for n, _ in done)
        spent += sum(s for _, s in done)
    gc.enable()
    timings = [Timing(*(t / case.repeats for t in best)) for _, _, best in sides]
    return Result(case.name, case.family, case.dtype, *timings, case.bytes, case.flops, error)


def run(case, other="cpu", **limits):
    """Measures a case on `ocl` against torch on the device `other`."""
    return compare(case, case.make("ocl"), case.make(other), other, **limits)
