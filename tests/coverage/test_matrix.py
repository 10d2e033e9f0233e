"""The op matrix: every OpInfo against CPU torch, with some dtypes and samples.

`make coverage` runs all of it.
"""

import os

import pytest
import torch

from tests.coverage import gaps, scope
from tests.coverage.runner import Runner

#: Samples of an OpInfo that each check looks at; the whole list takes hours to compile for.
LIMIT = int(os.environ.get("TORCH_OCL_COVERAGE_SAMPLES", "1"))
#: With fewer samples a known gap may not show.
GAP_LIMIT = 3
GAPS = gaps.load()


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


CASES = [
    (scope.full_name(op), dtype_name(dtype))
    for op in scope.in_scope()
    for dtype in scope.supported_dtypes(op)
]
ERROR_CASES = [scope.full_name(op) for op in scope.in_scope() if op.error_inputs_func is not None]


@pytest.fixture(scope="session")
def runner():
    runner = Runner()
    yield runner
    runner.close()


def run_strict(runner, name, dtype, limit):
    """Runs one case; a known gap must fail, anything else must pass."""
    known = gaps.reason(GAPS, name, dtype or "errors")
    result = runner.run(name, dtype, limit if known is None else max(limit, GAP_LIMIT))
    if known is not None:
        if result["passed"]:
            pytest.fail(f"{name} {dtype} passes but is listed as a known gap: {known}")
        return
    if not result["passed"]:
        pytest.fail(f"{result['error']}\n{result['traceback']}", pytrace=False)
    assert not result["fallbacks"], f"ran on the CPU: {result['fallbacks']}"
    assert dtype is None or sum(result["looked_at"].values()) > 0, "no sample was checked"


@pytest.mark.whole
@pytest.mark.parametrize("name, dtype", CASES, ids=[f"{n}-{d}" for n, d in CASES])
def test_op(runner, name, dtype):
    if dtype == "float64" and not torch.ocl.get_device_properties(0).has_fp64:
        pytest.skip("this device has no double precision")
    run_strict(runner, name, dtype, LIMIT)


@pytest.mark.parametrize("name", ERROR_CASES)
def test_errors(runner, name):
    run_strict(runner, name, None, LIMIT)
