"""Fourier transforms against CPU torch in double precision: lengths, layouts, norms, real and
Hermitian signals, gradients, out=, bad input. They run once more with a GPU's kernels."""

import math
from functools import partial

import numpy as np
import pytest
import scipy.fft
import torch
from torch import fft
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu
from tests.layouts import layouts, on_device

NORMS = ["backward", "ortho", "forward"]
DTYPES = [torch.float32, torch.float64]
#: Products of the radices, powers of primes that have none of their own, prime factors up to the
#: largest that is transformed by definition, primes and products past it.
LONGER = [97, 122, 128, 169, 200, 243, 256, 343, 480, 500, 509, 625, 720, 961, 1000, 1018, 1024]
LONGEST = [1331, 2048, 2187, 2400, 3000, 3721, 4096, 4099, 5000, 8198, 10007, 30030, 65536, 100000]


def complex_of(dtype):
    return torch.complex64 if dtype == torch.float32 else torch.complex128


def double_of(x):
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def check(call, x, n=None, what=None, expected=None):
    """call(x) on the device: CPU torch's dtype, shape and strides, and the expected values (CPU
    torch's in double precision) but for an error that grows with the logarithm of n (by default all
    of x)."""
    expected = call(double_of(x)) if expected is None else expected
    actual, like = call(on_device(x)), call(x)
    assert (actual.dtype, actual.shape) == (like.dtype, like.shape), what
    assert actual.stride() == like.stride(), what
    n = x.numel() if n is None else n
    error = (double_of(actual.cpu()) - expected).abs().max()
    bound = torch.finfo(x.dtype).eps * (2 + 0.5 * math.log2(n)) * expected.abs().max()
    assert error <= bound, f"{what}: off by {error}, {bound} is allowed"


def exactly(transform, x, n):
    """The transform of x in long double: CPU torch's of float64 are, on some machines, off by more
    than is allowed here at lengths with prime factors such as 17 or 61."""
    wide = x.numpy().astype(np.clongdouble if x.is_complex() else np.longdouble)
    result = getattr(scipy.fft, transform)(wide, n)
    return torch.from_numpy(result.astype(np.complex128 if np.iscomplexobj(result) else np.float64))


def check_length(n, batch, dtype):
    signal = torch.randn(batch, n, dtype=complex_of(dtype))
    reals = torch.randn(batch, n, dtype=dtype)
    half = signal[:, : n // 2 + 1].contiguous()
    for name, x in [
        ("fft", signal),
        ("ifft", signal),
        ("rfft", reals),
        ("fft", reals),
        ("irfft", half),
    ]:
        what = (n, batch, name, x.dtype)
        check(partial(getattr(fft, name), n=n), x, n, what, exactly(name, x, n))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("batch", [1, 3, 20])
def test_short_lengths(batch, dtype):
    for n in range(1, 71):
        check_length(n, batch, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", LONGER)
def test_longer_lengths(n, dtype):
    check_length(n, 1, dtype)
    check_length(n, 35, dtype)


@pytest.mark.parametrize("n", LONGEST)
def test_longest_lengths(n):
    check_length(n, 1, torch.float32)
    check_length(n, 3, torch.float32)
    check_length(n, 2, torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2**20, 1000003, 2**23, 9699690])
def test_huge_lengths(n):
    signal = torch.randn(n, dtype=torch.complex64)
    check(fft.fft, signal, n)
    check(fft.rfft, signal.real.contiguous(), n)
    check(lambda t: fft.irfft(t, n), signal[: n // 2 + 1], n)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_impulse_gives_the_roots_of_unity(dtype):
    """Every twiddle factor shows by itself, to the last digits."""
    for n in (60, 77, 128, 1021, 4096):
        for at in (1, n // 3, n - 1):
            signal = torch.zeros(n, dtype=complex_of(dtype))
            signal[at] = 1
            phase = torch.arange(n, dtype=torch.int64) * at % n
            turn = phase.double() * (-2 * math.pi / n)
            expected = torch.polar(torch.ones(n, dtype=torch.float64), turn)
            error = (double_of(fft.fft(signal.to("ocl")).cpu()) - expected).abs().max()
            assert error < 8 * torch.finfo(dtype).eps, (n, at)


@pytest.mark.parametrize("batch", [1, 2, 15, 16, 17, 33, 100, 1000])
@pytest.mark.parametrize("n", [6, 16, 45, 64, 67])
def test_batches(n, batch):
    check(fft.fft, torch.randn(batch, n, dtype=torch.complex64), n)
    check(lambda t: fft.fft(t, dim=0), torch.randn(n, batch, dtype=torch.complex64), n)
    check(fft.rfft, torch.randn(batch, n), n)
    check(lambda t: fft.rfft(t, dim=0), torch.randn(n, batch), n)
    check(
        lambda t: fft.irfft(t, n, dim=0), torch.randn(n // 2 + 1, batch, dtype=torch.complex64), n
    )


@pytest.mark.parametrize("shape", [(3, 5, 7), (6, 20, 18), (17, 32, 33)], ids=str)
@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (2, 0), (-1, -2), (0, 1, 2)], ids=str)
def test_layouts_and_dims(shape, dims):
    for label, x in layouts(torch.randn(shape, dtype=torch.complex64)):
        check(lambda t: fft.fftn(t, dim=dims), x, what=label)
        check(lambda t: fft.ifftn(t, dim=dims), x, what=label)
        # The real signal's elements aren't neighbours.
        check(lambda t: fft.rfftn(t.real, dim=dims), x, what=label)
        check(lambda t: fft.irfftn(t, dim=dims), x, what=label)


@pytest.mark.parametrize("n", [96, 1000, 4096, 16384])
def test_pairs_of_reals_that_are_not_aligned(n):
    """Reals that begin at an odd element are no complex numbers that a GPU could load whole."""
    for batch in (1, 5):
        reals = torch.randn(batch, n + 2)[:, 1 : n + 1]
        check(fft.rfft, reals, n, (n, batch))
        check(fft.fft, reals, n, (n, batch, "whole"))


@pytest.mark.parametrize("n", [224, 1260, 2048, 4096])
def test_lines_across_signals(n):
    """Adjacent signals are the neighbours in memory; the last work-group has too few of them."""
    for signals in (1, 3, 9):
        signal = torch.randn(n, signals, dtype=torch.complex64)
        check(lambda t: fft.fft(t, dim=0), signal, n)
        check(lambda t: fft.rfft(t.real, dim=0), signal, n)
        check(lambda t: fft.irfft(t, dim=0), signal, n)


@pytest.mark.parametrize("n", [600, 1030])
def test_long_lines_of_any_strides(n):
    """Cut into several steps, or transformed by Bluestein's algorithm, along each dimension."""
    for dim in range(3):
        shape = [2, 3, 2]
        shape[dim] = n
        for label, x in layouts(torch.randn(shape, dtype=torch.complex64)):
            for d in range(3):
                if x.shape[d] > 100:
                    check(lambda t, d=d: fft.fft(t, dim=d), x, what=(label, dim, d))
                    check(lambda t, d=d: fft.rfft(t.real, dim=d), x, what=(label, dim, d))
                    check(lambda t, d=d: fft.irfft(t, dim=d), x, what=(label, dim, d))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
def test_norms_sizes_and_every_function(norm, dtype):
    x = torch.randn(6, 9, 10, dtype=dtype)
    for name in ("fft", "ifft", "hfft", "irfft"):
        for n in (4, 10, 13):
            check(lambda t, name=name, n=n: getattr(fft, name)(t, n, 1, norm), x, what=(name, n))
    for name in ("fft2", "ifft2", "irfft2", "hfft2", "fftn", "ifftn", "irfftn", "hfftn"):
        for s in ((4, 7), (13, 12)):
            call = getattr(fft, name)
            check(lambda t, call=call, s=s: call(t, s, (0, 2), norm), x, what=(name, s))
    if not dtype.is_complex:
        check(lambda t: fft.rfft(t, 13, 1, norm), x)
        check(lambda t: fft.ihfft(t, 12, 1, norm), x)
        for name in ("rfft2", "rfftn", "ihfft2", "ihfftn"):
            check(lambda t, name=name: getattr(fft, name)(t, (5, 8), (2, 0), norm), x, what=name)


@pytest.mark.parametrize("n", [8, 9, 134, 67, 4096, 2001])
def test_half_spectra_need_not_be_hermitian(n):
    """Imaginary parts that reals can't have are ignored, infinite ones too."""
    spectrum = torch.randn(3, n // 2 + 1, dtype=torch.complex64)
    check(lambda t: fft.irfft(t, n), spectrum, n)
    check(lambda t: fft.irfft2(t, (3, n)), spectrum)
    cleaned = spectrum.clone()
    cleaned.imag[:, 0] = 0
    if n % 2 == 0:
        cleaned.imag[:, -1] = 0
    assert torch.equal(fft.irfft(spectrum.to("ocl"), n), fft.irfft(cleaned.to("ocl"), n))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=str)
def test_integers_become_floats(dtype):
    x = torch.randint(0, 2, (5, 12)).to(dtype)
    for name in ("fft", "rfft", "ihfft", "irfft"):
        call = getattr(fft, name)
        assert_close(call(x.to("ocl")).cpu(), call(x))


def test_conjugate_and_negative_views():
    x = torch.randn(4, 30, dtype=torch.complex64)
    for call in (
        lambda t: fft.fft(t.conj()),
        lambda t: fft.irfft(t.conj()),
        lambda t: fft.rfft(t.conj().imag),
        lambda t: fft.fft(t, dim=0).conj() * fft.ifft(t, dim=0),
    ):
        assert_close(call(x.to("ocl")).cpu(), call(x))


def test_many_dimensions():
    """More than the kernel takes, none of which merge."""
    x = torch.randn((2,) * 19, dtype=torch.complex64).permute(*range(18, -1, -1))
    strided = torch.stack([x, x], -1)[..., 0].transpose(0, 9).transpose(1, 5)
    expected = fft.fft(strided, dim=4)
    assert_close(fft.fft(on_device(strided), dim=4).cpu(), expected)


@pytest.mark.parametrize("n", [7, 12, 67, 256])
def test_gradients(n):
    x = torch.randn(3, n, dtype=torch.complex128)
    reals = torch.randn(3, n, dtype=torch.float64)
    for call, source in (
        (fft.fft, x),
        (lambda t: fft.ifft(t, norm="ortho", dim=0), x),
        (fft.rfft, reals),
        (fft.fft, reals),
        (fft.irfft, x),
        (fft.hfft, x),
        (lambda t: fft.irfft(t, n), x[:, : n // 2 + 1]),
        (fft.rfft2, reals),
        (fft.irfft2, x),
        (fft.fft2, x),
    ):
        gradients = []
        for leaf in (source.clone(), source.to("ocl")):
            leaf.requires_grad_()
            result = torch.view_as_real(y) if (y := call(leaf)).is_complex() else y
            weight = torch.linspace(-1, 2, result.numel(), dtype=torch.float64)
            (result * weight.view(result.shape).to(leaf.device)).sum().backward()
            gradients.append(leaf.grad.cpu())
        assert_close(*reversed(gradients))


@pytest.mark.parametrize("n", [6, 15])
def test_second_derivatives(n):
    for call, dtype in ((fft.fft, torch.complex128), (fft.rfft, torch.float64)):
        x = torch.randn(2, n, dtype=dtype).to("ocl").requires_grad_()
        assert torch.autograd.gradcheck(call, x, eps=1e-6)
        assert torch.autograd.gradgradcheck(call, x, eps=1e-6)


def test_out():
    x = torch.randn(4, 30, dtype=torch.complex64)
    reals = x.real.contiguous()
    for call, source, dtype in (
        (fft.fft, x, torch.complex64),
        (fft.fft, x, torch.complex128),
        (fft.fft2, x, torch.complex64),
        (fft.rfft, reals, torch.complex64),
        (fft.fft, reals, torch.complex64),
        (fft.irfft, x, torch.float32),
        (lambda t, out: torch.ops.aten._fft_c2r.out(t, [0, 1], 1, 59, out=out), x, torch.float64),
        (lambda t, out: torch.ops.aten._fft_r2c.out(t, [0, 1], 2, False, out=out), reals, x.dtype),
    ):
        expected = call(source, out=torch.empty(0, dtype=dtype))
        for out in (
            torch.empty(0, dtype=dtype, device="ocl"),
            torch.empty((*expected.shape, 2), dtype=dtype, device="ocl")[..., 1],
            torch.empty(expected.shape[::-1], dtype=dtype, device="ocl").t(),
        ):
            assert call(source.to("ocl"), out=out) is out
            assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-5)
    inplace = x.to("ocl")
    fft.fft(inplace, out=inplace)
    assert_close(inplace.cpu(), fft.fft(x))


BAD = {
    "half": lambda d: fft.fft(torch.ones(8, dtype=torch.float16, device=d)),
    "bfloat16": lambda d: fft.rfft(torch.ones(8, dtype=torch.bfloat16, device=d)),
    "complex half": lambda d: (
        fft.fft(torch.ones(8, dtype=torch.float16, device=d).to(torch.cfloat))
        and torch.ops.aten._fft_c2c(torch.ones(8, device=d).to(torch.complex32), [0], 0, True)
    ),
    "half to complex": lambda d: torch._fft_r2c(torch.ones(8, device=d).half(), [0], 0, True),
    "complex to rfft": lambda d: fft.rfft(torch.ones(8, dtype=torch.cfloat, device=d)),
    "real to c2c": lambda d: torch._fft_c2c(torch.ones(8, device=d), [0], 0, True),
    "real to c2r": lambda d: torch._fft_c2r(torch.ones(8, device=d), [0], 0, 8),
    "complex to r2c": lambda d: torch._fft_r2c(
        torch.ones(8, device=d).to(torch.cfloat), [0], 0, True
    ),
    "no dimension of reals": lambda d: torch._fft_r2c(torch.ones(8, device=d), [], 0, True),
    "no dimension to reals": lambda d: torch._fft_c2r(
        torch.ones(8, device=d).to(torch.cfloat), [], 0, 8
    ),
    "the dimension twice": lambda d: torch._fft_c2c(
        torch.ones(8, 9, device=d).to(torch.cfloat), [1, 1], 0, True
    ),
    "a dimension too many": lambda d: torch._fft_c2c(
        torch.ones(8, 9, device=d).to(torch.cfloat), [2], 0, True
    ),
    "a dimension out of range": lambda d: fft.fft(torch.ones(8, device=d), dim=1),
    "another size to reals": lambda d: torch._fft_c2r(
        torch.ones(5, device=d).to(torch.cfloat), [0], 0, 12
    ),
    "no elements": lambda d: fft.fft(torch.ones(3, 0, device=d)),
    "no signals": lambda d: fft.fft(torch.ones(0, 3, device=d)),
    "no signals of reals": lambda d: fft.rfft(torch.ones(0, 3, device=d)),
    "no signals to reals": lambda d: fft.irfft(torch.ones(0, 3, device=d)),
    "n of 0": lambda d: fft.fft(torch.ones(3, device=d), n=0),
    "an unknown norm": lambda d: fft.fft(torch.ones(3, device=d), norm="none"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_bad_input(name):
    with pytest.raises((RuntimeError, IndexError)) as expected:
        BAD[name]("cpu")
    with pytest.raises(type(expected.value)) as actual:
        BAD[name]("ocl")
    assert type(actual.value) is type(expected.value)


def test_no_dimensions_copy():
    x = torch.randn(3, 4, dtype=torch.complex64, device="ocl")
    y = torch._fft_c2c(x, [], 0, True)
    assert torch.equal(x, y) and y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("length", [16, 30])
def test_spectrograms(center, length):
    """stft and back; centred by padding with zeros."""
    x = torch.randn(2, 200)
    window = torch.hann_window(length)
    arguments = {"n_fft": length, "hop_length": length // 4, "center": center}

    def spectrogram(t):
        return torch.stft(
            t, **arguments, window=window.to(t.device), pad_mode="constant", return_complex=True
        )

    expected = spectrogram(x)
    assert_close(spectrogram(x.to("ocl")).cpu(), expected)
    if center:
        back = torch.istft(expected.to("ocl"), **arguments, window=window.to("ocl"))
        assert_close(back.cpu(), torch.istft(expected, **arguments, window=window))


def test_streams_share_tables():
    """Tables made on one stream serve transforms on others."""
    x = torch.randn(40, 90, dtype=torch.complex64)
    device = x.to("ocl")
    torch.ocl.synchronize()
    results = []
    for _ in range(3):
        with torch.ocl.stream(torch.ocl.Stream()):
            results.append(fft.fft(device))
    torch.ocl.synchronize()
    for result in results:
        assert_close(result.cpu(), fft.fft(x))


def test_tables_that_are_forgotten_come_back():
    """More lengths than the cache holds tables for."""
    lengths = list(range(2, 700, 2))
    for n in lengths[:3] + lengths + lengths[:3]:
        x = torch.ones(1, n).to("ocl")
        assert abs(fft.rfft(x)[0, 0].item() - n) < 1e-3


@pytest.mark.slow
@pytest.mark.as_gpu
def test_as_a_gpu():
    """Everything above with the kernels that GPUs get."""
    run_as_gpu(__file__, "-k", "not forgotten")  # which takes a program for each of many lengths
