"""The examples train on the device as on the CPU, and are plain PyTorch."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = ("mlp_regression", "diabetes", "digits", "digits_cnn", "characters")


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_demo_agrees_with_the_cpu(name: str, tmp_path: Path) -> None:
    output = run("demo.py", "--only", name, "--out", str(tmp_path))
    assert "nothing fell back to the CPU" in output
    assert (tmp_path / f"{name}.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name, device", [*((name, "ocl") for name in SCRIPTS), ("digits", "cpu")])
def test_script_runs_alone(name: str, device: str) -> None:
    output = run(f"{name}.py", "--device", device, "--epochs", "2")
    first, last = map(float, re.search(r"loss (\S+) -> (\S+)", output).groups())
    assert 0 < last < first


def test_no_example_imports_torch_ocl() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert not re.search(r"^\s*(import|from) torch_ocl", path.read_text(), re.MULTILINE), path


def test_demo_fails_when_the_losses_disagree(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import torch

    import demo
    from training import Record

    losses = {"cpu": [1.0, 0.5], "meta": [1.0, 0.6]}

    class Fake:
        __doc__ = "An example whose losses depend on the device."

        @staticmethod
        def run(device, on_step):
            return Record(losses[device], 0.0)

    monkeypatch.setitem(demo.EXAMPLES, "fake", demo.Example(Fake))
    monkeypatch.setattr(demo, "fallback_counts", lambda device: {})
    monkeypatch.setattr(demo, "device_name", str)
    assert demo.compare("fake", torch.device("cpu"), tmp_path)[0] == []
    assert "disagree" in demo.compare("fake", torch.device("meta"), tmp_path)[0][0]
    losses["meta"] = [1.0, float("nan")]
    assert "disagree" in demo.compare("fake", torch.device("meta"), tmp_path)[0][0]


def test_demo_fails_when_an_op_falls_back(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import torch

    import demo
    from training import Record

    class Fake:
        @staticmethod
        def run(device, on_step):
            return Record([1.0], 0.0)

    counts = iter(({"aten::add": 1}, {"aten::add": 1, "aten::mul": 2}))
    monkeypatch.setitem(demo.EXAMPLES, "fake", demo.Example(Fake))
    monkeypatch.setattr(demo, "fallback_counts", lambda device: next(counts))
    problems, row = demo.compare("fake", torch.device("cpu"), tmp_path)
    assert row.startswith("| fake | 1 |")
    assert problems == ["fake: ran on the CPU instead: {'aten::mul': 2}"]
