"""python -m torch_ocl tune: what it prefers, what it keeps, and that programs use it."""

import os
import subprocess
import sys

import pytest
import torch

from torch_ocl.cli import tune
from torch_ocl.cli.tune import knobs, worker, workloads

INF = float("inf")


def test_other_values_have_to_be_clearly_faster():
    now = {"a": 1.0, "b": 2.0}
    assert knobs.better({4: now, 8: {"a": 0.98, "b": 1.97}}, 4) == 4
    assert knobs.better({4: now, 8: {"a": 0.9, "b": 1.9}, 2: {"a": 0.8, "b": 1.9}}, 4) == 2
    assert knobs.better({4: now, 8: {"a": 0.1, "b": 2.2}}, 4) == 4  # b is too slow
    assert knobs.better({4: now}, 4) == 4


def test_candidates_stay_whole():
    assert knobs.Knob("x", ()).candidates(1) == [2]
    assert knobs.Knob("x", (), (0.3, 3)).candidates(0.9e6) == [0.3 * 0.9e6, 3 * 0.9e6]
    assert knobs.Knob("x", (), values=(1, 2)).candidates(2) == [1]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_every_knob_is_a_constant_with_work(kind):
    constants = torch.ocl.tunable.get_constants()
    for knob in knobs.knobs(kind):
        assert knob.name in constants and knob.work
        assert set(knob.work) <= set(workloads.WORKLOADS)


class _Timed(worker._Worker):
    """Times are given, and nothing is set."""

    def __init__(self, seconds_of):
        super().__init__("ocl", 60, None)
        self.seconds_of, self.value, self.said = seconds_of, {}, []

    def say(self, **what):
        self.said.append(what)

    def call(self, work):
        return work

    def set(self, name, value):
        self.value[name] = value
        return value != 13

    def least(self, call):
        return self.seconds_of(self.value, call)


def test_a_constant_is_found():
    def seconds(values, work):
        return 0.5 if values.get("scan.items") == 4 and work == "scan" else 1.0

    timed = _Timed(seconds)
    timed.kind = "gpu"
    timed.constants()
    found = {each["constant"]: each["value"] for each in timed.said if "constant" in each}
    assert found == {"scan.items": 4} and timed.value["scan.items"] == 4
    others = torch.ocl.tunable.get_constants()
    assert all(timed.value[name] == others[name] for name in timed.value if name != "scan.items")


def test_what_is_fast_once_is_not_kept():
    calls = iter(range(10**6))
    timed = _Timed(lambda values, work: 0.5 if values["scan.items"] == 4 and next(calls) < 3 else 1)
    knob = next(knob for knob in knobs.knobs("gpu") if knob.name == "scan.items")
    assert timed.best_of(knob, 8, [4, 13]) == 4 and timed.value["scan.items"] == 8
    assert timed.best_of(knob, 8, [4]) == 8


@pytest.fixture
def run(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)

    def run(*arguments, **environment):
        settings = {"TORCH_OCL_CACHE_DIR": str(cache), **environment}
        unset = {"TORCH_OCL_TUNABLE"}
        kept = {k: v for k, v in os.environ.items() if k not in unset}
        command = [sys.executable, *arguments]
        return subprocess.run(command, env={**kept, **settings}, capture_output=True, text=True)

    return run


USES = """
import torch
tunable = torch.ocl.tunable
print(tunable.is_enabled(), tunable.tuning_is_enabled(), int(tunable.get_constants()["row_group"]))
"""


@pytest.mark.slow
def test_results_count_from_then_on(run, monkeypatch, tmp_path):
    """A search of which the findings are given; programs use its constants until --forget."""
    script = """
import os, sys
import torch
from torch_ocl.cli import tune

def search(device, seconds, file):
    torch.ocl.tunable.enable()
    torch.ocl.tunable.set_constant("row_group", 32)
    torch.ocl.tunable.set_constant("element_group", 128)
    assert torch.ocl.tunable.write_file(file)
    times = {"elements": (1.0, float(sys.argv[1]))}
    return tune.Findings({"row_group": 32.0}, {}, times)

tune._search = search
sys.exit(tune.tune("ocl", 1, True))
"""
    slower = run("-c", script, "1.5", TORCH_OCL_TUNABLE_FILENAME="")
    assert slower.returncode == 0, slower.stderr
    assert "nothing was kept" in slower.stdout
    run("-m", "torch_ocl", "tune", "--forget")
    assert run("-c", USES).stdout.startswith("False True")
    done = run("-c", script, "0.5")
    assert done.returncode == 0, done.stderr
    assert "| elements | 1000.000 | 500.000 | 0.50 |" in done.stdout
    assert "row.row_group = 32;" in done.stdout and "use it from now on" in done.stdout
    assert run("-c", USES).stdout == "True False 32\n"
    assert run("-c", USES, TORCH_OCL_TUNABLE="0").stdout.startswith("False True")
    assert "removed" in run("-m", "torch_ocl", "tune", "--forget").stdout
    assert run("-c", USES).stdout.startswith("False True")
    assert "nothing was tuned" in run("-m", "torch_ocl", "tune", "--forget").stdout


@pytest.mark.parametrize("tune_as", ["cpu", pytest.param("gpu", marks=pytest.mark.slow)])
def test_it_runs(run, tune_as):
    """A few seconds suffice for a table."""
    done = run("-m", "torch_ocl", "tune", "--seconds", "2", TORCH_OCL_TUNE_AS=tune_as)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| elements |" in done.stdout and "geometric mean of" in done.stdout
    assert tune_as == "cpu" or "measured: launch_cost is " in done.stdout


def test_without_a_cache_it_says_so(run):
    done = run("-m", "torch_ocl", "tune", TORCH_OCL_CACHE="0")
    assert done.returncode == 1 and "cache's folder" in done.stderr


def test_a_search_that_crashes_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    findings = tune._search("ocl:0", 1, str(tmp_path / "file"))
    assert findings.fault.startswith("the search ended with exit status 1")
