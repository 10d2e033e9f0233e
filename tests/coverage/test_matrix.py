"""The op matrix: every OpInfo of the op table and dtype against CPU torch."""

import os

import pytest
import torch
from tests.coverage import checks, gaps, scope

LIMIT = int(os.environ.get("TORCH_OCL_COVERAGE_SAMPLES", "5"))
GAPS = gaps.load()
CASES = [(op, dtype) for op in scope.in_scope() for dtype in scope.supported_dtypes(op)]


def case_id(case):
    op, dtype = case
    return f"{scope.full_name(op)}-{str(dtype).removeprefix('torch.')}"


def run_strict(name, dtype_name, function):
    """Runs; a known gap must fail, anything else must pass."""
    known = gaps.reason(GAPS, name, dtype_name)
    if known is None:
        function()
        return
    try:
        function()
    except Exception:  # noqa: BLE001 - how a gap fails does not matter
        return
    pytest.fail(f"{name} {dtype_name} passes but is listed as a known gap: {known}")


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_op(case):
    op, dtype = case
    if dtype == torch.float64 and not torch.ocl.get_device_properties(0).has_fp64:
        return

    def run():
        looked_at = {name: check(op, dtype, LIMIT) for name, check in checks.CHECKS.items()}
        assert sum(looked_at.values()) > 0, "no sample was checked"

    run_strict(scope.full_name(op), str(dtype).removeprefix("torch."), run)


ERROR_OPS = [op for op in scope.in_scope() if op.error_inputs_func is not None]


@pytest.mark.parametrize("op", ERROR_OPS, ids=scope.full_name)
def test_errors(op):
    run_strict(scope.full_name(op), "errors", lambda: checks.check_errors(op, 40))
