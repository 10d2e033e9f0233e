"""Tries all faults of scenarios, and counts what came of them.

A fault is raised (a Python exception names the call), absorbed (the results are right), or it did
not come up, since the calls of two runs aren't quite the same. All else is a defect: an exception
that doesn't name the call, wrong results, a next step that isn't right, a leak, a use of what was
released, a hang, the end of the process."""

import collections
import dataclasses
import importlib
import json
import os
import pathlib
import tempfile

from tests.faults import inject, proxy
from tests.faults.inject import Fault, drawn, faults_of
from tests.fresh import run_script

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "faults"
_CODE = "from tests.faults import inject; inject.main()"


@dataclasses.dataclass
class Defect:
    scenario: str
    fault: str
    what: list
    text: str

    def __str__(self):
        return f"{self.scenario}, {self.fault}: {'; '.join(self.what)}"


class Report:
    """Counts by scenario, and the defects."""

    def __init__(self):
        self.counts = collections.defaultdict(collections.Counter)
        self.defects = []

    def add(self, scenario, fault, outcome):
        counts = self.counts[scenario]
        what = list(outcome["wrong"])
        if "error" in outcome and not outcome["named"]:
            what.append("the exception names no call: " + outcome["error"].splitlines()[-1])
        if what:
            self.defects.append(Defect(scenario, fault.plan(), what, _text(outcome)))
            counts["defects"] += 1
        elif not outcome["struck"]:
            counts["not come up"] += 1
            return
        else:
            counts["raised" if "error" in outcome else "absorbed"] += 1
        counts["injected"] += 1

    def add_death(self, scenario, fault, done):
        hung = "Timeout (" in done.stderr
        what = "hung" if hung else f"the process ended with {done.returncode}"
        self.defects.append(Defect(scenario, fault.plan(), [what], done.stderr[-6000:]))
        self.counts[scenario].update({"defects": 1, "injected": 1})

    def table(self):
        words = ("injected", "raised", "absorbed", "defects", "not come up")
        total = sum(self.counts.values(), collections.Counter())
        lines = [f"{'':26}" + "".join(f"{word:>12}" for word in words)]
        for name, counts in (*self.counts.items(), ("total", total)):
            lines.append(f"{name:26}" + "".join(f"{counts[word]:12}" for word in words))
        return "\n".join(lines)


def _text(outcome):
    parts = [outcome.get("error"), outcome.get("next"), "\n".join(outcome.get("objects", []))]
    return "\n".join(part for part in parts if part)


class Runner:
    """Processes that try the faults of scenarios, one at a time.

    Args:
        share: One fault in so many is tried.
        seed: Chooses which.
        say: Is told what happens.
        module: Has the scenarios.
    """

    def __init__(self, share=1, seed="", say=lambda text: None, module="tests.faults.scenarios"):
        self.report = Report()
        self._share, self._seed, self._say = share, seed, say
        self._module = module
        self._loader = proxy.build(FOLDER)

    def run(self, name, faults=None):
        """Tries a scenario's, or those that are given."""
        given = None if faults is None else [dataclasses.astuple(fault) for fault in faults]
        if self._scenario(name).starts:
            self._run_first_steps(name, given)
        else:
            self._run_steps(name, given)
        self._say(f"{name}: {dict(self.report.counts[name])}")

    def _scenario(self, name):
        return importlib.import_module(self._module).ALL[name]

    def _process(self, name, faults, held=None):
        """The lines that a process left, and how it ended."""
        environment = {
            "TORCH_OCL_NOTICES": "0",
            "TORCH_OCL_CACHE_DIR": str(FOLDER / "cache"),
            **os.environ,
            **self._scenario(name).environment,
            "TORCH_OCL_LOADER": self._loader,
        }
        request = {
            "module": self._module,
            "scenario": name,
            "faults": faults,
            "held": held,
            "share": self._share,
            "seed": self._seed,
            "limit": inject.LIMIT,
        }
        with tempfile.TemporaryDirectory() as folder:
            asked, results = pathlib.Path(folder, "request"), pathlib.Path(folder, "results")
            asked.write_text(json.dumps(request))
            results.touch()
            arguments = (str(asked), str(results))
            done = run_script(_CODE, *arguments, environment=environment, cwd=ROOT)
            return list(map(json.loads, results.read_text().splitlines())), done

    def _take(self, name, lines, done):
        """Notes outcomes; the number of faults that were begun with."""
        begun = 0
        fault = None
        for line in lines:
            if "begin" in line:
                fault, begun = Fault(*line["begin"]), begun + 1
            if "end" in line:
                self._note(name, fault, line["end"])
                fault = None
        if {"done": True} not in lines or done.returncode != 0:
            if begun == 0:
                raise RuntimeError(f"{name} without a fault: {done.stderr}")
            # One that ended behind the last fault's step ends as the process does.
            self.report.add_death(name, fault or Fault("exit", "1", "after", 0), done)
            self._say(str(self.report.defects[-1]))
        return begun

    def _note(self, name, fault, outcome):
        before = len(self.report.defects)
        self.report.add(name, fault, outcome)
        for defect in self.report.defects[before:]:
            self._say(str(defect))

    def _run_steps(self, name, faults):
        lines, done = self._process(name, faults)
        if faults is None:
            faults = next((line["faults"] for line in lines if "faults" in line), [])
        while True:
            faults = faults[max(1, self._take(name, lines, done)) :]
            if not faults:
                return
            lines, done = self._process(name, faults)

    def _run_first_steps(self, name, faults):
        lines, done = self._process(name, None)
        self._take(name, lines, done)
        if faults is None:
            every = faults_of(lines[0]["calls"])
            chosen = (name, self._share, self._seed)
            faults = [dataclasses.astuple(fault) for fault in every if drawn(fault, *chosen)]
        for fault in faults:
            self._take(name, *self._process(name, [fault], lines[0]["held"]))
