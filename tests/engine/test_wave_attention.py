"""Attention by AMD's matrix instructions, on a device that has none: functions over work-items do
what each instruction is documented to do. No such GPU has run it yet."""

import pytest

from tests import waves
from tests.ops import attention_kernels as kernels
from tests.waves import FLUSHED, changed_kernels

HALVES = "float16,bfloat16"
CHECKS = [
    kernels.check_shapes,
    kernels.check_gradients,
    kernels.check_shapes_of_gradients,
    kernels.check_masks,
    kernels.check_special_rows,
    kernels.check_layouts,
    kernels.check_many_keys,
    kernels.check_dropout,
    kernels.check_modification,
]


def run(target, calls, dtypes, **environment):
    return waves.run(target, calls, dtypes, TORCH_OCL_ATTENTION="wave_matrix", **environment)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "target, dtypes",
    [
        ("gfx1100", "bfloat16"),
        ("gfx942", "float16"),
        pytest.param("gfx1100", "float16", marks=pytest.mark.slow),
        pytest.param("gfx1201", HALVES, marks=pytest.mark.slow),
        pytest.param("gfx908", HALVES, marks=pytest.mark.slow),
        pytest.param("gfx90a", HALVES, marks=pytest.mark.slow),
    ],
)
def test_every_kind(target, dtypes, check):
    trace = run(target, [check], dtypes)
    # gfx908 has half of gfx90a's registers: gradients of wide heads with a mask are another's.
    few = target == "gfx908" and check is kernels.check_shapes_of_gradients
    assert ": wave_matrix runs" in trace and (": wave_matrix refuses" in trace) == few


@pytest.mark.parametrize("target, dtypes", [("gfx1201", "bfloat16"), ("gfx908", "bfloat16")])
def test_as_gpus_choose_it(target, dtypes):
    """Behind NVIDIA's, before tiles in local memory."""
    calls = [kernels.check_gradients, kernels.check_many_keys]
    trace = waves.run(target, calls, dtypes, TORCH_OCL_TUNE_AS="gpu")
    assert ": wave_matrix runs" in trace and ": local runs" not in trace
    assert "attention backward" in trace


@pytest.mark.slow
def test_halves_that_are_multiplied_as_floats(tmp_path):
    """Where instructions take subnormal halves for 0."""
    environment = changed_kernels(tmp_path, *FLUSHED)
    calls = [kernels.check_shapes, kernels.check_gradients, kernels.check_masks]
    calls += [kernels.check_layouts]
    assert ": wave_matrix runs" in run("gfx90a", calls, "float16", **environment)


REFUSED = [
    ("gfx1030", "float16", "the device's waves don't multiply by their own sums"),
    ("gfx1030", "bfloat16", "the device's waves have no instructions for that type"),
    ("gfx1100", "float32", "no half type"),
    ("none", "float16", "the device has none of AMD's processors that are known"),
]


@pytest.mark.parametrize("target, dtype, reason", REFUSED)
def test_they_say_why_not(target, dtype, reason):
    trace = run(target, [kernels.check_layouts], dtype)
    assert f": wave_matrix refuses: {reason}" in trace


@pytest.mark.parametrize("target", ["gfx1100", "gfx942"])
def test_wrong_numbers_are_noticed(tmp_path, target):
    """A device whose work-items don't have the sums that they were taken for goes without."""
    pattern = r"#define LINE_OF\(n\) \((.*)\)"
    environment = changed_kernels(
        tmp_path, pattern, r"#define LINE_OF(n) ((\1) ^ 1)", "gemm/fragments/chained.clh"
    )
    trace = run(target, [kernels.check_layouts], "float16", **environment)
    assert ": wave_matrix refuses: the device's waves don't multiply by their own sums" in trace
    assert ": wave_matrix runs" not in trace
