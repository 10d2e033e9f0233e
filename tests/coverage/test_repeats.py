"""torch.use_deterministic_algorithms(True) holds for every op: results repeat to the bit."""

import pytest
import torch

from tests.coverage import scope
from tests.coverage.repeats import Repeats, of_call
from tests.coverage.runner import Runner

#: They write several values to one place, and raise on the CPU, too.
REFUSED = {
    "nn.functional.max_unpool1d",
    "nn.functional.max_unpool2d",
    "nn.functional.max_unpool3d",
    "put",
}


def test_differences_are_seen():
    results = iter(torch.arange(9.0, device="ocl"))
    assert not of_call(lambda: next(results)).repeats
    assert of_call(lambda: torch.ones(3, device="ocl") * 2) == Repeats()

    def otherwise():
        x = torch.ones(3, device="ocl")
        return x.sin() if torch.are_deterministic_algorithms_enabled() else x * 2

    assert of_call(otherwise) == Repeats(others=True)


@pytest.fixture(scope="module")
def runner():
    runner = Runner(worker="tests.coverage.repeats")
    yield runner
    runner.close()


@pytest.mark.parametrize("name", [scope.full_name(op) for op in scope.in_scope()])
def test_op(runner, name):
    result = runner.run(name, None, 0)
    if not result.pop("passed"):
        pytest.fail(f"{result['error']}\n{result['traceback']}", pytrace=False)
    found = Repeats(**result)
    assert found.repeats, "results differ from run to run"
    assert found.refused == (name.partition(".grad")[0] in REFUSED)
