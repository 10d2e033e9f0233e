"""`python -m torch_ocl check`: every implementation of every engine on a device against the CPU.

What is wrong, crashes or hangs is left out of the engines' lists from then on, by a file in the
cache's folder, until a check finds it right or `--forget` removes the file."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from torch_ocl import _C
from torch_ocl.cli.check import cases, report
from torch_ocl.cli.check.process import LeftOut, Outcome, Runner

#: The form of kernels that are the only ones for their op.
ONLY = "the only one"


@dataclass
class Row:
    """The findings about one implementation."""

    engine: str
    form: str
    passed: dict[str, int] = field(default_factory=dict)  # cases by dtype
    fault: str = ""
    alone: bool = False  # it fails, and nothing runs in its place
    details: str = ""


def forget(device: str) -> int:
    """Removes what is known of the device's kernels. Returns the exit status, which is 0."""
    gone = _C.forget_left_out_forms(_index(device))
    print(f"{'removed' if gone else 'there was no'} list of failing kernels of {device}")
    return 0


def check(device: str, only: Sequence[str], path: str, timeout: float) -> int:
    """Tries the kernels, prints a table and writes the report. Returns 1 where one fails."""
    index = _index(device)
    device = f"ocl:{index}"
    everything = cases.cases()
    unknown = sorted(set(only) - set(everything))
    if unknown:
        raise ValueError(f"no family is called {unknown[0]}; there are: {', '.join(everything)}")
    start = time.monotonic()
    run = _Check(device, index, timeout, [e for e in everything if not only or e in only])
    try:
        rows = run.all()
    finally:
        run.runner.close()
    kept = _keep(index, run, only)
    seconds = time.monotonic() - start
    text = report.table(rows)
    print(text)
    failing = [row for row in rows if row.fault]
    tried = sum(bool(row.passed or row.fault) for row in rows)
    print(f"\n{run.count} cases, {tried} kernels tried, {len(failing)} fail; {seconds:.0f} s")
    for row in failing:
        print(f"  {row.engine} {row.form}: {row.fault}")
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
    others = [form for form in _C.left_out_forms(index) if only and form[0] not in only]
    _C.set_left_out_forms(index, [*others, *run.left_out])
    reason = _C.keep_left_out_forms(index, "check")
    if reason:
        return f"They can't be left out by other programs: {reason}."
    where = _C.quarantine_file(index)
    return f"They are left out from now on ({where}; --forget removes it)."


class _Check:
    def __init__(self, device: str, index: int, timeout: float, engines: list[str]) -> None:
        self.runner = Runner(device, timeout)
        self.cases, self.engines = cases.cases(), engines
        self.forms = _C.engines()
        self.fp64 = torch.ocl.get_device_properties(index).has_fp64
        self.left_out: list[LeftOut] = []
        self.rows: dict[tuple[str, str], Row] = {}
        self.count = self.done = 0
        self.total = sum(
            len(self.cases[engine]) * len(cases.dtypes_of(engine, self.fp64)) for engine in engines
        )

    def all(self) -> list[Row]:
        for engine in self.engines:
            for form in self.forms.get(engine, [ONLY]):
                self.rows[engine, form] = Row(engine, form)
            for dtype in cases.dtypes_of(engine, self.fp64):
                for number in range(len(self.cases[engine])):
                    self._case(engine, number, dtype)
                    self.done += 1
                    report.progress(self.done / self.total, f"{engine} {dtype}")
        report.progress(1, "")
        return list(self.rows.values())

    def _case(self, engine: str, number: int, dtype: str) -> None:
        """The choice of the list, then each form where it takes the problem. One that fails leaves
        the list, and the case is computed by the next."""
        for form in ["", *self.forms.get(engine, [])]:
            while not (form and self.rows[engine, form].fault):
                outcome = self._run(engine, number, dtype, form)
                if outcome.skipped:
                    return
                if not outcome.fault:
                    self._pass(engine, dtype, outcome)
                    break
                if not self._blame(engine, number, dtype, form, outcome):
                    break

    def _run(self, engine, number, dtype, form="", without=()) -> Outcome:
        self.count += 1
        return self.runner.run(engine, number, dtype, form, (*self.left_out, *without))

    def _pass(self, engine: str, dtype: str, outcome: Outcome) -> None:
        ran = {form for name, form in outcome.ran if name == engine}
        for form in ran if engine in self.forms else [ONLY]:
            row = self.rows[engine, form]
            row.passed[dtype] = row.passed.get(dtype, 0) + 1

    def _blame(self, engine, number, dtype, form, outcome) -> bool:
        """Finds the implementation whose absence mends the case, and leaves it out. False: nothing
        runs in its place, or the fault is not the engine's own."""
        details = report.details(dtype, number, outcome)
        ran = [name for family, name in outcome.ran if family == engine]
        suspects = [name for name in dict.fromkeys([form, *ran[::-1]]) if name in ran]
        suspects = [name for name in suspects if not self.rows[engine, name].fault]
        last = ""  # it runs though it is left out
        for name in suspects:
            left_out = (engine, name, f"{_short(outcome.fault)} (check)")
            without = self._run(engine, number, dtype, "", [left_out])
            if not without.fault:
                self._fail(engine, name, outcome, details)
                self.left_out.append(left_out)
                return True
            if (engine, name) in without.ran:
                last = name
        if last:
            self.left_out.append((engine, last, f"{_short(outcome.fault)} (check)"))
        forms = self.forms.get(engine, [ONLY])
        name = last or next(iter(suspects), forms[-1])
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
        "Tries all kernels in a process of its own. That takes a minute or a few.", file=sys.stderr
    )
    return check(options.device, options.only, options.report, options.timeout)
