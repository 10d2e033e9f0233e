"""Random programs of views and writes, compiled, against CPU torch without a compiler."""

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.fuzz import programs, tensors

#: Programs of a compiled graph: many small graphs would take longer.
TOGETHER = 10


@pytest.fixture(autouse=True)
def _graphs_are_compiled_afresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@settings(max_examples=settings.default.max_examples // TOGETHER)
@given(st.data())
def test_programs(data):
    def choose(values):
        return data.draw(st.sampled_from(list(values)))

    texts, operands = [], []
    for i in range(TOGETHER):
        pair = programs.inputs(choose)
        operands.append([t.clone() for t in pair])
        texts.append(programs.program(choose, f"f{i}", pair))
    calls = ", ".join(f"f{i}(*args[{i}])" for i in range(len(texts)))
    text = "\n\n".join([*texts, f"def whole(args):\n    return [{calls}]"])
    note(text)
    names = {"torch": torch}
    exec(text, names)

    torch._dynamo.reset()
    expected = [*names["whole"](operands_on(operands, "cpu", kept := [])), *kept]
    compiled = torch.compile(names["whole"])
    actual = [*compiled(operands_on(operands, "ocl", kept := [])), *kept]
    for i, (found, wanted) in enumerate(zip(actual, expected, strict=True)):
        tensors.cases["programs"] += i < len(texts)
        for a, e in zip(found, wanted, strict=True):
            assert a.device.type == "ocl"
            assert torch.equal(a.cpu(), e), f"f{i % len(texts)}"


def operands_on(operands, device, kept):
    """Copies of the operands, also as `kept`."""
    kept += [[t.to(device, copy=True) for t in pair] for pair in operands]
    return kept
