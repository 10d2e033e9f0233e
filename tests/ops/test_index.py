"""Reads through index tensors against CPU torch, gradients, and errors of reads and writes."""

import pytest
import torch

from tests.ops.indexing import DTYPES, check, sample

# ---- index_select and embedding ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32])
def test_index_select(device, dtype, dim, index_dtype):
    x = sample(5, 6, 33, dtype=dtype)
    i = torch.tensor([4, 0, 0, 2], dtype=index_dtype)
    check(device, lambda x, i: x.index_select(dim, i), x, i)
    check(device, lambda x, i: x.transpose(0, 1)[:5].index_select(dim, i), x, i)
    check(
        device, lambda x, i: x[:, ::2, ::2][..., 1:].transpose(0, 1).index_select(0, i[i < 3]), x, i
    )


def test_index_select_small(device):
    i = torch.tensor([0])
    check(device, lambda x, i: x.index_select(0, i), torch.tensor(3.0), i)
    check(device, lambda x, i: x.index_select(0, i[0]), sample(3, 4), i)
    check(device, lambda x, i: x.index_select(0, i[:0]), sample(3, 4), i)
    check(device, lambda x, i: x.index_select(1, i), torch.empty(0, 4), i)
    check(
        device,
        lambda x, i: torch.index_select(x, 0, i, out=torch.empty(7, device=x.device)),
        sample(3, 4),
        i,
    )
    check(
        device,
        lambda x, i: torch.index_select(x, 1, i, out=torch.empty(1, 3, device=x.device).t()),
        sample(3, 4),
        i,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("columns", [1, 3, 16, 64, 65])
@pytest.mark.parametrize("padding,scale", [(None, False), (2, False), (None, True), (1, True)])
def test_embedding(device, dtype, columns, padding, scale):
    i = torch.tensor([[1, 2, 2], [0, 9, 2]])

    def both(weight, i):
        weight = weight.clone().requires_grad_()
        y = torch.nn.functional.embedding(i, weight, padding_idx=padding, scale_grad_by_freq=scale)
        g = torch.arange(y.numel(), device=y.device).view(y.shape).remainder(8).to(dtype)
        return torch.cat([y.detach().flatten(), torch.autograd.grad(y, weight, g)[0].flatten()])

    check(
        device,
        both,
        sample(10, columns, dtype=dtype),
        i,
        **({"atol": 1e-2, "rtol": 1e-2} if scale else {}),
    )


def test_embedding_backward_is_deterministic_and_in_order(device):
    torch.manual_seed(0)
    i = torch.randint(0, 7, (1000,))
    g = torch.randn(1000, 20)

    def grad(i, g):
        return torch.ops.aten.embedding_dense_backward(g, i, 7, -1, False)

    first = grad(i.to(device), g.to(device)).cpu()
    for _ in range(3):
        assert torch.equal(first, grad(i.to(device), g.to(device)).cpu())
    torch.testing.assert_close(first, grad(i, g))


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_embedding_renorm(device, norm, dtype):
    i = torch.tensor([1, 1, 5, 2, 1])
    check(
        device, lambda w, i: torch.embedding_renorm_(w, i, 1.5, norm), sample(10, 9, dtype=dtype),
        i,
        rtol=1e-5, atol=1e-6,
    )  # fmt: skip
    check(
        device,
        lambda w, i: torch.nn.functional.embedding(i, w, max_norm=1.0),
        sample(10, 9),
        i,
        rtol=1e-5,
        atol=1e-6,
    )


# ---- gather, take, advanced indexing ----------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather(device, dtype, dim):
    x = sample(4, 5, 6, dtype=dtype)
    i = torch.randint(0, 4, (3, 4, 5))
    check(device, lambda x, i: x.gather(dim, i), x, i)
    check(device, lambda x, i: x.transpose(0, 2).gather(dim, i[:, :, :4].transpose(0, 1)), x, i)
    check(device, lambda x, i: x.gather(dim, i.int()), x, i)
    check(
        device,
        lambda x, i: torch.gather(
            x, dim, i, out=torch.empty(5, 4, 3, dtype=dtype, device=x.device).permute(2, 1, 0)
        ),
        x,
        i,
    )


def test_gather_small(device):
    check(device, lambda x, i: x.gather(0, i), torch.tensor(2.0), torch.tensor(0))
    check(device, lambda x, i: x.gather(0, i), torch.tensor(2.0), torch.tensor([0]))
    check(device, lambda x, i: x.gather(0, i), sample(3), torch.empty(0, dtype=torch.int64))
    check(
        device,
        lambda x, i: x.gather(1, i.unsqueeze(1).expand(-1, 5)),
        sample(4, 7),
        torch.tensor([0, 3, 6, 1]),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_take(device, dtype):
    x, i = sample(4, 5, dtype=dtype), torch.tensor([[0, 19], [-1, 7]])
    check(device, lambda x, i: x.take(i), x, i)
    check(device, lambda x, i: x.t().take(i), x, i)
    check(
        device,
        lambda x, i: torch.take(x, i, out=torch.empty(2, 2, dtype=dtype, device=x.device)),
        x,
        i,
    )


INDEXINGS = {
    "one": lambda x, i, j: x[i],
    "two": lambda x, i, j: x[i, j],
    "second": lambda x, i, j: x[:, j],
    "last": lambda x, i, j: x[..., i],
    "apart": lambda x, i, j: x[i, :, j],
    "three": lambda x, i, j: x[i, j, i],
    "broadcast": lambda x, i, j: x[i[:, None], j],
    "with slices": lambda x, i, j: x[1:, j, ::2],
    "negative": lambda x, i, j: x[-1 - i],
    "with a number": lambda x, i, j: x[2, i],
    "none": lambda x, i, j: x[None, i],
    "int32": lambda x, i, j: x[i.int()],
    "scalar index": lambda x, i, j: x[i[0]],
    "empty": lambda x, i, j: x[i[:0]],
}


@pytest.mark.parametrize("name", INDEXINGS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_advanced_indexing(device, name, dtype):
    x, i, j = sample(5, 6, 7, dtype=dtype), torch.tensor([0, 3, 3]), torch.tensor([4, 0, 1])
    check(device, INDEXINGS[name], x, i, j)
    check(device, lambda x, i, j: INDEXINGS[name](x.permute(2, 1, 0)[1:, :, :], i, j), x, i, j)


@pytest.mark.parametrize("dtype", DTYPES)
def test_masks(device, dtype):
    x = sample(5, 6, 7, dtype=dtype)
    mask = sample(5, 6, 7, dtype=torch.bool)
    check(device, lambda x, m: x[m], x, mask)
    check(device, lambda x, m: x[m[:, :, 0]], x, mask)
    check(device, lambda x, m: x[:, m[0]], x, mask)
    check(device, lambda x, m: x.transpose(0, 2)[m.transpose(0, 2)], x, mask)
    check(device, lambda x, m: x[m & ~m], x, mask)
    check(device, lambda x, m: x.masked_select(m), x, mask)
    check(device, lambda x, m: x[0].masked_select(m[:, :1, :1]), x, mask)
    check(device, lambda x, m: x.nonzero(), x, mask)
    check(device, lambda x, m: x.transpose(0, 1)[::2].nonzero(), x, mask)
    check(device, lambda x, m: torch.nonzero_static(x, size=9, fill_value=-7), x, mask)
    check(device, lambda x, m: x.clone().masked_fill_(m, 1), x, mask)
    check(device, lambda x, m: x.masked_fill(m[:, :1], 1), x, mask)
    check(
        device, lambda x, m: x.transpose(0, 1).masked_fill(m.transpose(0, 1), x[0, 0, 0]), x, mask
    )
    check(device, lambda x, m: x.clone().masked_scatter_(m, x.flip(0)), x, mask)
    check(
        device,
        lambda x, m: x.clone().transpose(0, 2).masked_scatter_(m.transpose(0, 2), x),
        x,
        mask,
    )


def test_masks_small(device):
    check(device, lambda x: x.nonzero(), torch.tensor(2.0))
    check(device, lambda x: x.nonzero(), torch.tensor(0.0))
    check(device, lambda x: x.nonzero(), torch.empty(0, 3))
    check(device, lambda x: x.nonzero(), torch.tensor([-0.0, float("nan"), 1.0]))
    check(device, lambda x: x.masked_select(x > 0), torch.tensor(2.0))
    check(device, lambda x: (x > 0).nonzero(), torch.randn(100, 1001))
    check(
        device,
        lambda x: torch.nonzero(x, out=torch.empty(0, dtype=torch.int64, device=x.device)),
        sample(9),
    )
    check(device, lambda x: torch.stack(torch.where(x > 0)), sample(9, 4))
    check(device, lambda x: torch.argwhere(x), sample(9, 4))


@pytest.mark.parametrize("shape", [(3, 4), (9,), (), (0, 3)])
@pytest.mark.parametrize("empty", [False, True])
def test_strides_of_nonzero(device, shape, empty):
    """One coordinate after the other, as on the CPU."""
    x = torch.zeros(shape) if empty else torch.ones(shape)
    count = int(x.sum())

    def fresh(function, shape):
        def call(x):
            return function(x, out=torch.empty(shape, dtype=torch.int64, device=x.device))

        return call

    calls = [torch.nonzero, torch.argwhere, lambda x: torch.nonzero_static(x, size=5)]
    calls += [fresh(torch.nonzero, 0), fresh(torch.nonzero, (count, len(shape)))]
    for call in calls:
        assert check(device, call, x).stride() == call(x).stride()


def test_gradients(device):
    x, i = sample(6, 7), torch.tensor([0, 5, 5, 2])

    def grads(x, i):
        x = x.clone().requires_grad_()
        y = x[i].sum(0).pow(2) + x.index_select(0, i).sum(0) + x.gather(0, i.view(4, 1)).sum()
        y = y + x[x > 0].sum() + torch.cat([x, x]).pow(2).sum()
        return torch.autograd.grad(y.sum(), x)[0]

    check(device, grads, x, i)


# ---- Errors -----------------------------------------------------------------------------------

BAD = [
    lambda x, i: x.index_select(0, i),
    lambda x, i: x.gather(0, i.view(-1, 1)),
    lambda x, i: x[i],
    lambda x, i: x.take(i),
    lambda x, i: x.index_add(0, i, torch.ones(2, 4).to(x.device)),
    lambda x, i: x.index_copy(0, i, torch.ones(2, 4).to(x.device)),
    lambda x, i: x.index_fill(0, i, 1),
    lambda x, i: x.scatter(0, i.view(-1, 1), 1.0),
    lambda x, i: x.scatter_add(0, i.view(-1, 1), torch.ones(2, 1).to(x.device)),
    lambda x, i: x.clone().put_(i, torch.ones(2).to(x.device)),
    lambda x, i: torch.nn.functional.embedding(i, x),
]


@pytest.mark.parametrize("call", BAD)
@pytest.mark.parametrize("bad", [1000, -1000, 2**40])
def test_index_out_of_range(device, call, bad):
    x = torch.zeros(3, 4, device=device)
    with pytest.raises((IndexError, RuntimeError)) as expected:
        call(torch.zeros(3, 4), torch.tensor([0, bad]))
    with pytest.raises(expected.type, match=str(bad)):
        call(x, torch.tensor([0, bad]).to(device)).cpu()
    assert torch.equal(x.cpu(), torch.zeros(3, 4))


@pytest.mark.parametrize("call", [BAD[i] for i in (0, 1, 4, 5, 7, 8, 10)])
def test_negative_index_where_cpu_takes_none(device, call):
    with pytest.raises((IndexError, RuntimeError)) as expected:
        call(torch.zeros(3, 4), torch.tensor([0, -1]))
    with pytest.raises(expected.type):
        call(torch.zeros(3, 4).to(device), torch.tensor([0, -1]).to(device)).cpu()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x.index_select(0, i.view(1, -1)),
        lambda x, i: x.index_select(5, i),
        lambda x, i: x.index_select(0, i.float()),
        lambda x, i: torch.index_select(
            x, 0, i, out=torch.empty(2, 4, dtype=torch.float64, device=x.device)
        ),
        lambda x, i: x.index_add(0, i, x),
        lambda x, i: x.gather(0, i),
        lambda x, i: x[i.float()],
        lambda x, i: x[torch.zeros(2, dtype=torch.bool, device=x.device)],
        lambda x, i: x.masked_fill(i, 1),
        lambda x, i: x.masked_select(i),
        lambda x, i: x.masked_scatter(x == 0, i.float()),
        lambda x, i: torch.nonzero(x, out=torch.empty(2, device=x.device)),
    ],
)
def test_bad_arguments(device, call):
    with pytest.raises(Exception) as on_cpu:
        call(torch.zeros(3, 4), torch.tensor([0, 1]))
    with pytest.raises(type(on_cpu.value)):
        call(torch.zeros(3, 4).to(device), torch.tensor([0, 1]).to(device))


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_complex_numbers_have_no_order(reduce):
    values = torch.tensor([1 + 5j, 2 - 3j], device="ocl")
    index = torch.tensor([0, 0], device="ocl")
    with pytest.raises(NotImplementedError):
        torch.zeros_like(values).scatter_reduce_(0, index, values, reduce)
    with pytest.raises(NotImplementedError):
        torch.zeros_like(values).index_reduce_(0, index, values, reduce)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scatter_sums_of_halves_are_rounded_once(dtype):
    """Half a thousand ones added one by one to a bfloat16 end at 256."""
    index = torch.zeros(3000, dtype=torch.long)
    ones = torch.ones(3000, dtype=dtype)
    for reduced in (
        lambda i, x: torch.zeros(2, dtype=dtype, device=x.device).scatter_add(0, i, x),
        lambda i, x: torch.zeros(2, dtype=dtype, device=x.device).scatter_reduce(0, i, x, "sum"),
        lambda i, x: torch.zeros(2, dtype=dtype, device=x.device).scatter_reduce(0, i, x, "mean"),
    ):
        expected = reduced(index, ones)
        assert torch.equal(reduced(index.to("ocl"), ones.to("ocl")).cpu(), expected)
    assert torch.zeros(2, dtype=dtype, device="ocl").scatter_add(
        0, index.to("ocl"), ones.to("ocl")
    ).tolist() == [torch.tensor(3000.0, dtype=dtype).item(), 0]
