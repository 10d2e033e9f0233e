"""Helpers of the tests of paddings, poolings and resamplings."""

import pytest
import torch

from tests.layouts import on_device

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGER = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
COMPLEX = [torch.complex64, torch.complex128]


def sample(*shape, dtype=torch.float32, seed=0):
    """Quarters: sums of them are exact, in half precision too."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    low = 0 if dtype == torch.uint8 else -32
    values = torch.randint(low, 32, shape, generator=generator)
    if dtype.is_complex:
        return torch.complex(values / 4.0, values.flip(-1) / 4.0).to(dtype)
    return (values / 4).to(dtype) if dtype.is_floating_point else values.to(dtype)


def formats(x):
    """An image or volume in several layouts."""
    yield "contiguous", x
    if x.dim() in (4, 5):
        last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        yield "channels last", x.contiguous(memory_format=last)
    yield "strided", torch.stack([x, x], -1)[..., 1]
    yield "transposed", x.transpose(-1, -2).contiguous().transpose(-1, -2)


def moved(value):
    if isinstance(value, torch.Tensor):
        return on_device(value.detach()).requires_grad_(value.requires_grad)
    return value


def same(got, want, what, **tolerance):
    assert got.device.type == "ocl" and got.dtype == want.dtype, what
    torch.testing.assert_close(
        got.cpu(), want, equal_nan=True, msg=lambda text: f"{what}: {text}", **tolerance
    )
    if want.dim() in (4, 5) and want.numel():
        last = torch.channels_last if want.dim() == 4 else torch.channels_last_3d
        for form in (torch.contiguous_format, last):
            assert got.is_contiguous(memory_format=form) or not want.is_contiguous(
                memory_format=form
            ), f"{what}: memory format"


def check(call, *args, what="", **tolerance):
    """Results, and gradients of what is floating, are CPU torch's."""
    want = call(*args)
    got = call(*(moved(a) for a in args))
    wanted = want if isinstance(want, tuple) else (want,)
    gotten = got if isinstance(got, tuple) else (got,)
    assert len(wanted) == len(gotten)
    for g, w in zip(gotten, wanted, strict=True):
        same(g, w, what, **tolerance)
    return got


def check_gradients(call, x, what="", second=False, **tolerance):
    """The gradient of call(x)[0], and (second) that gradient's own gradients, are CPU torch's."""

    def gradients(leaf):
        leaf = leaf.detach().requires_grad_()
        out = call(leaf)
        out = out[0] if isinstance(out, tuple) else out
        ones = sample(*out.shape, dtype=leaf.dtype, seed=1)
        cotangent = on_device(ones) if leaf.device.type == "ocl" else ones
        cotangent = cotangent.to(memory_format=torch.preserve_format).requires_grad_()
        (grad,) = torch.autograd.grad(out, leaf, cotangent, create_graph=second)
        if not second:
            return (grad,)
        again = sample(*grad.shape, dtype=leaf.dtype, seed=2).to(leaf.device)
        return grad, *torch.autograd.grad(grad, cotangent, again)

    for g, w in zip(gradients(on_device(x)), gradients(x), strict=True):
        same(g.detach(), w.detach(), f"{what}, gradient", **tolerance)


def check_error(call, *args):
    """Bad arguments raise what CPU torch raises."""
    with pytest.raises(Exception) as want:
        call(*args)
    with pytest.raises(want.type) as got:
        call(*(moved(a) for a in args))
        torch.ocl.synchronize()
    assert got.type is want.type
