"""Values that CPU torch refuses: the device checks them too, and the next wait raises."""

import pytest
import torch
from torch.nn import functional

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DIVISIONS = {
    "floor_divide": [torch.floor_divide, lambda a, b: torch.div(a, b, rounding_mode="floor")],
    r"div\(rounding_mode='trunc'\)": [lambda a, b: torch.div(a, b, rounding_mode="trunc")],
    "remainder": [torch.remainder, lambda a, b: a % b],
    "fmod": [torch.fmod],
}
CASES = [(name, function) for name, functions in DIVISIONS.items() for function in functions]


def raises(call, match):
    """Asserts that CPU torch refuses, and that the device does, at the latest at the next wait."""
    with pytest.raises(RuntimeError):
        call("cpu")
    with pytest.raises(RuntimeError, match=match):
        call("ocl")
        torch.ocl.synchronize()
    torch.ocl.synchronize()  # it is said once
    assert torch.ones(3, device="ocl").sum().item() == 3


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name, function", CASES)
def test_division_by_zero(name, function, dtype):
    match = f"ZeroDivisionError.*{name}"
    a = torch.arange(1, 101, dtype=dtype)
    b = a.clone()
    b[93] = 0  # in the last elements, which no vector holds
    raises(lambda device: function(a.to(device), b.to(device)), match)
    b = a.clone()
    b[2] = 0
    raises(lambda device: function(a.to(device), b.to(device)), match)
    raises(lambda device: function(a.to(device)[::2], b.to(device)[::2]), match)
    raises(lambda device: function(a[:, None].to(device), b.to(device)), match)
    raises(lambda device: function(torch.tensor(7, dtype=dtype), b.to(device)), match)


@pytest.mark.parametrize("name, function", CASES)
def test_division_by_a_host_zero(name, function):
    a = torch.arange(10)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        function(a, 0)
    with pytest.raises(RuntimeError, match=f"ZeroDivisionError.*{name}"):
        function(a.to("ocl"), 0)  # at once
    with pytest.raises(RuntimeError, match=f"ZeroDivisionError.*{name}"):
        function(a.to("ocl"), torch.tensor(0))


def test_division_of_rows_by_zero():
    a = torch.ones(64, 64, dtype=torch.int32)
    b = torch.ones(64, dtype=torch.int32)
    b[17] = 0
    raises(lambda device: a.to(device) // b.to(device), "ZeroDivisionError")
    raises(lambda device: a.to(device).clone().floor_divide_(b.to(device)), "ZeroDivisionError")
    raises(lambda device: 5 % b.to(device), "ZeroDivisionError")
    c = torch.ones(64, 64, dtype=torch.int32)
    c[40, 3] = 0
    raises(lambda device: a.to(device) // c.to(device).t(), "ZeroDivisionError")


@pytest.mark.parametrize("name, function", CASES)
def test_divisions_that_are_fine(name, function):
    a, zero = torch.arange(10), torch.zeros(10)
    pairs = [
        (a, a + 1),
        (a, 3),
        (zero.long(), 5),
        (a[:0], 0),
        (a.float(), zero),
        (a, zero),
        (a.float(), 0),
    ]
    for x, y in pairs:
        expected = function(x, y)
        actual = function(x.to("ocl"), y.to("ocl") if isinstance(y, torch.Tensor) else y)
        torch.ocl.synchronize()
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)


BAD = [-0.1, 1.1, float("nan"), float("inf")]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_bernoulli(bad, dtype):
    p = torch.full((37,), 0.5, dtype=dtype)
    p[35] = bad
    match = "bernoulli: all probabilities should be between 0 and 1"
    raises(lambda device: torch.bernoulli(p.to(device)), match)
    raises(lambda device: torch.empty(37, device=device).bernoulli_(p.to(device)), match)
    raises(lambda device: torch.empty(9, device=device).bernoulli_(p[35].to(device)), match)
    raises(lambda device: torch.empty(9, device=device).bernoulli_(bad), "in .0, 1.")
    torch.bernoulli(torch.tensor([0.0, 1.0], dtype=dtype, device="ocl"))
    torch.ocl.synchronize()


def test_bernoulli_just_above_one():
    p = torch.tensor([1.0 + 1e-12], dtype=torch.float64)
    raises(lambda device: torch.bernoulli(p.to(device)), "bernoulli")


@pytest.mark.parametrize("bad", BAD)
def test_binary_cross_entropy(bad):
    good = torch.rand(7, 11)
    wrong = good.clone()
    wrong[6, 9] = bad
    match = "all elements of input should be between 0 and 1"

    def loss(x, target):
        return lambda device: functional.binary_cross_entropy(x.to(device), target.to(device))

    raises(loss(wrong, good), match)
    raises(loss(wrong.half(), good.half()), match)
    raises(loss(wrong.t(), good.t()), match)
    try:
        loss(good, wrong)("cpu")
    except RuntimeError:  # not in all versions
        raises(loss(good, wrong), match)
    at_the_ends = loss(good.round(), good)
    torch.testing.assert_close(at_the_ends("ocl").cpu(), at_the_ends("cpu"))


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("samples", [1, 3])
def test_multinomial(bad, replacement, samples):
    weights = torch.rand(5, 7)
    weights[4, 2] = bad

    def draw(weights):
        return lambda device: torch.multinomial(weights.to(device), samples, replacement)

    match = "encountering probability entry|probability tensor contains"
    raises(draw(weights), match)
    raises(draw(weights[4]), match)
    raises(draw(weights.double().t()[:, 2:]), match)
    weights[4] = 0
    raises(draw(weights), "sum of probabilities <= 0")
    weights[4, 3] = 1e-30
    assert draw(weights[:, 3:4] if samples == 1 else weights.clamp_min(1e-3))("ocl").shape[0] == 5
    torch.ocl.synchronize()
