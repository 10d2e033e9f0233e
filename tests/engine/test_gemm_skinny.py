"""Products with few rows or columns whose large matrix is read along its columns."""

import pytest
import torch

from tests.as_gpu import run_as_gpu
from tests.ops import products as t

# Vectors, tiles of several and what is left of them, over k in one block and in more.
LONG = [1, 2, 5, 13, 16, 20, 63, 64, 65, 129, 250, 300]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int32]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("few", [1, 2, 3, 7])
def test_tiles_and_their_remainders(few, dtype):
    for n in LONG:
        for k in (40, 300):
            a, b = t.make(3, few, k, dtype=dtype), t.make(3, k, n, dtype=dtype)
            t.check(torch.bmm, a, b)
            # A result's element that two work-items stored would get its addend twice.
            t.check(lambda a, b, c: c.clone().baddbmm_(a, b), a, b, t.make(3, few, n, dtype=dtype))


@pytest.mark.parametrize("few, n, k", [(7, 129, 4096), (1, 300, 4096), (4, 20, 16384)])
def test_long_sums(few, n, k):
    torch.manual_seed(0)
    a, b = torch.randn(8, few, k), torch.randn(8, k, n)
    exact = a.double() @ b.double()

    def error(product):
        return (product.cpu() - exact).square().mean().sqrt()

    assert error(a.to("ocl") @ b.to("ocl")) < 1.5 * error(a @ b)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16], ids=str)
@pytest.mark.parametrize("few", [1, 2, 3, 8])
def test_rows_that_do_not_fill_a_group(few, dtype):
    """The large matrix is read along its rows, of which a GPU's work-group has several."""
    for m in (1, 7, 81, 300):
        for k in (3, 64, 1030):
            x, weight = t.make(few, k, dtype=dtype), t.make(m, k, dtype=dtype)
            t.check(lambda x, weight: x @ weight.t(), x, weight)
            t.check(lambda x, weight: x[:, 1:] @ weight[:, 1:].t(), x, weight)
            t.check(lambda x, weight: weight[1:] @ x.t(), x, weight)
        x, weight = t.make(3, few, 72, dtype=dtype), t.make(3, m, 72, dtype=dtype)
        t.check(lambda x, weight: x @ weight.mT, x, weight)


@pytest.mark.as_gpu
def test_as_a_gpu():
    """Everything above with the kernels that GPUs get."""
    run_as_gpu(__file__)
