"""Unary ops with arguments of their own."""

import itertools

import pytest
import torch
from torch.testing import assert_close

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32, torch.float16])
@pytest.mark.parametrize("arguments", [{}, {"nan": 2.5}, {"nan": -1.0, "posinf": 3, "neginf": 4.0}])
def test_nan_to_num(dtype, arguments):
    parts = [0.0, -1.5, NAN, INF, -INF]
    values = [complex(*pair) for pair in itertools.product(parts, parts)]
    x = torch.tensor(values, dtype=dtype) if dtype.is_complex else torch.tensor(parts, dtype=dtype)
    expected = torch.nan_to_num(x, **arguments)
    for y in (x.to("ocl"), x.repeat_interleave(2).to("ocl")[::2]):
        assert_close(torch.nan_to_num(y, **arguments).cpu(), expected, rtol=0, atol=0)
        out = torch.empty_like(y)
        assert torch.nan_to_num(y, **arguments, out=out) is out
        assert_close(out.cpu(), expected, rtol=0, atol=0)
        assert_close(y.nan_to_num_(**arguments).cpu(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.uint8])
@pytest.mark.parametrize("exponent", [2**40, 1e39, -70000.0, 2, INF])
def test_exponents_that_the_dtype_does_not_hold(dtype, exponent):
    x = torch.tensor([1, 0, 1], dtype=dtype)
    outcomes = []
    for device in ("cpu", "ocl"):
        try:
            outcomes.append((x.to(device) ** exponent).cpu())
        except RuntimeError as error:
            outcomes.append(type(error))
    assert isinstance(outcomes[0], type) == isinstance(outcomes[1], type), outcomes
    if not isinstance(outcomes[0], type):
        assert_close(outcomes[1], outcomes[0])
