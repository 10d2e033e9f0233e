"""The cases of the check: all engines, by dtypes, against the CPU in double precision."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from torch_ocl.cli.check import cases_sizes

Case = Callable[[str], Any]

#: Engines whose kernels others use come first, so that they are left out before those are tried.
FIRST = ("pointwise", "reduce", "index", "scan", "softmax", "sort", "gemm")
_REALS = ("float32", "float64", "float16", "bfloat16")
_EXACT = ("float32", "float64")
#: The dtypes of engines that have more than single precision.
DTYPES = {
    **dict.fromkeys(("pointwise", "reduce", "softmax", "norm", "gemm", "attention"), _REALS),
    **dict.fromkeys(("convolution", "functions"), _REALS),
    **dict.fromkeys(("index", "scan", "sort", "max_pool", "average_pool", "positions"), _EXACT),
    **dict.fromkeys(("fft", "linalg_lu", "linalg_cholesky", "linalg_qr"), _EXACT),
}
#: Shares of the largest element. Half types are rounded between an op and its gradient.
_TOLERANCES = {"float32": 3e-5, "float64": 1e-11, "float16": 1e-2, "bfloat16": 8e-2}


def cases() -> dict[str, list[Case]]:
    """By engine, those without one last. The order is always the same."""
    found: dict[str, list[Case]] = {}
    for name in ("elements", "order", "products", "rows", "sizes"):
        module = importlib.import_module(f"torch_ocl.cli.check.cases_{name}")
        for engine, calls in module.CASES.items():
            found.setdefault(engine, []).extend(calls)
    order = [*FIRST, *(engine for engine in sorted(found) if engine not in FIRST)]
    return {engine: found[engine] for engine in order} | cases_sizes.WITHOUT_CHOICE


def dtypes_of(engine: str, has_fp64: bool) -> list[str]:
    """The dtypes to try, the one that most programs use first."""
    dtypes = DTYPES.get(engine, ("float32",))
    return [dtype for dtype in dtypes if has_fp64 or dtype != "float64"]


class _Rounding(TorchFunctionMode):
    """Gives what a case moves to its device another precision: that of the dtype there, and double
    for the judge on the CPU, of the same numbers."""

    def __init__(self, dtype: torch.dtype, judge: bool) -> None:
        super().__init__()
        self._dtype, self._judge = dtype, judge

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        moves = function is torch.Tensor.to and any(
            isinstance(to, (str, torch.device)) for to in args[1:2]
        )
        if moves and args[0].is_floating_point():
            x = args[0].to(self._dtype)
            return function(x.double() if self._judge else x, args[1])
        if moves and args[0].is_complex():
            wide = self._judge or self._dtype == torch.float64
            return function(args[0].to(torch.complex128 if wide else torch.complex64), args[1])
        return function(*args, **kwargs)


def compute(case: Case, dtype: str, device: str | None) -> list[torch.Tensor]:
    """The case's results there, as tensors of the CPU; without a device the judge's."""
    with _Rounding(getattr(torch, dtype), device is None):
        results = case(device or "cpu")
    return [leaf.detach().cpu() for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor)]


def difference(actual: list[torch.Tensor], expected: list[torch.Tensor], dtype: str) -> str:
    """The difference in words; empty if there is none."""
    if len(actual) != len(expected):
        return f"{len(actual)} results instead of {len(expected)}"
    for a, e in zip(actual, expected, strict=True):
        if a.shape != e.shape:
            return f"the shape is {tuple(a.shape)} instead of {tuple(e.shape)}"
        if e.numel() == 0:
            continue
        if not (e.is_floating_point() or e.is_complex()):
            wrong = (a.to(e.dtype) != e).sum().item()
            if wrong:
                return f"{wrong} of {e.numel()} whole numbers are wrong"
            continue
        a, finite = a.to(e.dtype), e.isfinite()
        if (a.isnan() != e.isnan()).any():
            return f"{int((a.isnan() != e.isnan()).sum())} of {e.numel()} elements are NaN or not"
        largest = e[finite].abs().max().item() if finite.any() else 0.0
        off = (a - e)[finite].abs().max().item() if finite.any() else 0.0
        if off > _TOLERANCES[dtype] * largest:
            return f"off by {off:.2g}, where the largest is {largest:.2g}"
    return ""
