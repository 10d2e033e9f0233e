"""Floats that a program computes from integers and sizes, which are symbols of its graph.

The graph's code computes them with Python's numbers, so kernels have the results of eager ops.
"""

import math

import pytest
import torch
from torch.nn import functional as F

#: By what the graph has of it: functions of a tensor and an integer that changes.
EXPRESSIONS = {
    "sum": lambda t, v: v + 0.5,
    "difference": lambda t, v: v - 1e-9,
    "product": lambda t, v: v * 0.3,
    "negative": lambda t, v: -v * 0.5,
    "large": lambda t, v: -1e30 * v,
    "pi": lambda t, v: math.pi * v,
    "quotient": lambda t, v: v / 4,
    "floor": lambda t, v: v * 0.7 // 0.5 + 0.25,
    "abs": lambda t, v: abs(v - 3.5),
    "min": lambda t, v: min(v * 0.5, 1.2),
    "max": lambda t, v: max(v * 0.5, 1.2),
    "root": lambda t, v: math.sqrt(v),
    "power": lambda t, v: -(v**1.5),
    "half a cube": lambda t, v: v**3 * 0.5,
    "sine": lambda t, v: math.sin(v),
    "size": lambda t, v: t.numel() * 0.1,
    "size and integer": lambda t, v: v + t.shape[0] * 0.1,
    "integer of a float": lambda t, v: int(v * 0.7) * 0.3,
    "round": lambda t, v: round(v * 0.5) + 0.5,
    "round to 0 digits": lambda t, v: round(v * 0.5, 0) + 0.1,
    "round to a digit": lambda t, v: round(v * 0.37, 1),
    "round to 2 digits": lambda t, v: round(v * 0.335, 2),
    "round to tens": lambda t, v: round(v * 2.5, -1) * 0.01,
}

CONSUMERS = {
    "full_like": torch.full_like,
    "clamp_min": torch.Tensor.clamp_min,
    "clamp": lambda t, x: t.clamp(x - 0.25, x + 0.25),
    "masked_fill": lambda t, x: t.masked_fill(t > 2, x),
    "where": lambda t, x: torch.where(t > x, t, x),
    "threshold": lambda t, x: F.threshold(t, x, x + 0.75),
    "product": lambda t, x: t * x,
    "add": lambda t, x: torch.add(t, t, alpha=x),
    "power": lambda t, x: t.abs() ** x,
    "normalize": lambda t, x: F.normalize(t.view(3, 2), eps=abs(x) + 1e-3),
    "double": lambda t, x: torch.full_like(t, x, dtype=torch.float64),
    "bfloat16": lambda t, x: torch.full_like(t, x, dtype=torch.bfloat16),
    "bool": lambda t, x: torch.full_like(t, x, dtype=torch.bool),
    "sum of rows": lambda t, x: t.view(3, 2).clamp_min(x).sum(1),
}

#: With a large number, a sum depends on the order in which it is taken.
ORDERS = [name for name in EXPRESSIONS if name != "large"]


@pytest.fixture(autouse=True)
def _nothing_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def function(consumer, names):
    """The consumer's results for all expressions."""

    def program(t, v):
        return [consumer(t, EXPRESSIONS[name](t, v)) for name in names]

    return program


def tensor(device, **settings):
    return torch.tensor([-1.5, 0.25, 1.0, 2.0, 3.25, 7.0], device=device, **settings)


def check(consumer, names, *, values=(3, 5, 10), gradient=False, dynamic=True):
    program = function(consumer, names)
    compiled = torch.compile(program, dynamic=dynamic, fullgraph=True)
    for v in values:
        results = []
        for device, call in (("ocl", compiled), ("cpu", program)):
            t = tensor(device, requires_grad=gradient)
            found = call(t, v)
            if gradient:
                ends = torch.stack([x.sum() for x in found if x.requires_grad])
                found = [*found, *torch.autograd.grad(ends.sum(), t)]
            results.append([x.detach().cpu() for x in found])
        for name, actual, expected in zip([*names, "gradient"], *results, strict=False):
            torch.testing.assert_close(
                actual,
                expected,
                rtol=1e-5,
                atol=1e-6,
                equal_nan=True,
                msg=lambda text, of=(name, v): f"{of}: {text}",
            )


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_results(consumer):
    check(CONSUMERS[consumer], EXPRESSIONS)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [None, False])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_results_at_other_settings(consumer, dynamic):
    check(CONSUMERS[consumer], EXPRESSIONS, dynamic=dynamic)


@pytest.mark.slow
@pytest.mark.parametrize("consumer", ["clamp", "masked_fill", "product", "power", "normalize"])
def test_gradients(consumer):
    check(CONSUMERS[consumer], ORDERS, gradient=True)


@pytest.mark.parametrize("name", ["sum", "size and integer", "round to a digit"])
def test_order_of_a_norm(name):
    check(lambda t, x: torch.linalg.vector_norm(t, abs(x) + 1), [name], gradient=True)


def test_exactly_as_eager():
    """Doubles are the same in all digits, whatever the device computes with."""

    def program(t, v):
        found = [expression(t, v) for expression in EXPRESSIONS.values()]
        # Products with these raise, on the CPU's Inductor, too.
        found += [v * 0.7 % 1.5, (v & 6) * 0.25 + 0.125]
        return [torch.full_like(t, x) for x in found]

    compiled = torch.compile(program, dynamic=True, fullgraph=True)
    for v in (3, 7, 25):
        for actual, expected in zip(
            compiled(tensor("ocl"), v), program(tensor("cpu"), v), strict=True
        ):
            torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)


def test_an_integer_that_a_float_gives():
    """The kernel takes all its bits."""

    def program(t, v):
        return torch.full_like(t, v * 1.5, dtype=torch.int64), t[int(v % 4 * 0.7) :] + int(v * 0.5)

    compiled = torch.compile(program, dynamic=True, fullgraph=True)
    for v in (10, 2**40 + 2, 3):
        for actual, expected in zip(
            compiled(tensor("ocl"), v), program(tensor("cpu"), v), strict=True
        ):
            torch.testing.assert_close(actual.cpu(), expected)


def test_beside_a_product():
    """Ops behind a product are in its kernel, or not."""

    def program(t, v):
        x = t.view(2, 3)
        return (x @ x.T) * (v + 0.5) + round(v * 0.37, 1), torch.relu(x @ x.T + v // 2)

    compiled = torch.compile(program, dynamic=True, fullgraph=True)
    for v in (2, 5):
        for actual, expected in zip(
            compiled(tensor("ocl"), v), program(tensor("cpu"), v), strict=True
        ):
            torch.testing.assert_close(actual.cpu(), expected)


def test_behind_a_graph_break():
    """Dynamo calls math.gcd, and goes on with its result as a symbol."""

    def program(t, v):
        return torch.full_like(t, math.gcd(v, 6) * 0.5)

    compiled = torch.compile(program, dynamic=True)
    for v in (3, 4, 9):
        torch.testing.assert_close(compiled(tensor("ocl"), v).cpu(), program(tensor("cpu"), v))


def test_from_cpp():
    names = ["sum", "negative", "min", "root", "power", "half a cube", "size and integer", "round"]
    with torch._inductor.config.patch(cpp_wrapper=True):
        check(torch.Tensor.clamp_min, names)


@pytest.mark.parametrize("numbers", [(2, 5), (7, 9)])
def test_in_attention(numbers):
    from torch.nn.attention.flex_attention import flex_attention

    def program(q, v):
        return flex_attention(q, q, q, score_mod=lambda s, b, h, m, n: s * (v + 0.5) + v * 0.1)

    compiled = torch.compile(program, dynamic=True, fullgraph=True)
    q = torch.linspace(-1, 1, 2 * 8 * 16).view(1, 2, 8, 16)
    for v in numbers:
        torch.testing.assert_close(compiled(q.to("ocl"), v).cpu(), program(q, v))
