"""`python -m torch_ocl check`: every implementation of every engine on a device against the CPU.

What is wrong, crashes or hangs is left out of the engines' lists from then on, by a file in the
cache's folder, until a check finds it right or `--forget` removes the file."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from torch_ocl import _C
from torch_ocl.cli import progress
from torch_ocl.cli.check import cases, report
from torch_ocl.cli.check.process import LeftOut, Outcome, Runner
from torch_ocl.cli.check.report import Row

#: The implementation of kernels that are the only ones for their op.
ONLY = "the only one"
#: More processes than this wait for the longest family.
_MOST_PROCESSES = 12


def forget(device: str) -> int:
    """Removes what is known of the device's kernels. Returns the exit status, which is 0."""
    gone = _C.forget_left_out(_index(device))
    print(f"{'removed' if gone else 'there was no'} list of failing kernels of {device}")
    return 0


def check(device: str, only: Sequence[str], path: str, timeout: float, processes: int = 0) -> int:
    """Tries the kernels, prints a table and writes the report. Returns 1 where one fails.

    0 processes stand for three to four cores: kernels' compilers take nearly all the time."""
    index = _index(device)
    device = f"ocl:{index}"
    everything = cases.cases()
    unknown = sorted(set(only) - set(everything))
    if unknown:
        raise ValueError(f"no family is called {unknown[0]}; there are: {', '.join(everything)}")
    start = time.monotonic()
    run = _Check(device, index, timeout, [e for e in everything if not only or e in only])
    rows = run.all(processes or min(_MOST_PROCESSES, max(1, len(os.sched_getaffinity(0)) * 3 // 4)))
    kept = _keep(index, run, only)
    seconds = time.monotonic() - start
    text = report.table(rows)
    print(text)
    failing = [row for row in rows if row.fault]
    tried = sum(bool(row.passed or row.fault) for row in rows)
    print(f"\n{run.count} cases, {tried} kernels tried, {len(failing)} fail; {seconds:.0f} s")
    for row in failing:
        print(f"  {row.engine} {row.implementation}: {row.fault}")
    if failing:
        print(kept)
    path = path or f"torch_ocl_check_{index}.md"
    report.write(path, index, text, failing, kept if failing else "")
    print(f"report: {path}" + (", please attach it to an issue" if failing else ""))
    return 1 if failing else 0


def _index(device: str) -> int:
    index = torch.device(device).index
    torch.ocl.get_device_properties(device)  # which says why there is no device
    return torch.ocl.current_device() if index is None else index


def _keep(index: int, run: "_Check", only: Sequence[str]) -> str:
    """Stores what fails, beside what is known of families that were not tried. Returns what became
    of it, in words."""
    others = [entry for entry in _C.left_out(index) if only and entry[0] not in only]
    _C.set_left_out(index, [*others, *run.left_out])
    reason = _C.keep_left_out(index, "check")
    if reason:
        return f"They can't be left out by other programs: {reason}."
    where = _C.quarantine_file(index)
    return f"They are left out from now on ({where}; --forget removes it)."


class _Check:
    """Runs the cases of a family in a dtype one after the other, and those units side by side."""

    def __init__(self, device: str, index: int, timeout: float, engines: list[str]) -> None:
        self.device, self.timeout = device, timeout
        self.cases, self.engines = cases.cases(), engines
        self.implementations = _C.engines()
        self.fp64 = torch.ocl.get_device_properties(index).has_fp64
        self.left_out: list[LeftOut] = []
        self.rows: dict[tuple[str, str], Row] = {}
        self.count = self.done = 0
        self.counting, self.blaming = threading.Lock(), threading.Lock()
        self.free: list[Runner] = []

    def all(self, processes: int) -> list[Row]:
        units = []
        for engine in self.engines:
            for implementation in self.implementations.get(engine, [ONLY]):
                self.rows[engine, implementation] = Row(engine, implementation)
            units += [(engine, dtype) for dtype in cases.dtypes_of(engine, self.fp64)]
        units.sort(key=lambda unit: -len(self.cases[unit[0]]))  # the longest begin
        self.total = sum(len(self.cases[engine]) for engine, _ in units)
        self.free = runners = [Runner(self.device, self.timeout) for _ in range(processes)]
        pool = ThreadPoolExecutor(processes)
        try:
            list(pool.map(self._unit, units))
        finally:
            pool.shutdown(cancel_futures=True)
            for runner in runners:
                runner.end()
            for runner in runners:
                runner.close()
        progress.show(1, "")
        return list(self.rows.values())

    def _unit(self, unit: tuple[str, str]) -> None:
        engine, dtype = unit
        runner = self.free.pop()
        try:
            for number in range(len(self.cases[engine])):
                self._case(runner, engine, number, dtype)
                with self.counting:
                    self.done += 1
                    progress.show(self.done / self.total, f"{engine} {dtype}")
        finally:
            self.free.append(runner)

    def _case(self, runner: Runner, engine: str, number: int, dtype: str) -> None:
        """The choice of the list, then each implementation where it takes the problem. One that
        fails leaves the list, and the case is computed by the next."""
        for implementation in ["", *self.implementations.get(engine, [])]:
            while not (implementation and self.rows[engine, implementation].fault):
                known = len(self.left_out)
                outcome = self._run(runner, engine, number, dtype, implementation)
                if outcome.skipped:
                    return
                if not outcome.fault:
                    self._pass(engine, dtype, outcome)
                    break
                with self.blaming:
                    # Another unit may have found the culprit meanwhile.
                    again = len(self.left_out) != known
                    if not again and not self._blame(
                        runner, engine, number, dtype, implementation, outcome
                    ):
                        break

    def _run(self, runner, engine, number, dtype, implementation="", without=()) -> Outcome:
        with self.counting:
            self.count += 1
        return runner.run(engine, number, dtype, implementation, (*self.left_out, *without))

    def _pass(self, engine: str, dtype: str, outcome: Outcome) -> None:
        ran = {implementation for name, implementation in outcome.ran if name == engine}
        with self.counting:
            for implementation in ran if engine in self.implementations else [ONLY]:
                row = self.rows[engine, implementation]
                row.passed[dtype] = row.passed.get(dtype, 0) + 1

    def _blame(self, runner, engine, number, dtype, implementation, outcome) -> bool:
        """Finds the implementation whose absence mends the case, and leaves it out. False: nothing
        runs in its place, or the fault is not the engine's own."""
        details = report.details(dtype, number, outcome)
        ran = [name for family, name in outcome.ran if family == engine]
        suspects = [name for name in dict.fromkeys([implementation, *ran[::-1]]) if name in ran]
        suspects = [name for name in suspects if not self.rows[engine, name].fault]
        last = ""  # it runs though it is left out
        for name in suspects:
            left_out = (engine, name, f"{_short(outcome.fault)} (check)")
            without = self._run(runner, engine, number, dtype, "", [left_out])
            if not without.fault:
                self._fail(engine, name, outcome, details)
                self.left_out.append(left_out)
                return True
            if (engine, name) in without.ran:
                last = name
        if last:
            self.left_out.append((engine, last, f"{_short(outcome.fault)} (check)"))
        implementations = self.implementations.get(engine, [ONLY])
        name = last or next(iter(suspects), implementations[-1])
        self._fail(engine, name, outcome, details, alone=True)
        return False

    def _fail(self, engine, name, outcome, details, alone=False) -> None:
        row = self.rows[engine, name]
        row.fault = row.fault or outcome.fault
        row.alone, row.details = alone, row.details or details


def _short(fault: str) -> str:
    return " ".join(fault.split())[:160]


def main(options) -> int:
    """The command's exit status."""
    if options.forget:
        return forget(options.device)
    print(
        "Tries all kernels in processes of their own. That takes a minute or a few.",
        file=sys.stderr,
    )
    return check(options.device, options.only, options.report, options.timeout, options.processes)
