"""float8_e8m0fnu, an exponent alone: what it has no sign, no zero and no infinity for."""

import pytest
import torch

from tests.refusals import raise_the_same

E8M0 = torch.float8_e8m0fnu


def same_bits(actual, expected):
    assert actual.dtype == expected.dtype == E8M0
    assert actual.stride() == expected.stride()
    assert torch.equal(actual.cpu().view(torch.uint8), expected.view(torch.uint8))


def every(device):
    return torch.arange(256, dtype=torch.int32).to(torch.uint8).view(E8M0).to(device)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.zeros(5, dtype=E8M0, device=d),
        lambda d: torch.zeros(0, dtype=E8M0, device=d),
        lambda d: torch.ones(3, 4, dtype=E8M0, device=d).t()[:2].zero_(),
        lambda d: torch.ones(3, dtype=E8M0, device=d).fill_(0),
        lambda d: torch.full((3,), float("nan"), dtype=E8M0, device=d),
        lambda d: torch.full((3,), 2.0**127, dtype=E8M0, device=d),
        lambda d: torch.full((1,), -3.0, dtype=E8M0, device=d),  # one number loses its sign
        lambda d: torch.full((1,), 0.0, dtype=E8M0, device=d),
        lambda d: torch.full((1,), float("inf"), dtype=E8M0, device=d),
        lambda d: torch.full((), 1e-40, dtype=E8M0, device=d),
        lambda d: torch.eye(3, dtype=E8M0, device=d),
        lambda d: torch.linspace(1, 100, 1, dtype=E8M0, device=d),
        lambda d: torch.nn.functional.pad(every(d)[:2], (1, 1), value=1.0),
        lambda d: torch.diag_embed(every(d)[120:124]),
        lambda d: every(d).view(16, 16).t() * every(d).view(16, 16),
        lambda d: every(d).clone().mul_(every(d)),
        lambda d: every(d)[:0] * every(d)[:0],
        lambda d: every(d).view(2, 128).roll(3, 1),
    ],
)
def test_results(call):
    same_bits(call("ocl"), call("cpu"))


def test_assignments():
    host, device = every("cpu"), every("ocl")
    for tensor in (host, device):
        tensor[1] = 4.0
        tensor[2:5] = -0.1
        tensor[6] = float("inf")
    same_bits(device, host)


@pytest.mark.parametrize("values", [[3.0, -3.0, 0.0, -0.0, 1.5, 0.75], [1e-45, 3e-39, 1e-38]])
def test_signs_and_subnormals(values):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        host = torch.tensor(values, dtype=dtype)
        same_bits(host.to("ocl").to(E8M0), host.to(E8M0))


def test_comparisons():
    """A number becomes float8_e8m0fnu before it is compared: 0 is the smallest value."""
    host, device = every("cpu"), every("ocl")
    for value in (0, -1, 1, 1.05, float("inf"), 2.0**-127):
        assert torch.equal((device == value).cpu(), host == value)
        assert torch.equal((device != value).cpu(), host != value)
    assert torch.equal(device.isfinite().cpu(), host.isfinite())
    assert device.bool().all()


def test_as_a_float():
    """Also the bits of its NaN."""
    host, device = every("cpu"), every("ocl")
    assert torch.equal(device.float().cpu().view(torch.int32), host.float().view(torch.int32))


def test_printing():
    for part in (slice(0, 3), slice(120, 130), slice(250, 256)):
        numbers = repr(every("cpu")[part]).split("]")[0].split()
        assert repr(every("ocl")[part]).split("]")[0].split() == numbers


def test_refusals():
    raise_the_same(
        [
            lambda d: torch.full((2,), 0.0, dtype=E8M0, device=d),
            lambda d: torch.full((2,), -3.0, dtype=E8M0, device=d),
            lambda d: torch.full((2,), float("inf"), dtype=E8M0, device=d),
            lambda d: torch.nn.functional.pad(every(d), (1, 1)),
            lambda d: every(d).abs(),
            lambda d: every(d).isinf(),
            lambda d: every(d) * 2,
            lambda d: every(d)[:1] * every(d)[:1],
            lambda d: every(d) + every(d),
            lambda d: every(d) + 1,
            lambda d: every(d).clamp(0, 1),
            lambda d: every(d).sort(),
            lambda d: every(d).unique(),
            lambda d: every(d).max(),
            lambda d: every(d).index_fill(0, torch.tensor([1], device=d), 1.0),
            lambda d: torch.linspace(1, 100, 5, dtype=E8M0, device=d),
            lambda d: torch.arange(3, dtype=E8M0, device=d),
            lambda d: torch.rand(3, dtype=E8M0, device=d),
        ]
    )
