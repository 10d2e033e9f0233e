"""Products of few rows and columns over a long k, which CPUs add up block by block."""

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.ops import products as t
from torch_ocl.testing import dispatches

# m, n, k: tiles and their remainders in either direction, blocks of k that are whole or not.
SHAPES = [(13, 16, 2048), (64, 256, 2500), (17, 48, 4099), (200, 64, 2049), (130, 112, 2176)]


def operands(form, m, n, k, dtype, *batch):
    """Which of a and b have their rows side by side: TN as in a weight's gradient."""
    a = (m, k) if form[0] == "N" else (k, m)
    b = (k, n) if form[1] == "N" else (n, k)
    a, b = t.make(*batch, *a, dtype=dtype), t.make(*batch, *b, dtype=dtype)
    return a if form[0] == "N" else a.mT, b if form[1] == "N" else b.mT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", ["TN", "NN", "TT", "NT"])
@pytest.mark.parametrize("m, n, k", SHAPES)
def test_products(m, n, k, form, dtype):
    a, b = operands(form, m, n, k, dtype)
    t.check(torch.mm, a, b)
    t.check(torch.addmm, t.make(n, dtype=dtype), a, b, alpha=2, beta=3)
    t.check(torch.addmm, t.make(n, m, dtype=dtype).t(), a, b)


@pytest.mark.parametrize("form", ["TN", "NN"])
def test_batches(form):
    a, b = operands(form, 30, 32, 2100, torch.float32, 3)
    t.check(torch.bmm, a, b)
    t.check(torch.baddbmm, t.make(3, 30, 32, dtype=torch.float32), a, b, beta=2)
    t.check(torch.bmm, a, b[0].expand(3, 2100, 32))


def test_rows_apart():
    """Slices of wider matrices."""
    a, b = t.make(2100, 80, dtype=torch.float32), t.make(2100, 100, dtype=torch.float32)
    t.check(torch.mm, a[:, 3:40].t(), b[:, 5:69])
    t.check(torch.mm, a[::2, 3:40].t(), b[::2, 5:69])


def test_infinities_and_nan():
    a, b = t.make(3000, 40, dtype=torch.float32), t.make(3000, 64, dtype=torch.float32)
    a[7, 3], a[2999, 5], b[130, 9], b[2000, 33] = torch.inf, torch.nan, -torch.inf, 0
    a[2000, :] = torch.inf  # times 0: NaN
    t.check(torch.mm, a.t(), b)


@pytest.mark.parametrize("channels, results", [(64, 24), (24, 64), (48, 48)])
def test_weight_of_windows_of_one_element(channels, results):
    """Channels last it is such a product: no other kernel packs the images."""
    x = t.make(4, channels, 25, 24, dtype=torch.float32).to(memory_format=torch.channels_last)
    weight = t.make(results, channels, 1, 1, dtype=torch.float32).requires_grad_()
    grad = t.make(4, results, 25, 24, dtype=torch.float32).to(memory_format=torch.channels_last)
    functional.conv2d(x, weight).backward(grad)
    here = weight.detach().to("ocl").requires_grad_()
    functional.conv2d(x.to("ocl"), here).backward(grad.to("ocl"))
    assert_close(here.grad.cpu(), weight.grad)
    # Images that do not follow each other.
    here.grad = weight.grad = None
    functional.conv2d(x[::2], weight).backward(grad[::2])
    functional.conv2d(x.to("ocl")[::2], here).backward(grad.to("ocl")[::2])
    assert_close(here.grad.cpu(), weight.grad)


def test_it_is_chosen():
    with dispatches() as lines:
        a, b = operands("TN", 64, 48, 2100, torch.float32)
        t.check(torch.mm, a, b)
        test_weight_of_windows_of_one_element(64, 32)
    # The convolution's is told within its choice.
    lines = [line.lstrip() for line in lines]
    on_cpu = torch.ocl.get_device_properties(0).type == "cpu"
    assert ("gemm 1x64x48x2100 f32,f32->f32: k_blocking runs" in lines) == on_cpu
    assert ("gemm 1x32x64x2400 f32,f32->f32: k_blocking runs" in lines) == on_cpu
