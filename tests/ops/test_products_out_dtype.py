"""Products of half types with a result of single precision, as CUDA has them. CPU torch hasn't, so
the products of the converted factors are compared with."""

import pytest
import torch
from torch.testing import assert_close

SIZES = [(3, 5, 7), (64, 64, 64), (1, 300, 17), (130, 257, 66), (0, 4, 5), (4, 0, 5)]


def factors(dtype, m, k, n, batch=()):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(*batch, *shape, generator=generator).to(dtype) for shape in ((m, k), (k, n))
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("m, k, n", SIZES)
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_single_precision_of_half_types(dtype, m, k, n, batch):
    a, b = factors(dtype, m, k, n, batch)
    x, y = a.to("ocl"), b.to("ocl")
    multiply, add = (torch.bmm, torch.baddbmm) if batch else (torch.mm, torch.addmm)
    expected = a.float() @ b.float()
    out = multiply(x, y, out_dtype=torch.float32)
    assert out.dtype == torch.float32
    assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-4)
    # More bits than the factors' dtype has, or nothing would be won.
    if min(m, k, n) > 50:
        assert (out.to(dtype).float() != out).any()
    given = torch.empty(0, device="ocl")
    assert multiply(x, y, out_dtype=torch.float32, out=given) is given
    assert_close(given, out, rtol=0, atol=0)
    transposed = multiply(y.mT, x.mT, out_dtype=torch.float32)
    assert_close(transposed.cpu(), expected.mT, rtol=1e-5, atol=1e-4)
    for c in (torch.randn(n), torch.randn(m, 1).to(dtype)):
        out = add(c.to("ocl"), x, y, out_dtype=torch.float32, beta=0.5, alpha=2)
        assert_close(out.cpu(), 2 * expected + 0.5 * c.float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_same_dtype(dtype):
    a, b = (t.to("ocl") for t in factors(dtype, 20, 30, 40))
    assert_close(torch.mm(a, b, out_dtype=dtype), a @ b, rtol=0, atol=0)


def test_bad_input():
    a, b = (t.to("ocl") for t in factors(torch.float16, 4, 5, 6))
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
        torch.mm(a, b, out_dtype=torch.float64)
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
        torch.mm(a.float(), b.float(), out_dtype=torch.float16)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.mm(a, b.float(), out_dtype=torch.float32)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.mm(a, a, out_dtype=torch.float32)
    with pytest.raises(RuntimeError, match="dimensions"):
        torch.bmm(a, b, out_dtype=torch.float32)
    with pytest.raises(RuntimeError, match="provided out tensor"):
        torch.mm(a, b, out_dtype=torch.float32, out=torch.empty(4, 6, device="ocl").half())
    with pytest.raises(RuntimeError, match="self dtype must match"):
        torch.addmm(a.double()[:, :1], a, b, out_dtype=torch.float32)
