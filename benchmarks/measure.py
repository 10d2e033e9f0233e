"""Times one case on both devices, interleaved in one process, and checks the results against each
other: the same tool says whether a kernel is right and how fast it is."""

import gc
import time
from dataclasses import dataclass

import torch
from torch.testing import assert_close

#: Repetitions stop when both sides have had this many seconds, and a few calls at least.
SECONDS = 0.6
LEAST_CALLS = 5
MOST_CALLS = 400


@dataclass
class Timing:
    """Of one call: least wall time and least CPU time of the process, in seconds."""

    wall: float
    process: float


@dataclass
class Result:
    """A case's timings, ocl's and CPU torch's, and whether the results agree."""

    name: str
    family: str
    dtype: str
    ocl: Timing
    cpu: Timing
    bytes: float
    flops: float
    error: str = ""

    @property
    def ratio(self):
        return self.ocl.wall / self.cpu.wall


def synchronize(device):
    if torch.device(device).type != "cpu":
        torch.accelerator.synchronize()


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


def check(case, on_device, on_cpu):
    """An empty string if both results agree, else how they differ."""
    if case.random:
        return ""
    try:
        for a, e in zip(flat(on_device), flat(on_cpu), strict=True):
            assert_close(a.detach().cpu(), e.detach(), equal_nan=True, **case.tolerance)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def run(case, device="ocl", seconds=SECONDS):
    """Measures a case; `device` against CPU torch."""
    ocl_call, cpu_call = case.make(device), case.make("cpu")
    error = check(case, ocl_call(), cpu_call())
    once(ocl_call, device), once(cpu_call, "cpu")
    gc.collect()
    gc.disable()
    best = {"ocl": [float("inf")] * 2, "cpu": [float("inf")] * 2}
    spent = 0.0
    calls = 0
    while calls < LEAST_CALLS or (spent < 2 * seconds and calls < MOST_CALLS):
        for side, call, where in (("ocl", ocl_call, device), ("cpu", cpu_call, "cpu")):
            wall, process = once(call, where)
            best[side] = [min(best[side][0], wall), min(best[side][1], process)]
            spent += wall
        calls += 1
    gc.enable()
    repeats = case.repeats
    return Result(
        case.name,
        case.family,
        case.dtype,
        Timing(*(t / repeats for t in best["ocl"])),
        Timing(*(t / repeats for t in best["cpu"])),
        case.bytes,
        case.flops,
        error,
    )
