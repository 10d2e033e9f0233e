"""Random numbers, of which graphs have symbols, against CPU torch without a compiler."""

import math

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tests.fuzz import numbers, tensors

#: Programs of a compiled graph: many small graphs would take longer.
TOGETHER = 20


@pytest.fixture(autouse=True)
def _graphs_are_compiled_afresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@settings(max_examples=settings.default.max_examples // TOGETHER)
@given(st.data())
def test_numbers(data):
    def choose(values):
        return data.draw(st.sampled_from(list(values)))

    texts = [numbers.program(choose, f"f{i}") for i in range(TOGETHER)]
    check(texts, choose([True, False]), [choose(range(-3, 10)) for _ in range(2)])


def check(texts, dynamic, values):
    """Compiles the programs together, and compares results and gradients."""
    calls = ", ".join(f"f{i}(t, v)" for i in range(len(texts)))
    text = "\n\n".join([*texts, f"def whole(t, v):\n    return [{calls}]"])
    note(text)
    names = {"torch": torch, "math": math, "F": F}
    exec(text, names)
    torch._dynamo.reset()
    compiled = torch.compile(names["whole"], dynamic=dynamic)
    for v in values:
        expected = results(names["whole"], "cpu", v)
        actual = results(compiled, "ocl", v)
        tensors.cases["numbers"] += len(texts)
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            of = texts[i] if i < len(texts) else "the gradient"
            torch.testing.assert_close(
                a.cpu(), e, rtol=1e-4, atol=1e-4, equal_nan=True,
                msg=lambda text, of=(of, v): f"{of}, dynamic={dynamic}: {text}",
            )  # fmt: skip


def results(program, device, v):
    t = torch.tensor([-1.5, 0.25, 1.1, 2.0, 3.3, 7.0], device=device, requires_grad=True)
    found = program(t, v)
    ends = [x.sum() for x in found if x.requires_grad]
    if ends:
        found = [*found, *torch.autograd.grad(sum(ends), t)]
    return [x.detach() for x in found]
