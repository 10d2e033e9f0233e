"""The tool's words on an op under torch.compile, and what it keeps."""

import pytest
import torch

from tests.coverage import scope
from tests.coverage.compiled import __main__ as command
from tests.coverage.compiled import checks, results
from torch_ocl.inductor.call import runtime
from torch_ocl.inductor.collect import ops

OPS = {scope.full_name(op): op for op in scope.in_scope()}


def end_of(name, dtype=torch.float32):
    with torch._inductor.config.patch(force_disable_caches=True):
        return checks.check(OPS[name], dtype, 1)[0]


def test_ends_of_ops():
    assert end_of("sin") == "pass"
    assert end_of("equal") == "breaks"


def test_what_is_more_accurate_passes():
    """Its eager op rounds a hyperbolic tangent before it subtracts."""
    assert end_of("nn.functional.tanhshrink", torch.bfloat16) == "pass"


@pytest.fixture
def without_cpu(monkeypatch):
    """CPU torch's inductor takes half a minute to start its compiler."""
    monkeypatch.setattr(checks, "_blame", lambda end, why, op, sample: (end, why))


def test_wrong_results_are_found(monkeypatch, without_cpu):
    monkeypatch.setattr(ops.Overrides, "sin", staticmethod(ops.Overrides.cos))
    assert end_of("sin") == "wrong"
    assert end_of("sin", torch.bfloat16) == "wrong"


def test_errors_are_found(monkeypatch, without_cpu):
    def build(device, text, label):
        raise RuntimeError("refused")

    monkeypatch.setattr(runtime, "build", build)
    assert end_of("sin") == "gap"


def test_verdicts():
    assert results.verdict({"end": "pass", "why": "", "kernels": 2}) == ["pass", 2]
    assert results.verdict({"end": "gap", "why": "a|b", "kernels": 0}) == ["gap: a/b", 0]
    died = {"passed": False, "error": "crash (exit code -11)"}
    assert results.verdict(died) == ["gap: crash (exit code -11)", 0]


def test_counts_and_merging():
    old = {"a": {"about": {"samples": 1}, "ops": {"sin": {"bool": ["pass", 1], "int64": ["x", 0]}}}}
    new = {"a": {"about": {"samples": 2}, "ops": {"sin": {"bool": ["gap: y", 0]}}}}
    merged = results.merge(old, new)
    assert merged["a"]["about"] == {"samples": 2}
    assert merged["a"]["ops"]["sin"] == {"bool": ["gap: y", 0], "int64": ["x", 0]}
    count, generated = results.counts(merged["a"]["ops"], "bool")
    assert (count["gap"], count["pass"], generated) == (1, 0, 0)


@pytest.mark.parametrize(
    "entry, only, wanted",
    [
        (None, "new", True),
        (None, "failed", False),
        (["pass", 1], None, True),
        (["pass", 1], "new", False),
        (["pass", 1], "failed", False),
        (["upstream: x", 1], "failed", True),
        (["breaks: x", 1], "breaks", True),
    ],
)
def test_which_cases_are_wanted(entry, only, wanted):
    part = {"ops": {"sin": {"bool": entry}} if entry else {}}
    assert command.is_wanted(("sin", "bool"), part, only) == wanted
