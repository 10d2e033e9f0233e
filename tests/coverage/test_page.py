"""docs/reference/op-coverage.json holds what the op matrix finds, without running all of it."""

import pytest

from tests.coverage import __main__ as command
from tests.coverage import gaps, results

KNOWN = gaps.load()
RUNTIMES = results.load()


def found_gaps(part):
    return {
        (op, dtype)
        for op, dtypes in part["ops"].items()
        for dtype, (verdict, _) in dtypes.items()
        if verdict.startswith("gap")
    }


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_gaps_are_the_known_ones(runtime):
    """The matrix passes but for known_gaps.yaml: any other gap of the page is closed."""
    found = found_gaps(RUNTIMES[runtime])
    stale = {case for case in found if gaps.reason(KNOWN, *case) is None}
    assert not stale, "run: python -m tests.coverage --only gaps, and make docs"
    listed = {(op, dtype) for op, entry in KNOWN.items() for dtype in entry if dtype != "errors"}
    for op, dtype in listed:
        assert any(op == o and dtype in (d, "all") for o, d in found), f"{op} {dtype}: not shown"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_op_has_its_dtypes(runtime):
    ops = RUNTIMES[runtime]["ops"]
    found = {(op, dtype) for op, dtypes in ops.items() for dtype in dtypes}
    cases = command.cases(command.DTYPES.split(","), "")
    wanted = {(case["op"], case["dtype"]) for case in cases}
    assert found == wanted, "run: python -m tests.coverage --only new, and make docs"
