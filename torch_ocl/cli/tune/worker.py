"""The process that times kernels for `python -m torch_ocl tune`: a driver may crash or hang in it.

It writes lines of JSON: progress, constants that were found better, and times before and after. Its
results are kept in a file of its own (TORCH_OCL_TUNABLE_FILENAME)."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable

import torch

from torch_ocl import _C
from torch_ocl.cli import peaks
from torch_ocl.cli.tune import knobs, workloads

_LEAST_SECONDS = 2e-3  # of one timing
_ROUNDS = 3
#: Operations a second of a small GPU, whose work is not scaled.
_SMALL_FLOPS = 2e12
_MOST_SCALE = 16
_LAUNCHES = 100
#: Shares of the time: measured constants and those that are tried; products. The rest compares.
_CONSTANTS, _PRODUCTS = 0.5, 0.8


class _Worker:
    def __init__(self, device: str, seconds: float, out) -> None:
        self.device, self.seconds, self.out = device, seconds, out
        self.start = time.monotonic()
        row = _C.device_row(torch.device(device).index or 0)  # TORCH_OCL_TUNE_AS counts
        self.kind = "cpu" if row["device_class"].startswith("CPU") else "gpu"
        self.calls: dict[str, Callable[[], object]] = {}
        self.scale = 1
        self.measured: dict[str, float] = {}

    def say(self, **what) -> None:
        print(json.dumps(what), file=self.out, flush=True)

    def spent(self) -> float:
        """The part of the time that is over."""
        return (time.monotonic() - self.start) / self.seconds

    def progress(self, text: str) -> None:
        self.say(part=min(1.0, self.spent()), text=text)

    def call(self, work: str) -> Callable[[], object] | None:
        """The work's call; None where the device can't do it."""
        if work not in self.calls:
            try:
                make = workloads.WORKLOADS.get(work) or workloads.LAYERS[work]
                self.calls[work] = make(self.device, self.scale)
            except (NotImplementedError, TypeError, RuntimeError):
                return None
        return self.calls[work]

    def set(self, name: str, value: float) -> bool:
        """False where kernels can't be built for the value."""
        try:
            torch.ocl.tunable.set_constant(name, value)
        except ValueError:
            return False
        return True

    def least(self, call: Callable[[], object]) -> float:
        """Seconds of a call: the least of a few timings, each long enough to be measured."""
        call()  # builds, and chooses
        torch.ocl.synchronize(self.device)
        once, count = self.timed(call, 1), 1
        count = max(1, min(64, math.ceil(_LEAST_SECONDS / max(once, 1e-7))))
        return min(self.timed(call, count) for _ in range(2))

    def timed(self, call: Callable[[], object], count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        torch.ocl.synchronize(self.device)
        return (time.perf_counter() - start) / count

    def by_turns(self, settings: dict, set_to: Callable, works: Iterable[str]) -> dict:
        """Times of each work for each setting, the settings by turns. A setting with which a kernel
        fails is left out."""
        calls = {work: call for work in works if (call := self.call(work)) is not None}
        times = {key: dict.fromkeys(calls, float("inf")) for key in settings}
        for _ in range(_ROUNDS):
            for key in list(times):
                try:
                    if not set_to(key):
                        del times[key]
                        continue
                    for work, call in calls.items():
                        times[key][work] = min(times[key][work], self.least(call))
                except RuntimeError:
                    del times[key]
        return times

    def measure(self) -> None:
        """The device's size, and what a launch costs in multiply-adds of a compute unit. That is
        tried as other values are."""
        self.progress("launches and arithmetic")
        flops = peaks.flops_per_second()["float32"]
        if self.kind == "cpu":
            return
        self.scale = int(min(_MOST_SCALE, max(1, flops / _SMALL_FLOPS)))
        units = torch.ocl.get_device_properties(self.device).max_compute_units
        cost = float(f"{self.launch_seconds() * flops / 2 / units:.2g}")
        self.measured["launch_cost"] = cost
        self.say(measured="launch_cost", value=cost)

    def launch_seconds(self) -> float:
        """By a graph, in which the host has no part."""
        x = torch.zeros(1, device=self.device)
        graph = torch.ocl.OclGraph()
        with torch.ocl.graph(graph):
            for _ in range(_LAUNCHES):
                x.add_(1)
        return self.least(graph.replay) / _LAUNCHES

    def found(self, name: str, value: float) -> None:
        if self.set(name, value):
            self.say(constant=name, value=value)

    def constants(self) -> None:
        """Another value has to be faster twice: one busy moment is not to choose it."""
        for knob in knobs.knobs(self.kind):
            if self.spent() > _CONSTANTS:
                return
            self.progress(knob.name)
            value = torch.ocl.tunable.get_constants()[knob.name]
            if value <= 0:  # it stands for "no limit", and could not be set back
                continue
            tried = knob.candidates(value)
            if knob.name in self.measured:
                tried = [self.measured[knob.name], *tried]
            best = self.best_of(knob, value, tried)
            if best != value and self.best_of(knob, value, [best]) == best:
                self.found(knob.name, best)

    def best_of(self, knob: knobs.Knob, value: float, others: Iterable[float]) -> float:
        """The best value of the knob by now; the one in use stays set."""
        settings = dict.fromkeys([value, *others])
        times = self.by_turns(settings, lambda v: self.set(knob.name, v), knob.work)
        self.set(knob.name, value)
        return knobs.better(times, value) if times.get(value) else value

    def products(self) -> None:
        """The tuner searches for each product."""
        torch.ocl.tunable.tuning_enable(True)
        for number, layer in enumerate(workloads.LAYERS):
            left = (_PRODUCTS - self.spent()) * self.seconds / (len(workloads.LAYERS) - number)
            if left <= 0:
                break
            self.progress(layer)
            # A linear layer and its gradients are three searches.
            torch.ocl.tunable.set_max_tuning_duration(max(1, int(left * 1000 / 3)))
            if (call := self.call(layer)) is not None:
                call()
                torch.ocl.synchronize(self.device)
        torch.ocl.tunable.tuning_enable(False)

    def compare(self) -> None:
        """Times before and after, by turns."""

        def use(tuned: bool) -> bool:
            torch.ocl.tunable.enable(tuned)
            return True

        for work in (*workloads.WORKLOADS, *workloads.LAYERS):
            self.progress(f"before and after: {work}")
            times = self.by_turns(dict.fromkeys((False, True)), use, [work])
            if len(times) == 2 and times[True]:
                self.say(work=work, before=times[False][work], after=times[True][work])
            if self.spent() > 1.25:
                return


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    device, seconds = sys.argv[1], float(sys.argv[2])
    torch.ocl.set_device(device)
    torch.ocl.tunable.enable(True)
    torch.ocl.tunable.tuning_enable(False)
    worker = _Worker(device, seconds, out)
    worker.measure()
    worker.constants()
    worker.products()
    worker.compare()


if __name__ == "__main__":
    main()
