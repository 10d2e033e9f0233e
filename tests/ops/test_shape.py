"""Ops that place elements elsewhere, against CPU torch."""

import pytest
import torch

from tests.layouts import on_device

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


def sample(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    return (
        (torch.randn(shape) * 10).to(dtype)
        if dtype.is_floating_point
        else torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)
    )


def check(device, call, *tensors, **tolerance):
    want = call(*tensors)
    got = call(*(t.to(device) for t in tensors))
    if isinstance(want, torch.Tensor):
        assert got.device.type == "ocl" and got.dtype == want.dtype and got.shape == want.shape
        torch.testing.assert_close(got.cpu(), want, equal_nan=True, **tolerance)
    else:
        assert got == want
    return got


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_cat(device, dtype, dim):
    shape = [3, 4, 5]
    tensors = []
    for size in (2, 1, 7, 0, 3):
        shape[dim] = size
        tensors.append(sample(*shape, dtype=dtype))
    check(device, lambda *t: torch.cat(t, dim), *tensors)


def test_cat_mixes(device):
    a, b, c = sample(3, 4), sample(2, 4, dtype=torch.int64), sample(5, 4, dtype=torch.float64)
    check(device, lambda *t: torch.cat(t), a, b, c)
    check(device, lambda *t: torch.cat(t), b, sample(1, 4, dtype=torch.bool))
    check(device, lambda *t: torch.cat(t), a, sample(1, 4, dtype=torch.complex64))
    check(device, lambda *t: torch.cat(t), torch.empty(0), a, torch.empty(0))
    check(device, lambda x: torch.cat([x.t(), x.t()[::2]]), a)
    check(device, lambda x: torch.cat([x, x], out=torch.empty(6, 4, device=x.device)), a)
    check(
        device,
        lambda x: torch.cat([x, x], out=torch.empty(6, 4, dtype=torch.float64, device=x.device)),
        a,
    )
    check(device, lambda x: torch.cat([x, x], out=torch.empty(4, 6, device=x.device).t()), a)
    check(device, lambda *t: torch.cat(t, 1), *[sample(3, 1) for _ in range(200)])
    check(device, lambda x: torch.cat([x.conj(), x]), sample(3, dtype=torch.complex64) * 1j)


JOINED = {
    "rows": lambda x: torch.cat(x.split(2)),
    "columns": lambda x: torch.cat(x.split(2, 1), 1),
    "elements": lambda x: torch.stack(list(x.flatten().unbind())),
    "with a gap": lambda x: torch.cat([x[:2], x[3:4], x[4:]]),
    "back to front": lambda x: torch.cat(list(x.split(1))[::-1]),
    "transposed": lambda x: torch.cat(x.t().split(2)),
    "a row's": lambda x: torch.cat(x[:1].split(2, 1), 1),
    "planes": lambda x: torch.cat(x[None].split(2, 1), 1),
    "twice": lambda x: torch.cat([x, x]),
    "another dtype": lambda x: torch.cat([x[:2], x[2:].to(torch.complex64)]),
    "one conjugate": lambda x: torch.cat([x.to(torch.complex64)[:2].conj(), x[2:]]),
    "conjugates": lambda x: torch.cat((x.to(torch.complex64) * 1j).conj().split(2)),
    "negative": lambda x: torch.cat(list((x * 1j).conj().imag.split(2))),
    "with nothing": lambda x: torch.cat([x[:2], x[2:2], x[2:]]),
}


@pytest.mark.parametrize("name", JOINED)
def test_cat_of_parts_of_one_tensor(device, name):
    x = torch.arange(42.0).view(6, 7)
    torch.testing.assert_close(JOINED[name](x.to(device)).cpu(), JOINED[name](x), rtol=0, atol=0)


def test_cat_of_what_was_one_tensor_is_one_copy(device):
    parts = list(torch.arange(50.0, device=device).unbind())
    torch.stack(parts)
    torch.ocl.reset_launch_count()
    torch.stack(parts)
    assert torch.ocl.launch_count() == 1


def test_cat_keeps_channels_last(device):
    x = sample(2, 3, 4, 5).to(memory_format=torch.channels_last)
    got = check(device, lambda t: torch.cat([t, t], 1), x)
    assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.cat([torch.zeros(2, 3).to(d), torch.zeros(2, 4).to(d)]),
        lambda d: torch.cat([torch.zeros(2, 3).to(d), torch.zeros(2).to(d)]),
        lambda d: torch.cat([torch.zeros(()).to(d)]),
        lambda d: torch.cat([torch.zeros(2).to(d)], 3),
        lambda d: torch.stack([torch.zeros(2).to(d), torch.zeros(3).to(d)]),
        lambda d: torch.zeros(2, 3).to(d).flip(5),
        lambda d: torch.zeros(2).to(d).tril(),
        lambda d: torch.zeros(2).to(d).trace(),
        lambda d: torch.zeros(2, 3).to(d).roll((1, 2), 0),
        lambda d: torch.repeat_interleave(torch.tensor([-1]).to(d)),
    ],
)
def test_bad_arguments(device, call):
    try:
        call("cpu")
    except Exception as error:
        with pytest.raises(type(error)):
            call(device)
    else:
        call(device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_joins_and_repeats(device, dtype):
    x = sample(3, 4, dtype=dtype)
    for dim in (0, 1, 2):
        check(device, lambda t, dim=dim: torch.stack([t, t, t], dim), x)
    check(device, lambda t: t.repeat(2, 3, 2), x)
    check(device, lambda t: t.expand(5, 3, 4).contiguous(), x)
    check(device, lambda t: torch.hstack([t, t]), x)
    check(device, lambda t: torch.tile(t, (2, 2)), x)
    check(device, lambda t: t.repeat_interleave(3, 1), x)


def test_repeat_interleave(device):
    x, n = sample(4, 3), torch.tensor([2, 0, 3, 1])
    check(device, lambda n: torch.repeat_interleave(n), n)
    check(device, lambda t, n: t.repeat_interleave(n, 0), x, n)
    check(device, lambda t, n: t.repeat_interleave(n, 0, output_size=6), x, n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_flip_and_roll(device, dtype):
    x = sample(3, 4, 5, dtype=dtype)
    for dims in [(0,), (1,), (2,), (0, 2), (0, 1, 2), (-1,), ()]:
        check(device, lambda t, dims=dims: t.flip(dims), x)
        check(device, lambda t, dims=dims: t.transpose(0, 2)[1:, ::2].flip(dims), x)
    for shifts, dims in [(1, 0), (-2, 1), (7, 2), ((1, 2), (0, 2)), (3, None)]:
        check(device, lambda t, s=shifts, d=dims: t.roll(s, d) if d is not None else t.roll(s), x)
    check(device, lambda t: t.rot90(1, (0, 1)), x)
    check(device, lambda t: torch.fliplr(t), x)


def test_flip_small(device):
    check(device, lambda t: t.flip(0), torch.empty(0, 3))
    check(device, lambda t: t.flip(()), torch.tensor(3.0))
    check(device, lambda t: t.expand(4, 5).flip(0, 1), sample(5))
    check(device, lambda t: t.flip(0), sample(100001))


# Rows of vectors and of a few elements more, of less than a vector, of several work-items.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(37, 51), (5, 3, 16), (7, 700, 3), (2, 5000), (3000, 2, 3), (9, 7)]
)
def test_flip_of_rows(device, dtype, shape):
    x = sample(*shape, dtype=dtype)
    for dims in [(0,), (-1,), (0, -1)]:
        check(device, lambda t, dims=dims: t.flip(dims), x)
        check(device, lambda t, dims=dims: t.transpose(0, -1).flip(dims), x)
        check(device, lambda t, dims=dims: t[1:, ..., 1:].flip(dims), x)
        check(device, lambda t, dims=dims: t[..., ::2].flip(dims), x)
    check(device, lambda t: t.rot90(1, (0, -1)), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("diagonal", [-7, -1, 0, 2, 9])
def test_triangles(device, dtype, diagonal):
    x = sample(2, 5, 6, dtype=dtype)
    for call in (torch.tril, torch.triu):
        check(device, lambda t, call=call: call(t, diagonal), x)
        check(device, lambda t, call=call: call(t.transpose(1, 2), diagonal), x)
        check(device, lambda t, call=call: call(t[:, ::2, 1:], diagonal), x)
        check(
            device,
            lambda t, call=call: call(
                t, diagonal, out=torch.empty(6, 5, 2, dtype=dtype, device=t.device).permute(2, 1, 0)
            ),
            x,
        )
    check(device, lambda t: t.tril_(diagonal), x.clone())
    check(device, lambda t: t.transpose(0, 2).triu_(diagonal), x.clone())
    check(device, lambda t: t.tril(), torch.empty(0, 3, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(37, 51), (3, 16, 16), (2, 70, 15), (2, 3, 9, 33), (5000, 2)])
def test_triangles_of_rows(device, dtype, shape):
    x = sample(*shape, dtype=dtype)
    for call in (torch.tril, torch.triu):
        for diagonal in (-shape[-2], -3, 0, 14, shape[-1]):
            check(device, lambda t, call=call, d=diagonal: call(t, d), x)
            check(device, lambda t, call=call, d=diagonal: call(t.mT, d), x)
            check(device, lambda t, call=call, d=diagonal: call(t[..., 1:, 1:], d), x)
    check(device, lambda t: t.clone().tril_(2), x)
    check(device, lambda t: t.clone().mT.triu_(-1), x)


def test_triangles_ignore_nan_outside(device):
    check(device, lambda t: t.tril(), torch.full((4, 4), float("nan")))
    check(device, lambda t: t.triu(), torch.full((2, 40, 50), float("nan")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
def test_diagonals(device, dtype):
    x = sample(4, 6, dtype=dtype)
    check(device, lambda t: torch.diag(t, 1), x)
    check(device, lambda t: torch.diag(t[0]), x)
    check(device, lambda t: torch.diag_embed(t, 1), x)
    check(device, lambda t: torch.diagonal(t, -1), x)
    check(device, lambda t: torch.trace(t), x)
    check(device, lambda t: torch.diagflat(t), x)
    check(device, lambda t: torch.block_diag(t, t), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad(device, dtype):
    x = sample(2, 3, 4, dtype=dtype)
    for pad in [(1, 2), (0, 0, 1, 3), (-1, 2), (1, 1, 1, 1, 1, 1)]:
        check(device, lambda t, pad=pad: torch.constant_pad_nd(t, pad, 1), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("dim,size,step", [(0, 2, 1), (1, 3, 2), (2, 2, 3), (-1, 5, 1), (1, 1, 1)])
def test_unfold_backward(device, dtype, dim, size, step):
    x = sample(5, 6, 7, dtype=dtype)

    def grad(t):
        t = t.clone().requires_grad_()
        y = t.unfold(dim, size, step)
        weights = (
            torch.arange(y.numel(), device=t.device, dtype=torch.float32).view(y.shape).to(dtype)
            / 100
        )
        return torch.autograd.grad((y * weights).sum(), t)[0]

    check(device, grad, x, **({"rtol": 1e-2, "atol": 1e-2} if dtype == torch.float16 else {}))


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal(device, dtype):
    x = sample(3, 4, dtype=dtype)
    y = x.clone()
    y[1, 2] = ~y[1, 2] if dtype == torch.bool else y[1, 2] + 1
    check(device, torch.equal, x, x.clone())
    check(device, torch.equal, x, y)
    check(device, lambda a: torch.equal(a, a), x)
    check(device, lambda a: torch.equal(a, a.t()), x)
    check(device, lambda a: torch.equal(a[:0], a[:0]), x)
    check(device, lambda a: torch.equal(a, a.double()), x.real)
    if dtype != torch.bool:
        check(device, lambda a, b: torch.allclose(a, b), x, y)
        check(device, torch.isclose, x, y)


@pytest.mark.parametrize("size", [1 << 18, (1 << 18) + 1, (1 << 20) + 12345, 3000001])
def test_equal_of_many(device, size):
    """They are compared in parts."""
    x = torch.arange(size, dtype=torch.int32, device=device)
    y = x.clone()
    assert torch.equal(x, y) and torch.equal(x.view(1, -1), y.view(1, -1))
    for place in (0, 65535, 65536, 1114111, 1114112, size - 1):
        if place < size:
            y[place] += 1
            assert not torch.equal(x, y)
            assert not torch.equal(x[::2], y[::2]) or place % 2
            y[place] -= 1
    assert torch.equal(x, y)


def test_equal_nan(device):
    check(device, lambda a: torch.equal(a, a), torch.tensor([1.0, float("nan")]))
    assert bool(torch.tensor(2.0).to(device)) and not bool(torch.tensor(0).to(device))


def test_narrow_copy_and_shuffles(device):
    x = sample(4, 6, 5)
    check(device, lambda t: torch.narrow_copy(t, 1, 2, 3), x)
    check(device, lambda t: torch.nn.functional.channel_shuffle(t.unsqueeze(-1), 3), x)
    check(device, lambda t: torch.nn.functional.pixel_shuffle(t.reshape(1, 4, 6, 5), 2), x)
    check(device, lambda t: torch.cartesian_prod(t[0, 0], t[0, 1]), x)
    check(device, lambda t: torch.stack(torch.meshgrid(t[0, 0], t[0, 1], indexing="ij")), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64], ids=str)
def test_pixel_shuffles_keep_the_format(device, dtype):
    x = sample(2, 18, 6, 9).to(dtype)
    last = x.to(memory_format=torch.channels_last)
    inputs = [x, last, x.transpose(2, 3), last[..., ::3], x[0], x[None], x[:0], x[..., :0]]
    for tensor in inputs:
        for function in (torch.pixel_shuffle, torch.pixel_unshuffle):
            actual = function(tensor.to(device), 3)
            # CPU torch's unshuffle of nothing has its input's shape.
            assert actual.shape == function(tensor.to("meta"), 3).shape
            if tensor.numel() == 0:
                continue
            expected = function(tensor, 3)
            assert torch.equal(actual.cpu(), expected)
            assert actual.stride() == expected.stride()


@pytest.mark.parametrize("shape", [(2, 8, 3), (2, 8, 3, 5), (2, 8, 2, 3, 2), (0, 4, 3), (2, 0, 3)])
def test_channel_shuffle_of_any_layout(shape):
    reverse = range(len(shape) - 1, -1, -1)
    layouts = [
        sample(*shape),
        sample(*shape[::-1]).permute(*reverse),
        sample(*shape, 2)[..., 0],
        sample(*shape[:2], *[1] * (len(shape) - 2)).expand(shape),
    ]
    if len(shape) == 4:
        layouts.append(sample(*shape).contiguous(memory_format=torch.channels_last))
    for x in layouts:
        for groups in (1, 2, 4):
            for call in (torch.channel_shuffle, torch.native_channel_shuffle):
                got, want = call(on_device(x), groups), call(x, groups)
                assert got.stride() == want.stride() or x.numel() == 0
                torch.testing.assert_close(got.cpu(), want)
    x = sample(2, 8, 3).to("ocl").requires_grad_()
    torch.channel_shuffle(x, 2).sum().backward()
    assert torch.equal(x.grad.cpu(), torch.ones(2, 8, 3))


@pytest.mark.parametrize("dims", [16, 17, 18])
def test_flip_of_many_dimensions(device, dims):
    x = torch.arange(2**dims, dtype=torch.int32).reshape((2,) * dims)
    check(device, lambda t: t.flip(*range(0, dims, 2)), x)
    check(device, lambda t: t.permute(*range(dims - 1, -1, -1)).flip(*range(0, dims, 3)), x)
    check(device, lambda t: t.flip(*range(dims)), x)
