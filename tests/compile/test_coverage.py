"""The table of docs/reference/compile-coverage.md holds: some of its ops, compiled once more.

`make coverage-compile` runs all of them.
"""

import pytest

from tests.coverage import results as files
from tests.coverage.compiled import results
from tests.coverage.runner import Runner

TABLE = files.load(results.DOCUMENTED)
#: One op in so many of those that pass, by dtype.
STEP = {"float32": 48, "bfloat16": 100, "int64": 120}
#: And so many of those that fail: one that passes is to be written down as such.
FAILURES = 3


def chosen():
    ops = TABLE["Intel(R) OpenCL"]["ops"]
    for dtype, step in STEP.items():
        passing = [op for op, e in ops.items() if dtype in e and kind(ops, op, dtype) == "pass"]
        failing = [op for op, e in ops.items() if dtype in e and is_failure(ops, op, dtype)]
        yield from ((op, dtype) for op in passing[::step] + failing[:FAILURES])


def kind(ops, op, dtype):
    return results.kind(ops[op][dtype])


def is_failure(ops, op, dtype):
    return kind(ops, op, dtype) in results.FAILING


@pytest.fixture(scope="module")
def runner():
    runner = Runner(worker="tests.coverage.compiled.worker")
    yield runner
    runner.close()


@pytest.mark.parametrize("op, dtype", list(chosen()))
def test_as_the_table_says(runner, op, dtype):
    # A runtime that has no part in the table is held to Intel's.
    ops = TABLE.get(results.runtime(), TABLE["Intel(R) OpenCL"])["ops"]
    documented = ops.get(op, {}).get(dtype, ["pass"])[0]
    found = results.verdict(runner.run(op, dtype, 1))[0]
    assert results.kind([found]) == results.kind([documented]), f"{found}; before: {documented}"


def test_nothing_is_wrong():
    """No op of the table gives other results than the eager one."""
    wrong = [
        (runtime, op, dtype)
        for runtime, part in TABLE.items()
        for op, dtypes in part["ops"].items()
        for dtype, entry in dtypes.items()
        if results.kind(entry) == "wrong"
    ]
    assert not wrong
