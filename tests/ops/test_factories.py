"""Sequences and matrices made of a formula, against CPU torch."""

import pytest
import torch

REAL = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
]  # fmt: skip


def check(device, make, **tolerance):
    want = make("cpu")
    got = make(device)
    assert got.device.type == "ocl" and got.dtype == want.dtype
    torch.testing.assert_close(got.cpu(), want, **tolerance)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("args", [(10,), (3, 100), (0, 50, 7), (5, 5), (100, 3, -9), (0, 120, 1)])
def test_arange(device, dtype, args):
    check(device, lambda d: torch.arange(*args, dtype=dtype, device=d))


def test_arange_inference(device):
    for args in [(5,), (5.0,), (1, 2, 0.1), (2**40, 2**40 + 5), (-0.5, 3.5)]:
        check(device, lambda d, args=args: torch.arange(*args, device=d))
    check(device, lambda d: torch.arange(0, 100000, 0.1, device=d))
    check(device, lambda d: torch.arange(10, out=torch.empty(20, dtype=torch.int64, device=d)[::2]))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("args", [(0, 10), (1, 100, 3), (10, 1, -2)])
@pytest.mark.filterwarnings("ignore:torch.range")
def test_range(device, dtype, args):
    check(device, lambda d: torch.range(*args, dtype=dtype, device=d))


@pytest.mark.filterwarnings("ignore:torch.range")
def test_range_of_integers_with_a_step_below_one(device):
    with pytest.raises(RuntimeError, match="step must be nonzero"):
        torch.range(0, 1, 0.1, dtype=torch.int32, device=device)


@pytest.mark.parametrize("dtype", REAL + [torch.complex64, torch.complex128])
@pytest.mark.parametrize("args", [(0, 10, 5), (-3, 7, 1), (2, 2, 4), (5, 1, 101), (0, 1, 0)])
def test_linspace(device, dtype, args):
    if dtype == torch.uint8:
        args = (abs(args[0]), *args[1:])
    check(device, lambda d: torch.linspace(*args, dtype=dtype, device=d))


# Vectors, and both halves of a symmetric sequence cut anywhere by work-items.
@pytest.mark.parametrize("dtype", [*REAL, torch.complex64])
@pytest.mark.parametrize("steps", [15, 16, 17, 4095, 4097, 10007])
def test_long_sequences(device, dtype, steps):
    check(device, lambda d: torch.linspace(1, 100, steps, dtype=dtype, device=d))
    if dtype not in (torch.int8, torch.uint8):
        check(device, lambda d: torch.logspace(0, 2, steps, dtype=dtype, device=d))
    if not dtype.is_complex:
        last = min(steps, 100)
        check(device, lambda d: torch.arange(0, last, last / steps, dtype=torch.float64, device=d))
        check(device, lambda d: torch.arange(3, 3 + last, dtype=dtype, device=d))
    check(device, lambda d: torch.arange(-5, 3 * steps, 7, device=d))


def test_sequence_bounds_that_wrap(device):
    check(device, lambda d: torch.linspace(0, -1, 3, dtype=torch.uint8, device=d))
    check(device, lambda d: torch.linspace(1e30, 0, 1, dtype=torch.float16, device=d))
    check(device, lambda d: torch.logspace(0.5, 1e30, 1, dtype=torch.int64, device=d))


def test_linspace_of_tensors(device):
    check(
        device,
        lambda d: torch.linspace(torch.tensor(1.0).to(d), torch.tensor(2.0).to(d), 7, device=d),
    )
    check(device, lambda d: torch.linspace(1 + 2j, 4 - 1j, 6, dtype=torch.complex64, device=d))


@pytest.mark.parametrize("dtype", [d for d in REAL if d not in (torch.int8, torch.uint8)])
@pytest.mark.parametrize("args", [(0, 3, 4), (0, 2, 1), (3, 0, 10), (0, 4, 5, 2.0), (0, 1, 0)])
def test_logspace(device, dtype, args):
    check(device, lambda d: torch.logspace(*args, dtype=dtype, device=d))


def test_logspace_complex(device):
    check(
        device,
        lambda d: torch.logspace(0, 2, 5, dtype=torch.complex64, device=d),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("dtype", REAL + [torch.bool, torch.complex64])
@pytest.mark.parametrize("args", [(3,), (3, 5), (5, 2), (0,), (0, 3), (70, 65)])
def test_eye(device, dtype, args):
    check(device, lambda d: torch.eye(*args, dtype=dtype, device=d))


@pytest.mark.parametrize("dtype", REAL + [torch.bool, torch.complex64])
def test_constants(device, dtype):
    check(device, lambda d: torch.zeros(3, 5, dtype=dtype, device=d))
    check(device, lambda d: torch.ones(3, 5, dtype=dtype, device=d))
    check(device, lambda d: torch.full((3, 5), 1, dtype=dtype, device=d))
    check(device, lambda d: torch.zeros(4, 6, dtype=dtype, device=d)[:, ::2].fill_(1))
    check(device, lambda d: torch.ones(4, 6, dtype=dtype, device=d).t()[1:].zero_())
    check(
        device,
        lambda d: torch.zeros(4, dtype=dtype, device=d).fill_(torch.tensor(1, dtype=dtype).to(d)),
    )
    check(device, lambda d: torch.full_like(torch.empty(2, 3, dtype=dtype, device=d), 1))
    check(device, lambda d: torch.empty(2, 3, dtype=dtype, device=d).new_full((), 1))


@pytest.mark.parametrize("dtype", REAL[:4])
@pytest.mark.parametrize("length", [0, 1, 2, 8, 301])
def test_windows(device, length, dtype):
    for name in ("bartlett", "blackman", "hamming", "hann", "kaiser"):
        make = getattr(torch, f"{name}_window")
        for periodic in (True, False):
            check(device, lambda d, make=make, p=periodic: make(length, p, dtype=dtype, device=d))
    window = torch.kaiser_window(length, True, 3.5, device=device, requires_grad=True)
    assert window.requires_grad and window.is_leaf
    check(device, lambda d: torch.kaiser_window(length, True, 3.5, dtype=dtype, device=d))
    check(device, lambda d: torch.kaiser_window(length, False, 0.0, dtype=dtype, device=d))


def test_complex_and_polar(device):
    a, b = torch.randn(5, 6), torch.randn(5, 6)
    check(device, lambda d: torch.complex(a.to(d), b.to(d)))
    check(device, lambda d: torch.polar(a.to(d).abs(), b.to(d)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("offset", [-9, -2, -1, 0, 1, 2, 4, 9])
@pytest.mark.parametrize(
    "shape", [(3, 3), (4, 6), (6, 4), (1, 5), (5, 1), (0, 3), (3, 0), (65, 70)]
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_triangle_indices(device, shape, offset, dtype):
    check(device, lambda d: torch.tril_indices(*shape, offset, dtype=dtype, device=d))
    check(device, lambda d: torch.triu_indices(*shape, offset, dtype=dtype, device=d))


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.arange(0, 5, 0, device=d),
        lambda d: torch.arange(5, 0, device=d),
        lambda d: torch.arange(0, float("inf"), device=d),
        lambda d: torch.linspace(0, 1, -1, device=d),
        lambda d: torch.linspace(0, 255, 3, dtype=torch.int8, device=d),
        lambda d: torch.linspace(2**53, 0, 3, dtype=torch.int16, device=d),
        lambda d: torch.linspace(0, 2**53, 3, dtype=torch.int32, device=d),
        lambda d: torch.linspace(0, 1e30, 3, dtype=torch.float16, device=d),
        lambda d: torch.linspace(0, 1e300, 3, device=d),
        lambda d: torch.linspace(0, 1, 3, dtype=torch.bool, device=d),
        lambda d: torch.logspace(0, 1, -1, device=d),
        lambda d: torch.logspace(0, 255, 3, dtype=torch.int8, device=d),
        lambda d: torch.logspace(0, 1e30, 3, dtype=torch.float16, device=d),
        lambda d: torch.eye(-1, device=d),
        lambda d: torch.tril_indices(-1, 3, device=d),
    ],
)
def test_bad_arguments(device, call):
    with pytest.raises(Exception) as on_cpu:
        call("cpu")
    with pytest.raises(type(on_cpu.value)):
        call(device)


@pytest.mark.parametrize("function", [torch.linspace, torch.logspace])
def test_sequences_of_bool(function):
    """The name of the function and the dtype are said, as on the CPU."""
    for device in ("cpu", "ocl"):
        with pytest.raises(NotImplementedError, match=f"{function.__name__}.* for 'Bool'"):
            function(0, 1, 3, out=torch.empty(3, dtype=torch.bool, device=device))
