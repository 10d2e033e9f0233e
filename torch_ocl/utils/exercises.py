"""Checkers of the lessons' exercises (docs/kernels): is it right, and how far from the roofline?

Each takes a function of yours, prints what it found, and returns whether the exercise is solved::

    exercises.relu(Relu.apply)
    exercises.matrix_product(product)

An answer that is wrong raises nothing, so that a notebook goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torch_ocl.cli import peaks

__all__ = [
    "matrix_product",
    "maximum",
    "mean_squared_error",
    "plot_roofline",
    "plot_shares",
    "relu",
    "roofline",
    "shift",
    "xlog1py",
]

#: The share of the roofline that a matrix product is to reach.
GOAL = 0.6
#: Sizes that are no multiples of a group, or of a vector.
SIZES = (1, 7, 64, 1003)
_AWKWARD = (torch.nan, torch.inf, -torch.inf, 0.0, -0.0)


def roofline() -> tuple[float, float]:
    """Measures the current device: float32 operations, and bytes, per second.

    It is not kept: what else the machine does slows the exercises down, too.
    """
    return peaks.flops_per_second()["float32"], max(peaks.measure_bandwidth(64))


def relu(function: Callable[..., Any]) -> bool:
    """Lesson 1: x where it is positive or NaN, else 0, and its gradient."""
    cases = [(_numbers(size),) for size in SIZES]
    return _is_right("relu", function, torch.relu, cases)


def mean_squared_error(function: Callable[..., Any]) -> bool:
    """Lesson 2: of x and a target, with the gradients of both."""
    cases = [(torch.randn(size), torch.randn(size)) for size in SIZES]
    wanted = torch.nn.functional.mse_loss
    return _is_right("mean_squared_error", function, wanted, cases)


def matrix_product(
    function: Callable[..., Any], size: int = 1024, goal: float = GOAL, unit: int = 128
) -> bool:
    """Lesson 3: the product of two square matrices.

    Args:
        function: Takes two float32 matrices, and returns a third.
        size: Rows and columns of those that are timed.
        goal: The share of the roofline that is to be reached.
        unit: Sizes are multiples of it.
    """
    cases = [(torch.rand(n, n), torch.rand(n, n)) for n in (unit, 3 * unit)]
    if not _is_right("matrix_product", function, torch.mm, cases, gradients=False):
        return False
    a, b = torch.rand(2, size, size, device="ocl")
    rate = 2 * size**3 / peaks.least_seconds(lambda: function(a, b))
    flops, bandwidth = roofline()
    roof = min(flops, 2 * size**3 / (12 * size**2) * bandwidth)
    return _reaches("matrix_product", rate / roof, goal, f"{rate / 1e9:.0f} GFLOP/s")


def maximum(function: Callable[..., Any], elements: int = 2**22, goal: float = 0.0) -> bool:
    """Lesson 4: the largest of a vector's numbers; NaN if there is one."""
    cases = [(torch.randn(size) - 5,) for size in SIZES]
    cases += [(torch.full((1003,), -torch.inf),)]
    for place in (0, 500, 1002):
        cases.append((torch.randn(1003).index_fill_(0, torch.tensor(place), torch.nan),))
    if not _is_right("maximum", function, torch.amax, cases, gradients=False):
        return False
    x = torch.rand(elements, device="ocl")
    rate = x.nbytes / peaks.least_seconds(lambda: function(x))
    return _reaches("maximum", rate / roofline()[1], goal, f"{rate / 1e9:.1f} GB/s")


def shift(function: Callable[..., Any]) -> bool:
    """Lesson 5: 0, and then all numbers but the last."""

    def wanted(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x.new_zeros(1), x[:-1]))

    cases = [(torch.randn(size),) for size in SIZES]
    return _is_right("shift", function, wanted, cases, gradients=False)


def xlog1py(function: Callable[..., Any]) -> bool:
    """Lesson 6: x * log1p(y), 0 where x is 0 unless y is NaN, of shapes that are broadcast."""
    cases = [(torch.rand(4, 5), torch.rand(5)), (torch.rand(3, 1), torch.rand(1, 7))]
    if not _is_right("xlog1py", function, torch.special.xlog1py, cases):
        return False
    corners = [(torch.tensor([0.0, 0.0, 2.0]), torch.tensor([-1.0, torch.nan, torch.nan]))]
    return _is_right("xlog1py", function, torch.special.xlog1py, corners, gradients=False)


def _numbers(size: int) -> torch.Tensor:
    """Numbers of both signs, with what kernels forget."""
    x = torch.randn(size)
    if size > len(_AWKWARD):
        x[: len(_AWKWARD)] = torch.tensor(_AWKWARD)
    return x


def _results(
    function: Callable[..., Any], arguments: tuple[torch.Tensor, ...], gradients: bool
) -> list[tuple[str, torch.Tensor | None]]:
    arguments = tuple(x.detach().clone().requires_grad_(gradients) for x in arguments)
    result = function(*arguments)
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"it returns {type(result).__name__}, no tensor")
    named: list[tuple[str, torch.Tensor | None]] = [("the result", result.detach())]
    if gradients:
        wanted = torch.autograd.grad(result.sum(), arguments, allow_unused=True)
        named += [(f"the gradient of argument {i}", g) for i, g in enumerate(wanted)]
    return named


def _is_right(
    name: str,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    cases: list[tuple[torch.Tensor, ...]],
    gradients: bool = True,
) -> bool:
    for arguments in cases:
        wanted = _results(reference, arguments, gradients)
        try:
            got = _results(function, tuple(x.to("ocl") for x in arguments), gradients)
            torch.ocl.synchronize()
        except Exception as error:  # whatever it is, the notebook goes on
            return _not_yet(name, arguments, f"{type(error).__name__}: {error}")
        for (what, right), (_, value) in zip(wanted, got, strict=True):
            if problem := _difference(right, value):
                return _not_yet(name, arguments, f"{what} {problem}")
    print(f"{name}: right")
    return True


def _not_yet(name: str, arguments: tuple[torch.Tensor, ...], problem: str) -> bool:
    shapes = ", ".join(str(list(x.shape)) for x in arguments)
    print(f"{name}: not yet. For arguments of the shapes {shapes}, {problem}")
    return False


def _difference(right: torch.Tensor | None, value: torch.Tensor | None) -> str:
    """Empty if there is none."""
    if right is None or value is None:
        return "" if right is value else "is missing"
    if value.device.type != "ocl":
        return f"is on {value.device}, not on ocl"
    kinds = [f"{t.dtype} of {list(t.shape)}" for t in (value, right)]
    if kinds[0] != kinds[1]:
        return f"is {kinds[0]}, wanted {kinds[1]}"
    value = value.cpu()
    wrong = ~torch.isclose(value, right, rtol=1e-4, atol=1e-5, equal_nan=True)
    if not wrong.any():
        return ""
    place = tuple(wrong.nonzero()[0].tolist())
    at = f" at {list(place)}" if place else ""
    return f"is {value[place].item():.6g}{at}, wanted {right[place].item():.6g}"


def _reaches(name: str, share: float, goal: float, rate: str) -> bool:
    said = f"{name}: {rate}, {share:.0%} of the roofline"
    if not goal:
        print(said)
        return True
    print(f"{said}, " + ("which is enough" if share >= goal else f"and not yet {goal:.0%}"))
    return share >= goal


def plot_roofline(kernels: Mapping[str, tuple[float, float]]) -> Any:
    """A plot of the current device's roofline, with kernels in it (needs matplotlib).

    Args:
        kernels: By name: operations for each byte that moves, and operations per second.
    """
    import matplotlib.pyplot as plt

    flops, bandwidth = roofline()
    ridge = flops / bandwidth
    intensities = [x for x, _ in kernels.values()]
    low, high = min([ridge / 16, *intensities]) / 2, max([ridge * 16, *intensities]) * 2
    figure, axes = plt.subplots()
    roof = [low * bandwidth / 1e9, flops / 1e9, flops / 1e9]
    axes.loglog([low, ridge, high], roof, color="black")
    for name, (x, rate) in kernels.items():
        axes.plot([x], [rate / 1e9], "o", label=name)
    axes.set_xlabel("operations for each byte")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(torch.ocl.get_device_name())
    axes.legend()
    return figure


def plot_shares(shares: Mapping[str, float]) -> Any:
    """Bars, one for each kernel, of the shares of the roofline (needs matplotlib)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    axes.barh(list(shares), [100 * share for share in shares.values()])
    axes.axvline(100 * GOAL, color="black", linestyle="dashed")
    axes.invert_yaxis()
    axes.set_xlabel("% of the roofline")
    axes.set_title(torch.ocl.get_device_name())
    return figure
