"""Times one case on two sides, by turns, and checks the results against each other: the same
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
    """Times of one call: least wall time and least CPU time of the process, in seconds."""

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
    #: Seconds of kernels that only move as many bytes, in turn with both sides: as many read and as
    #: many written as the case does, and a copy.
    moving: float | None = None
    copying: float | None = None

    @property
    def ratio(self):
        return self.ocl.wall / self.other.wall

    @property
    def process_ratio(self):
        """The ratio of the processes' CPU times, all threads together."""
        return self.ocl.process / self.other.process


def synchronize(device):
    if device == "ocl":
        torch.ocl.synchronize()
    elif device == "cuda":
        torch.cuda.synchronize()


def free(device):
    """Gives back what the case before left in the memory's cache: the other process may need it."""
    gc.collect()
    if device != "cpu":
        getattr(torch, device).empty_cache()


def once(call, device):
    """Seconds of one call, waiting for its work."""
    synchronize(device)
    start = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - start


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


class Side:
    """A case's call on a device, and the least seconds it took so far."""

    def __init__(self, call, device):
        self._call, self._device = call, device
        self.best = Timing(float("inf"), float("inf"))

    def result(self):
        return self._call()

    def warm_up(self):
        once(self._call, self._device)

    def block(self):
        """A pause, then calls. Returns the calls made and the seconds they took."""
        time.sleep(PAUSE)
        spent, calls, process = 0.0, 0, time.process_time()
        while calls < BLOCK_CALLS and spent < BLOCK_SECONDS:
            wall = once(self._call, self._device)
            self.best.wall = min(self.best.wall, wall)
            spent += wall
            calls += 1
        # Time of the whole block: the system may book a thread's time a call too late.
        self.best.process = min(self.best.process, (time.process_time() - process) / calls)
        return calls, spent


def compare(case, ocl, other, moves=(), seconds=SECONDS, least_calls=LEAST_CALLS):
    """Measures two sides of a case, the first one on `ocl`. `moves`: calls on `ocl` that take turns
    with them, since a virtual machine's memory may be half as fast a second later: to move the
    case's bytes and to copy as many, and how often they would have to (see peaks.moving())."""
    error = check(case, ocl.result(), other.result())
    sides = [ocl, other, *(Side(call, "ocl") for call, _ in moves)]
    for side in sides:
        side.warm_up()
    gc.collect()
    gc.disable()
    spent, calls = 0.0, 0
    while calls < least_calls or (spent < 2 * seconds and calls < MOST_CALLS):
        done = [side.block() for side in sides]
        calls += min(n for n, _ in done)
        spent += sum(s for _, s in done)
    gc.enable()
    timings = [Timing(s.best.wall / case.repeats, s.best.process / case.repeats) for s in sides[:2]]
    moved = [s.best.wall * times for s, (_, times) in zip(sides[2:], moves, strict=True)]
    what = case.name, case.family, case.dtype
    return Result(*what, *timings, case.bytes, case.flops, error, *moved)


def run(case, other="cpu", **limits):
    """Measures a case on `ocl` against torch on the device `other`, or against a worker."""
    if case.for_gpus:
        free("ocl")
    ocl = Side(case.make("ocl"), "ocl")
    theirs = Side(case.make(other), other) if isinstance(other, str) else other.side(case)
    return compare(case, ocl, theirs, **limits)
