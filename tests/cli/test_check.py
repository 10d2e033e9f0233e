"""python -m torch_ocl check, and what is left out after it: with a driver some of whose kernels are
wrong, crash or hang (faulty.c), and with the real one."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

from tests.c_library import build_loader
from torch_ocl import _C
from torch_ocl.cli.check import cases, process

HERE = pathlib.Path(__file__).resolve().parent
WITH_TRIAL = {"TORCH_OCL_FIRST_USE_CHECK": "1"}


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    """The loader with faults, linked against the one that the package would take."""
    return build_loader(HERE / "faulty.c", tmp_path_factory.mktemp("faulty") / "libfaulty.so")


@pytest.fixture
def run(loader, tmp_path):
    """Runs Python with a cache of its own, and faults: their list is the first argument."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)

    def run(faults, *arguments, **environment):
        settings = {"TORCH_OCL_LOADER": loader, "FAULTY_KERNELS": faults}
        settings |= {"TORCH_OCL_CACHE_DIR": str(cache), **environment}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1]), **settings},
            capture_output=True,
            text=True,
        )

    return run


CHECK = ("-m", "torch_ocl", "check", "--device", "ocl:0", "--only", "lstm")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("wrong", "WRONG"),
        pytest.param("crash", "CRASHES", marks=pytest.mark.slow),
        pytest.param("hang", "HANGS", marks=pytest.mark.slow),
    ],
)
def test_a_failing_kernel_is_left_out(run, tmp_path, fault, said):
    """The next of the list runs, in the check and in other programs."""
    faults = f"lstm_step={fault}"
    done = run(faults, *CHECK, "--timeout", "30")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"\| lstm \| fused \| .*\| {said}, left out \|", done.stdout), done.stdout
    assert re.search(r"\| lstm \| cells \| float32 \| right in \d+ cases \|", done.stdout)
    report = (tmp_path / "torch_ocl_check_0.md").read_text()
    for part in ("rnn/lstm_steps.cl -cl-std", "## Environment", torch.__version__):
        assert part in report, report
    script = """
import torch, torch_ocl.testing as testing
torch.manual_seed(0)
layer, x = torch.nn.LSTM(5, 32), torch.randn(4, 3, 5)
expected = layer(x)[0]
with testing.dispatches() as lines:
    actual = layer.to("ocl")(x.to("ocl"))[0].cpu()
torch.testing.assert_close(actual, expected)
print(*(line.split(": ", 1)[1] for line in lines if line.startswith("lstm")), sep="\\n")
"""
    said = run(faults, "-c", script)
    assert said.returncode == 0, said.stderr
    assert re.search(r"fused refuses: .* \(check\)\n", said.stdout) and "cells runs" in said.stdout
    assert "fused runs" in run("", "-c", script, TORCH_OCL_QUARANTINE="0").stdout
    assert "removed" in run("", "-m", "torch_ocl", "check", "--forget").stdout
    assert "fused runs" in run("", "-c", script).stdout
    assert "there was no" in run("", "-m", "torch_ocl", "check", "--forget").stdout


@pytest.mark.slow
def test_a_later_check_takes_back_what_is_right(run):
    assert run("lstm_step=wrong", *CHECK).returncode == 1
    assert run("", *CHECK).returncode == 0
    assert "right" in run("", *CHECK).stdout


@pytest.mark.parametrize(
    ("program", "answers"),
    [
        ("for _ in range(8): time.sleep(.25); print(file=said, flush=True)\nprint()", True),
        ("time.sleep(9)", False),
        ("while True: time.sleep(.25); print(file=said, flush=True)", False),
    ],
    ids=["builds", "silent", "endless"],
)
def test_builds_and_launches_are_signs_of_life(monkeypatch, program, answers):
    """A case hangs that says nothing for so long, or never ends."""
    monkeypatch.setattr(process, "_LIVELY", 4)
    runner = process.Runner("ocl:0", 1)
    script = f"import sys, time\nsaid = open(sys.argv[1], 'a')\n{program}"
    command = [sys.executable, "-c", script, runner._said.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert runner._answers(child, 1) is answers
        child.kill()
    runner.close()


def test_an_unknown_family_is_refused(run):
    done = run("", "-m", "torch_ocl", "check", "--only", "gem")
    assert done.returncode == 1 and "no family is called gem; there are: pointwise" in done.stderr


def test_first_use_leaves_out_a_wrong_kernel(run):
    """Attention that writes nothing, as where local memory had the size 0."""
    faults = "attention_forward=wrong,attention_lanes=wrong"
    script = "import torch; print(torch.ones(3, device='ocl').sum().item())"
    done = run(faults, "-c", script, **WITH_TRIAL)
    assert done.stdout == "3.0\n" and done.returncode == 0, done.stderr
    assert "attention's kernel" in done.stderr and "is left out from now on" in done.stderr


def test_first_use_is_silent_where_all_is_right(run):
    script = "import torch; print(torch.ones(3, device='ocl').sum().item())"
    done = run("", "-c", script, **WITH_TRIAL)
    assert (done.stdout, done.stderr) == ("3.0\n", "")


def test_every_engine_has_cases():
    """Torchvision's gradients need its compiled part, which may be missing."""
    assert set(_C.engines()) - {"backward_vision"} <= set(cases.cases())


def test_judges_compute_every_case():
    for engine, calls in cases.cases().items():
        for call in calls:
            assert cases.compute(call, "float32", None), engine


def test_differences_are_found():
    right = [torch.tensor([1.0, 2.0]), torch.tensor([3])]
    assert cases.difference(right, [t.clone() for t in right], "float32") == ""
    for wrong in ([1.0, 2.01], [1.0, torch.nan]):
        assert cases.difference([torch.tensor(wrong), right[1]], right, "float32")
    assert cases.difference([right[0], torch.tensor([4])], right, "float32")
