"""Products of float8 matrices with scales against CPU torch."""

import pytest
import torch
from torch.nn import functional
from torch.nn.functional import ScalingType

from tests.refusals import raise_the_same

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def operands(dtype_a=E4M3, dtype_b=E4M3):
    torch.manual_seed(0)
    return torch.randn(16, 32).to(dtype_a), torch.randn(48, 32).to(dtype_b).t()


def check(call, *tensors):
    expected = call(*tensors)
    actual = call(*(None if t is None else t.to("ocl") for t in tensors))
    assert actual.dtype == expected.dtype and actual.stride() == expected.stride()
    # Sums in another order may round to the neighbour.
    eps = {1: 2**-2, 2: 2**-7, 4: 1e-6}[expected.dtype.itemsize]
    difference = (actual.cpu().double() - expected.double()).abs()
    assert (difference <= eps * expected.double().abs() + 1e-5).all()
    assert (difference > 0).sum() <= 0.02 * difference.numel() or expected.dtype.itemsize > 1


@pytest.mark.parametrize("out_dtype", [None, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)], ids=str)
def test_scales(dtypes, out_dtype):
    a, b = operands(*dtypes)
    one, other = torch.tensor(0.5), torch.tensor(0.25)
    rows, columns = torch.rand(16, 1), torch.rand(1, 48)
    bias = torch.randn(48).to(out_dtype or torch.float32)
    for x, y in ((one, other), (rows, columns)):
        check(lambda a, b, x, y: torch._scaled_mm(a, b, x, y, out_dtype=out_dtype), a, b, x, y)
        check(
            lambda a, b, x, y, c: torch._scaled_mm(a, b, x, y, bias=c, out_dtype=out_dtype),
            *(a, b, x, y, bias),
        )
    for dtype in {out_dtype, E4M3}:
        check(
            lambda a, b, x, y, d=dtype: torch._scaled_mm(
                a, b, x, y, scale_result=other.to(a.device), out_dtype=d
            ),
            *(a, b, one, other),
        )


def test_functional():
    a, b = operands()
    cases = [
        (ScalingType.TensorWise, torch.tensor(0.5), torch.tensor(2.0)),
        (ScalingType.RowWise, torch.rand(16, 1), torch.rand(1, 48)),
    ]
    for recipe, x, y in cases:
        check(
            lambda a, b, x, y, r=recipe: functional.scaled_mm(
                a, b, x, r, y, r, output_dtype=torch.bfloat16
            ),
            *(a, b, x, y),
        )


def test_wrong_arguments_raise_what_the_cpu_raises():
    a, b = operands()
    one, rows = torch.tensor(0.5), torch.rand(16, 1)
    block = ScalingType.BlockWise1x128
    cases = [
        lambda d: torch._scaled_mm(a.to(d), b[:16].to(d), one.to(d), one.to(d)),
        lambda d: torch._scaled_mm(a[0].to(d), b.to(d), one.to(d), one.to(d)),
        lambda d: torch._scaled_mm(a.float().to(d), b.to(d), one.to(d), one.to(d)),
        lambda d: torch._scaled_mm(a.to(d), b.to(d), rows.to(d), one.to(d)),
        lambda d: functional.scaled_mm(a.to(d), b.to(d), rows.to(d), block, rows.to(d), block),
    ]
    raise_the_same(cases)


def test_scales_of_another_dtype():
    """CPU torch refuses them, too, unless oneDNN uses the processor's own float8 products: these
    read a double's bytes as floats."""
    a, b = (x.to("ocl") for x in operands())
    scale = torch.tensor(0.5, device="ocl")
    with pytest.raises(ValueError, match="scale_a must be float32"):
        torch._scaled_mm(a, b, scale.double(), scale)
