"""Checkers of the lessons' exercises (docs/kernels): is it right, and how far from the roofline?

Each takes a function of yours, prints what it found, and returns whether the exercise is solved::

    exercises.relu(Relu.apply)
    exercises.matrix_product(product)

An answer that is wrong raises nothing, so that a notebook goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    cases = [(_numbers(size),) for size in SIZES] + [(_numbers(42).view(6, 7).t(),)]
    return _is_right("relu", function, torch.relu, cases)


def mean_squared_error(function: Callable[..., Any]) -> bool:
    """Lesson 2: of x and a target, with the gradients of both."""
    cases = [(torch.randn(size), torch.randn(size)) for size in SIZES]
    cases.append((torch.randn(7, 6).t(), torch.randn(6, 7)))
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

    Raises ValueError for a size below 1.
    """
    if size < 1:
        raise ValueError(f"a matrix has rows and columns: size is {size}")
    cases = [(torch.rand(n, n), torch.rand(n, n)) for n in (unit, 3 * unit)]
    if not _is_right("matrix_product", function, torch.mm, cases, gradients=False):
        return False
    work, moved = 2 * size**3, 3 * 4 * size**2
    operands = torch.rand(2, size, size, device="ocl").unbind()
    seconds, flops, bandwidth = _least_beside_the_roof(lambda: function(*operands))
    if not _is_right_again("matrix_product", function, torch.mm, operands):
        return False
    roof = min(flops, work / moved * bandwidth)
    rate = work / seconds
    return _reaches("matrix_product", rate / roof, goal, f"{rate / 1e9:.0f} GFLOP/s")


def maximum(function: Callable[..., Any], elements: int = 2**25, goal: float | None = None) -> bool:
    """Lesson 4: the largest of a vector's numbers; NaN if there is one.

    Args:
        function: Takes a float32 vector, and returns a tensor of one number.
        elements: Of the vector that is timed. By default it is larger than caches are.
        goal: The share of the bandwidth that is to be reached: half of it on GPUs, any on CPUs.
    """
    if goal is None:
        goal = (
            0.5 if torch.ocl.get_device_properties(torch.ocl.current_device()).type != "cpu" else 0
        )
    cases = [(torch.randn(size) - 5,) for size in SIZES]
    cases += [(torch.full((1003,), -torch.inf),)]
    for place in (0, 500, 1002):
        cases.append((torch.randn(1003).index_fill_(0, torch.tensor(place), torch.nan),))
    if not _is_right("maximum", function, torch.amax, cases, gradients=False):
        return False
    x = torch.rand(elements, device="ocl")
    seconds, _, bandwidth = _least_beside_the_roof(lambda: function(x))
    if not _is_right_again("maximum", function, torch.amax, (x,)):
        return False
    rate = x.nbytes / seconds
    return _reaches("maximum", rate / bandwidth, goal, f"{rate / 1e9:.1f} GB/s")


def shift(function: Callable[..., Any]) -> bool:
    """Lesson 5: 0, and then all numbers but the last."""

    def wanted(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x.new_zeros(1), x[:-1]))

    cases = [(torch.randn(size),) for size in SIZES]
    return _is_right("shift", function, wanted, cases, gradients=False)


def xlog1py(function: Callable[..., Any]) -> bool:
    """Lesson 6: x * log1p(y), 0 where x is 0 unless y is NaN, of shapes that are broadcast."""
    cases = [(torch.rand(4, 5), torch.rand(5)), (torch.rand(3, 1), torch.rand(1, 7))]
    # log(1 + y) has no digit left of these.
    cases.append((torch.full((3,), 1e9), torch.tensor([1e-9, -1e-9, 1e-10])))
    corners = [(torch.tensor([0.0, 0.0, 2.0]), torch.tensor([-1.0, torch.nan, torch.nan]))]
    return _is_right("xlog1py", function, torch.special.xlog1py, cases, without=corners)


def _numbers(size: int) -> torch.Tensor:
    """Numbers of both signs, with what kernels forget."""
    x = torch.randn(size)
    if size > len(_AWKWARD):
        x[: len(_AWKWARD)] = torch.tensor(_AWKWARD)
    return x


def _least_beside_the_roof(call: Callable[[], Any]) -> tuple[float, float, float]:
    """The least seconds of a call, and the device's float32 operations and bytes per second.

    They are measured by turns, since what else the machine does changes: the best of each counts.
    """
    roofs = [roofline()]
    seconds = float("inf")
    for _ in range(3):
        seconds = min(seconds, peaks.least_seconds(call))
        roofs.append(roofline())
    flops, bandwidth = (max(values) for values in zip(*roofs, strict=True))
    least = min(rate for rate, _ in roofs)
    if least < 0.8 * flops:
        print(
            f"The machine is busy: its peak was {least / 1e9:.0f} to {flops / 1e9:.0f} GFLOP/s. "
            "Shares are of the highest, and change from run to run."
        )
    return seconds, flops, bandwidth


def _results(
    function: Callable[..., Any],
    arguments: tuple[torch.Tensor, ...],
    gradients: bool,
    incoming: torch.Tensor | None = None,
) -> list[tuple[str, torch.Tensor | None]]:
    """The result, by its name, and the gradients that come of the gradient `incoming`."""
    arguments = tuple(x.detach().clone().requires_grad_(gradients) for x in arguments)
    result = function(*arguments)
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"it returns {type(result).__name__}, no tensor")
    named: list[tuple[str, torch.Tensor | None]] = [("the result", result.detach())]
    if gradients:
        if incoming is None or incoming.shape != result.shape:
            incoming = torch.ones_like(result)
        incoming = incoming.to(result.device)
        found = torch.autograd.grad(result, arguments, incoming, allow_unused=True)
        named += [(f"the gradient of argument {i}", g) for i, g in enumerate(found)]
    return named


def _is_right(
    name: str,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    cases: Sequence[tuple[torch.Tensor, ...]],
    gradients: bool = True,
    without: Sequence[tuple[torch.Tensor, ...]] = (),
) -> bool:
    """Whether the function does as the reference in all cases, and in those `without` gradients."""
    for arguments, differentiated in [
        *((case, gradients) for case in cases),
        *((case, False) for case in without),
    ]:
        incoming = torch.randn_like(reference(*arguments)) if differentiated else None
        wanted = _results(reference, arguments, differentiated, incoming)
        _leave_a_mark(wanted)
        try:
            there = tuple(x.to("ocl") for x in arguments)
            got = _results(function, there, differentiated, incoming)
            torch.ocl.synchronize()
        except Exception as error:  # whatever it is, the notebook goes on
            return _not_yet(name, arguments, f"{type(error).__name__}: {error}")
        for (what, right), (_, value) in zip(wanted, got, strict=True):
            if problem := _difference(right, value, arguments):
                return _not_yet(name, arguments, f"{what} {problem}")
    print(f"{name}: right")
    return True


def _is_right_again(
    name: str,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    arguments: Sequence[torch.Tensor],
) -> bool:
    """Whether it computes what was timed: with other numbers in the same tensors, which stay."""
    for x in arguments:
        x.uniform_().view(-1)[-1] = 2  # the largest: what passes over the end misses it
    before = [x.cpu() for x in arguments]
    result = function(*arguments)
    torch.ocl.synchronize()
    shapes = tuple(before)
    if any(not torch.equal(x.cpu(), kept) for x, kept in zip(arguments, before, strict=True)):
        return _not_yet(name, shapes, "it changes its arguments")
    if problem := _difference(reference(*before), result, ()):
        return _not_yet(name, shapes, f"the result {problem}")
    return True


#: The bits of a NaN that no arithmetic makes. What has it was not written.
_MARK = 0x7FC0BEEF


def _leave_a_mark(wanted: Sequence[tuple[str, torch.Tensor | None]]) -> None:
    """Leaves freed memory of these sizes with the mark in it, which torch.empty hands out."""
    left = [
        torch.full(x.shape, _MARK, dtype=torch.int32, device="ocl")
        for _, x in wanted
        if x is not None
        for _ in range(8)  # arguments take some
    ]
    torch.ocl.synchronize()
    left.clear()


def _not_yet(name: str, arguments: tuple[torch.Tensor, ...], problem: str) -> bool:
    shapes = ", ".join(str(list(x.shape)) for x in arguments)
    print(f"{name}: not yet. For arguments of the shapes {shapes}, {problem}")
    return False


def _difference(
    right: torch.Tensor | None, value: torch.Tensor | None, arguments: Sequence[torch.Tensor]
) -> str:
    """Says what is wrong with a value; empty if nothing is. Arguments of its shape are shown."""
    if right is None or value is None:
        return "" if right is value else "is missing"
    if not isinstance(value, torch.Tensor):
        return f"is {type(value).__name__}, no tensor"
    if value.device.type != "ocl":
        return f"is on {value.device}, not on ocl"
    kinds = [f"{t.dtype} of {list(t.shape)}" for t in (value, right)]
    if kinds[0] != kinds[1]:
        return f"is {kinds[0]}, wanted {kinds[1]}"
    value = value.cpu().contiguous()
    wrong = ~torch.isclose(value, right, rtol=1e-4, atol=1e-5, equal_nan=True)
    unwritten = value.view(torch.int32) == _MARK
    wrong |= unwritten
    if not wrong.any():
        return ""
    place = tuple(wrong.nonzero()[0].tolist())
    at = f" at {list(place)}" if place else ""
    of = [
        f"argument {i} is {x[place].item():.6g}"
        for i, x in enumerate(arguments)
        if x.shape == right.shape
    ]
    if of:
        at += f" (where {', '.join(of)})"
    count = f": {int(wrong.sum())} of {wrong.numel()} are wrong" if wrong.numel() > 1 else ""
    if unwritten[place]:
        return f"was not written{at}, wanted {right[place].item():.6g}{count}"
    return f"is {value[place].item():.6g}{at}, wanted {right[place].item():.6g}{count}"


def _reaches(name: str, share: float, goal: float, rate: str) -> bool:
    said = f"{name}: {rate}, {share:.0%} of the roofline"
    if share > 1:
        said += " (more than it has: data in caches, or a machine that was busy meanwhile)"
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
