"""Helpers of the tests of reductions."""

import torch
from torch.testing import assert_close, make_tensor

from tests.layouts import on_device

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128]
INTEGER = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
BOOL = [torch.bool]
ALL = FLOATING + COMPLEX + INTEGER + BOOL
REAL = FLOATING + INTEGER + BOOL
SHAPES = [(3, 5, 7), (2, 33, 70), (40, 3, 130)]


def make(shape, dtype, low=-2, high=2):
    if dtype in (torch.uint8, torch.bool):
        low = 0
    return make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)


def to_cpu(result):
    return result.cpu() if isinstance(result, torch.Tensor) else tuple(r.cpu() for r in result)


def check(op, x, wide=None, **tolerances):
    """`op` gives on the device what it gives on the CPU, dtype and shape included. With `wide` the
    CPU computes in that dtype: CPU torch accumulates some results in half itself."""
    expected = op(x) if wide is None else op(x.to(wide)).to(x.dtype)
    actual = to_cpu(op(on_device(x)))
    if not isinstance(expected, torch.Tensor):
        expected = tuple(expected)
    assert_close(actual, expected, equal_nan=True, **tolerances)


def tolerance(dtype):
    """Sums in another order differ by a few ulps of the largest partial sum."""
    if dtype in (torch.float16, torch.bfloat16):
        return {"rtol": 1e-2, "atol": 1e-2}
    return {"rtol": 1e-5, "atol": 1e-4} if dtype in (torch.float32, torch.complex64) else {}


def call(name, **arguments):
    arguments = {k: v for k, v in arguments.items() if v != "absent"}
    return lambda x: getattr(torch, name)(x, **arguments)
