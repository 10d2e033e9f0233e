"""Sums of single precision on devices without double precision, or with a slow one.

They keep the digits that CPU torch's double precision keeps."""

import os

import pytest

from tests.as_gpu import UNVECTORISED
from tests.fresh import run_script

START = """
import os
import torch
from torch.testing import assert_close
assert not torch.ocl.get_device_properties(0).has_fp64
generator = torch.Generator().manual_seed(3)

def near(found, exact, parts, rounding):
    '''Half a unit in the last place, and some of what it is the sum of.'''
    allowed = 2.0**-24 * exact.abs() * 1.01 + rounding * parts
    error = (found.cpu().double() - exact).abs()
    assert (error <= allowed).all(), (error / allowed).max()
"""
SCANS = """
# PoCL 3.1 builds GPUs' kernels of several chunks for this into code that crashes, in any dtype.
platform = torch.ocl.get_device_properties(0).platform_name
crashes = platform.startswith("Portable") and os.environ["TORCH_OCL_TUNE_AS"] == "gpu"
LINES = (((1, 1_000_003), 1), ((300_001, 3), 0), ((4, 5000), 1), ((5000, 40), 0), ((7, 9), 1))
for shape, dim in LINES:
    signs = torch.arange(shape[dim]) % 2 * 2 - 1
    x = torch.randn(shape, generator=generator) + 1e3 * (signs[:, None] if dim == 0 else signs)
    y = x.to("ocl")
    near(y.cumsum(dim), x.double().cumsum(dim), x.double().abs().cumsum(dim), 2.0**-44)
    # Products of numbers around 1 lose a rounding at each step.
    x = (1 + 1e-4 * torch.randn(shape, generator=generator)).float()
    exact = x.double().cumprod(dim)
    near(x.to("ocl").cumprod(dim), exact, exact, 2.0**-44 * shape[dim]**0.5)
    if crashes and shape[dim] > 5000:
        continue
    x = torch.randn(shape, generator=generator)
    exact = x.double().logcumsumexp(dim)
    assert_close(x.to("ocl").logcumsumexp(dim).cpu().double(), exact, rtol=2e-7, atol=3e-7)

# Infinities, NaNs, signed zeros and numbers past the range go where they go on the CPU.
inf, nan = torch.inf, torch.nan
close = {"rtol": 1e-6, "atol": 1e-40, "equal_nan": True}
ROWS = ([1., inf, 2., -3.], [1., -inf, inf, 2.], [nan, 1., inf], [3e38, 3e38, -3e38, 1.],
        [-0., -0., 1.], [0., inf, 1.], [1e-40, 1e-40, -1e-40], [inf, inf, -1.], [-inf, -inf, 2.],
        [-inf, 3., 4.])
for row in ROWS:
    for repeats in (1, 700):
        x = torch.tensor(row * repeats)
        for name in ("cumsum", "cumprod", "logcumsumexp"):
            expected = getattr(x.double(), name)(0).float()
            found = getattr(x.to("ocl"), name)(0).cpu()
            # A sum past the range has no way back in single precision.
            largest = getattr(x.double(), name)(0).abs().cummax(0)[0]
            kept = ~(expected.isfinite() & (largest > 3.4e38))
            said = lambda m: f"{name} of {row}: {m}"
            assert_close(found[kept], expected[kept], **close, msg=said)
assert torch.empty(0, 3, device="ocl").cumsum(0).shape == (0, 3)
assert torch.tensor(2., device="ocl").cumsum(0).item() == 2
"""
MOMENTS = """
SHAPES = ((3, 1_000_003), (2, 5000), (40, 37), (1, 1), (70, 2))
for shape in SHAPES:
    for mean, spread in ((0, 1), (1e4, 1), (-1e6, 1), (3, 1e-3), (1e19, 1e15), (0, 1e-12)):
        x = (torch.randn(shape, generator=generator) * spread + mean).float()
        for first in (None, 50):
            if first is not None and spread >= 1:
                x[:, 0] += first * spread  # an unlike one
            for dim in (0, 1, None):
                for y, z in ((x, x.to("ocl")), (x.t(), x.to("ocl").t())):
                    variance, m = torch.var_mean(z, dim=dim, correction=0)
                    exact, exact_m = torch.var_mean(y.double(), dim=dim, correction=0)
                    said = lambda m: f"{shape, mean, spread, dim} {m}"
                    found = variance.cpu().double()
                    assert_close(found, exact, rtol=2e-6, atol=0, msg=said)
                    size = y.double().abs()
                    size = size.mean() if dim is None else size.mean(dim)
                    error = (m.cpu().double() - exact_m).abs()
                    assert (error <= 3e-7 * size).all(), said((error / size).max())
                    found = z.std(dim, correction=0).cpu().double()
                    assert_close(found, exact.sqrt(), rtol=2e-6, atol=0)
for value in (0.1, 1e30, -7e-30):
    for shape in ((4, 3000), (3000, 40), (2, 200_001)):
        x = torch.full(shape, value, device="ocl")
        for dim in (0, 1):
            variance, mean = torch.var_mean(x, dim)
            assert not variance.any() and (mean == x[0, 0]).all()
# As the CPU has infinities and NaNs, wherever they are.
for bad in (torch.inf, -torch.inf, torch.nan):
    for place in (0, 3, 4999):
        for shape in ((5000, 40), (40, 5000)):
            x = torch.randn(shape, generator=generator)
            dim = shape.index(5000)
            x.select(dim, place)[::2] = bad
            variance, mean = torch.var_mean(x.to("ocl"), dim)
            # CPU torch's mean is a NaN here where the infinity isn't the last one.
            expected, expected_mean = x.double().var(dim), x.double().mean(dim)
            assert_close(variance.cpu(), expected.float(), rtol=2e-6, atol=0, equal_nan=True)
            assert_close(mean.cpu(), expected_mean.float(), rtol=1e-6, atol=1e-6, equal_nan=True)
assert torch.empty(0, 3, device="ocl").var(0).isnan().all()
assert torch.empty(3, 0, device="ocl").var(0).shape == (0,)
for dtype in (torch.float16, torch.bfloat16):
    x = (torch.randn(64, 700, generator=generator) + 100).to(dtype)
    for dim in (0, 1):
        assert_close(x.to("ocl").var(dim).cpu(), x.double().var(dim).to(dtype), rtol=1e-2, atol=0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("tune_as", ["cpu", "gpu"])
@pytest.mark.parametrize("what", [SCANS, MOMENTS], ids=["scans", "moments"])
def test_sums(what, tune_as):
    environment = {
        **os.environ,
        "TORCH_OCL_WITHOUT": "fp64",
        "TORCH_OCL_TUNE_AS": tune_as,
        **UNVECTORISED,
    }
    done = run_script(START + what, environment=environment)
    assert done.returncode == 0, done.stderr[-3000:]
