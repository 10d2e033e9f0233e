"""Nested tensors against CPU torch: jagged ones, and what upstream has of strided ones for every
device. Results and gradients are compared by their parts."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def parts(device, layout, lengths=(2, 5, 1), width=3):
    g = torch.Generator().manual_seed(0)
    tensors = [torch.randn(n, width, generator=g) for n in lengths]
    return torch.nested.nested_tensor(tensors, device=device, layout=layout, requires_grad=True)


def flat(x):
    return torch.cat([t.flatten() for t in x.unbind()]) if x.is_nested else x


def check(run, layout=torch.jagged):
    """run(x, device) and the gradient of its squares."""
    found = []
    for device in ("cpu", "ocl"):
        x = parts(device, layout)
        result = flat(run(x, device))
        assert result.device.type == device
        result.square().sum().backward()
        assert x.grad.is_nested and x.grad.device.type == device
        found.append((result.detach().cpu(), flat(x.grad).cpu()))
    assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


def attention(x, device, **options):
    g = torch.Generator().manual_seed(1)
    weights = [torch.randn(3, 8, generator=g).to(device) for _ in range(3)]
    heads = [(x @ weight).unflatten(-1, (2, 4)).transpose(1, 2) for weight in weights]
    return F.scaled_dot_product_attention(*heads, **options).transpose(1, 2).flatten(-2)


def linear(x, device):
    g = torch.Generator().manual_seed(1)
    return F.linear(x, torch.randn(5, 3, generator=g).to(device), torch.ones(5, device=device))


JAGGED = {
    "arithmetic": lambda x, d: x * 2 + x.sin(),
    "padded": lambda x, d: x.to_padded_tensor(0.0),
    "padded_with_a_number": lambda x, d: torch.nested.to_padded_tensor(x, -1.5),
    "padded_to_a_size": lambda x, d: torch.nested.to_padded_tensor(x, 0.0, (3, 7, 3)),
    "sum": lambda x, d: x.sum(),
    "mean": lambda x, d: x.mean(),
    "mean_of_rows": lambda x, d: x.mean(-1, keepdim=True),
    "softmax": lambda x, d: x.softmax(-1),
    "softmax_of_columns": lambda x, d: x.softmax(1),
    "linear": linear,
    "layer_norm": lambda x, d: F.layer_norm(x, (3,)),
    "attention": attention,
}


@pytest.mark.parametrize("name", JAGGED)
def test_jagged(name):
    check(JAGGED[name])


@pytest.mark.parametrize("dim", [1, 2])
def test_jagged_sums_along_a_dimension(dim):
    """CPU torch has no gradient of these."""
    for reduce in (torch.sum, torch.mean):
        want, got = (reduce(parts(device, torch.jagged).detach(), dim) for device in ("cpu", "ocl"))
        assert got.device.type == "ocl"
        assert_close(flat(got).cpu(), flat(want))


def test_jagged_attention_without_gradients():
    with torch.no_grad():
        want, got = (attention(parts(d, torch.jagged), d) for d in ("cpu", "ocl"))
    assert_close(flat(got).cpu(), flat(want), rtol=1e-4, atol=1e-5)


def sequences(device, lengths, dtype, heads=2, depth=8):
    """Jagged [batch, heads, ragged, depth] and its leaf [batch, ragged, heads * depth]."""
    g = torch.Generator().manual_seed(sum(lengths))
    made = [torch.randn(n, heads * depth, generator=g).to(dtype).to(device) for n in lengths]
    leaf = torch.nested.nested_tensor(made, layout=torch.jagged).detach().requires_grad_()
    return leaf, leaf.unflatten(-1, (heads, depth)).transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("keys", [(3, 40, 7), (5, 9, 2)])
def test_jagged_attention_by_sequences(keys, dtype, causal):
    """Against CPU torch's of each sequence alone, with gradients: its own has no causal one."""
    queries = (3, 40, 7)
    leaves, heads = zip(
        *(sequences("ocl", lengths, dtype) for lengths in (queries, keys, keys)), strict=True
    )
    out = F.scaled_dot_product_attention(*heads, is_causal=causal)
    assert out.is_nested and out.size(0) == 3 and out.device.type == "ocl"
    found = out.transpose(1, 2).flatten(-2)
    grads = torch.autograd.grad(found.values().square().sum(), leaves)
    alone = [[t.detach().cpu() for t in leaf.unbind()] for leaf in leaves]
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-4
    for b in range(3):
        own = [tensors[b].float().requires_grad_() for tensors in alone]
        split = [t.unflatten(-1, (2, 8)).transpose(0, 1) for t in own]
        want = F.scaled_dot_product_attention(*split, is_causal=causal).transpose(0, 1).flatten(1)
        wanted = torch.autograd.grad(want.square().sum(), own)
        got = [found, *grads]
        for actual, expected in zip(got, [want, *wanted], strict=True):
            actual = actual.unbind()[b].detach().cpu().float()
            assert_close(actual, expected.detach(), rtol=tolerance, atol=tolerance)


def test_jagged_attention_is_one_kernel_for_each_sequence():
    _, x = sequences("ocl", (3, 40, 7), torch.float32)
    run = lambda: F.scaled_dot_product_attention(x, x, x)  # noqa: E731
    run()
    before = torch.ocl.launch_count()
    run()
    assert torch.ocl.launch_count() - before == 3


def test_jagged_attention_with_dropout_and_empty_sequences():
    _, x = sequences("ocl", (3, 0, 7), torch.float32)
    plain = F.scaled_dot_product_attention(x, x, x)
    assert plain.values().size(1) == 10 or plain.values().size(0) == 10
    torch.manual_seed(1)
    first = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).values()
    torch.manual_seed(1)
    again = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).values()
    assert torch.equal(first.cpu(), again.cpu())
    assert not torch.equal(first.cpu(), plain.values().cpu())
    everything = F.scaled_dot_product_attention(x, x, x, dropout_p=1.0).values()
    assert not everything.cpu().any()


@pytest.mark.parametrize("trailing", [(), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_padding_and_back(dtype, trailing):
    offsets = torch.tensor([0, 2, 2, 7, 8])
    values = torch.arange(1, 1 + 8 * 6)[: 8 * torch.Size(trailing).numel()].view(8, *trailing)
    values = values.to(dtype)
    for length in (5, 6, 3):  # the last cuts rows off
        want = torch.ops.aten._jagged_to_padded_dense_forward(values, [offsets], [length], 7)
        on_device = values.to("ocl"), [offsets.to("ocl")]
        got = torch.ops.aten._jagged_to_padded_dense_forward(*on_device, [length], 7)
        assert_close(got.cpu(), want)
        for total in (8, None):
            back = torch.ops.aten._padded_dense_to_jagged_forward(got, on_device[1], total)
            kept = values.clone()
            if length == 3:
                kept[5:7] = 0
            assert_close(back.cpu(), kept)


def test_nothing_to_pad():
    offsets = torch.zeros(3, dtype=torch.int64)
    want = torch.ops.aten._jagged_to_padded_dense_forward(torch.ones(0, 3), [offsets], [2], 7)
    device = offsets.to("ocl")
    got = torch.ops.aten._jagged_to_padded_dense_forward(
        torch.ones(0, 3, device="ocl"), [device], [2], 7
    )
    assert_close(got.cpu(), want)
    assert torch.ops.aten._padded_dense_to_jagged_forward(got, [device]).shape == (0, 3)


STRIDED = {
    "arithmetic": lambda x, d: x * 2 + x,
    "unbind": lambda x, d: torch.cat([t * n for n, t in enumerate(x.unbind())]),
    "padded": lambda x, d: torch.nested.to_padded_tensor(x, 0.0),
    "clone": lambda x, d: x.clone(),
    "linear": linear,
    "layer_norm": lambda x, d: F.layer_norm(x, (3,), *torch.ones(2, 3, device=d)),
    "softmax": lambda x, d: x.softmax(-1),
    "matmul": lambda x, d: x.matmul(x.transpose(1, 2)),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strided(name):
    check(STRIDED[name], torch.strided)


def test_strided_of_several_shapes():
    """Its sizes are read wherever autograd looks at it."""
    tensors = [torch.ones(2, 3), torch.ones(2, 4)]
    x = torch.nested.nested_tensor(tensors, device="ocl", requires_grad=True)
    assert x.size(0) == 2 and "ocl" in repr(x)
    assert_close(flat(x * 2).cpu(), torch.full((14,), 2.0))
    moved = torch.nested.nested_tensor(tensors).to("ocl")
    assert_close(flat(moved.cpu()), flat(moved).cpu())


def test_what_strided_ones_lack():
    x = parts("ocl", torch.strided)
    with pytest.raises(NotImplementedError, match="aten::sum.*nested tensors.*ocl"):
        x.sum()
