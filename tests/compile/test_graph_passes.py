"""Passes over graphs before they are lowered: results as eager's, in fewer launches."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_ocl.inductor.passes  # noqa: F401
import torch_ocl.testing as testing
from tests.as_gpu import run_as_gpu
from tests.compile.test_combo_kernels import launches
from torch_ocl import _C

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9, torch.float16: 2e-2, torch.bfloat16: 5e-2}


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check(function, *tensors, most=None, dynamic=None, tolerance=2e-5):
    """Results and inputs are those of the CPU's eager ops, with that many launches at most."""
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    ours, theirs = [t.to("ocl") for t in tensors], [t.clone() for t in tensors]
    compiled(*[t.clone() for t in ours])
    found, count = launches(lambda: compiled(*ours))
    close = {"check_device": False, "rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(found, function(*theirs), **close)
    torch.testing.assert_close(ours, theirs, **close)
    if most is not None:
        assert count <= most


def repeat_kv(x, times):
    batch, heads, length, width = x.shape
    x = x[:, :, None].expand(batch, heads, times, length, width)
    return x.reshape(batch, heads * times, length, width)


REPEATS = {
    "transformers": repeat_kv,
    "repeat_interleave": lambda x, times: x.repeat_interleave(times, 1),
    "negative axis": lambda x, times: x.unsqueeze(-3).expand(-1, -1, times, -1, -1).flatten(1, 2),
}


def heads(batch=2, of_query=6, of_key=2, queries=1, keys=20, width=16):
    return [
        torch.randn(batch, of_query, queries, width),
        torch.randn(batch, of_key, keys, width),
        torch.randn(batch, of_key, keys, width),
    ]


@pytest.mark.parametrize("queries", [1, 7])
@pytest.mark.parametrize("repeat", REPEATS)
def test_repeated_heads_are_not_copied(repeat, queries):
    def attention(q, k, v):
        k, v = (REPEATS[repeat](x, 3) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    check(attention, *heads(queries=queries), most=2)


def test_repeated_heads_under_a_mask():
    def attention(q, k, v, mask):
        return F.scaled_dot_product_attention(q, repeat_kv(k, 3), repeat_kv(v, 3), attn_mask=mask)

    check(attention, *heads(batch=1), torch.randn(1, 1, 1, 20), most=2)


def test_one_head_of_key():
    check(
        lambda q, k, v: F.scaled_dot_product_attention(q, repeat_kv(k, 6), repeat_kv(v, 6)),
        *heads(of_key=1),
    )


def test_heads_that_are_repeated_otherwise():
    """The times come first, the two differ, or the batch is what is expanded."""

    def tiled(q, k, v):
        return F.scaled_dot_product_attention(q, k.repeat(1, 3, 1, 1), v.repeat(1, 3, 1, 1))

    def mixed(q, k, v):
        key = k.repeat(1, 3, 1, 1)
        return F.scaled_dot_product_attention(q, key, repeat_kv(v, 3))

    def batches(q, k, v):
        k, v = (x[:1, :, None].expand(2, 2, 3, 20, 16).reshape(2, 6, 20, 16) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    for function in (tiled, mixed, batches):
        check(function, *heads())


def test_heads_that_are_written_afterwards():
    def step(q, k, v):
        out = F.scaled_dot_product_attention(q, repeat_kv(k, 3), repeat_kv(v, 3))
        k.mul_(2)
        v[:, :, 3] = 0
        return out

    check(step, *heads())


def test_gradients_of_repeated_heads():
    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, repeat_kv(k, 3), repeat_kv(v, 3), is_causal=True)

    inputs = heads(queries=20)
    gradients = []
    for device, function in (("cpu", attention), ("ocl", torch.compile(attention))):
        leaves = [x.clone().to(device).requires_grad_() for x in inputs]
        function(*leaves).square().sum().backward()
        gradients.append([leaf.grad.cpu() for leaf in leaves])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


class Attention(nn.Module):
    """Query, key and value of one input; `bias` as some models have it."""

    def __init__(self, width=24, heads=3, bias=False):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width, bias=bias) for _ in range(3))
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        return F.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("shape", [(1, 1, 24), (2, 4, 24), (3, 3, 24)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@torch.no_grad()
def test_query_key_and_value_are_one_product(shape, bias, dtype):
    module, x = Attention(bias=bias).eval().to(dtype), torch.randn(shape).to(dtype)
    expected = module(x)
    compiled = torch.compile(module.to("ocl"), fullgraph=True)
    compiled(x.to("ocl"))
    found, count = launches(lambda: compiled(x.to("ocl")))
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(found.cpu(), expected, **close)
    rows = shape[0] * shape[1]
    assert count <= (2 if rows <= 8 and not bias else 3 if rows == 1 else 4)


def test_layers_of_several_sizes_and_more_than_three():
    layers = [torch.randn(n, 40) for n in (12, 64, 9, 100, 30)]

    def function(x, *weights):
        return [F.linear(x, w).cumsum(1) for w in weights]

    check(function, torch.randn(3, 40), *layers, tolerance=1e-4)


def test_weights_that_are_computed_or_written():
    def function(x, a, b):
        first = F.linear(x, a).cumsum(1)
        b.add_(1)
        second = F.linear(x, b).cumsum(1)
        third = F.linear(x, first.t() @ x).cumsum(1)
        return first, second, third

    check(function, torch.randn(2, 16), torch.randn(24, 16), torch.randn(24, 16), tolerance=1e-3)


def test_layers_of_a_width_that_changes():
    def function(x, a, b):
        return F.linear(x, a).cumsum(1), F.linear(x, b).cumsum(1)

    for width in (16, 24, 40):
        tensors = [torch.randn(n, width) for n in (2, 12, 20)]
        check(function, *tensors, dynamic=True, tolerance=1e-4)


def test_elementwise_ops_keep_their_product():
    """They join it: two launches, not three."""

    def gated(x, gate, up):
        return F.silu(F.linear(x, gate)) * F.linear(x, up)

    check(gated, torch.randn(1, 64), torch.randn(96, 64), torch.randn(96, 64), most=2)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("widths", [(5,), (64, 32), (100, 3, 17), (12, 0, 40), (20, 30, 40, 50)])
def test_linear_pieces(dtype, widths):
    for rows in (0, 1, 2, 3, 5, 8, 9):
        for depth in (0, 1, 7, 129, 1000):
            x = torch.randn(rows, depth).to(dtype)
            weights = [torch.randn(n, depth).to(dtype) for n in widths]
            expected = x.double() @ torch.cat(weights).double().t()
            ours = [w.to("ocl") for w in weights]
            scale = TOLERANCE[dtype] * max(1, depth) ** 0.5
            for wanted in (dtype, torch.float64 if dtype == torch.float64 else torch.float32):
                found = torch.ops.ocl.linear_pieces(x.to("ocl"), ours, dtype=wanted)
                assert found.dtype == wanted
                torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=scale)


def test_linear_pieces_of_any_layout():
    x, weights = torch.randn(40, 4).t(), [torch.randn(24, 40), torch.randn(40, 24).t()]
    padded = torch.randn(24, 48)[:, 4:44]
    for pieces in (weights, weights[::-1], [padded, padded], [weights[0], padded], [padded]):
        expected = x.double() @ torch.cat(pieces).double().t()
        ours = [w.as_strided(w.size(), w.stride()).to("ocl") for w in pieces]
        found = torch.ops.ocl.linear_pieces(x.to("ocl"), ours)
        torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-4, atol=1e-4)


def test_linear_pieces_of_long_columns():
    """GPUs sum them in parts."""
    x, weights = torch.randn(1, 2**15), [torch.randn(8, 2**15) for _ in range(2)]
    expected = x.double() @ torch.cat(weights).double().t()
    found = torch.ops.ocl.linear_pieces(x.to("ocl"), [w.to("ocl") for w in weights])
    atol = 1e-5 * expected.abs().max().item()
    torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=atol)


def test_linear_pieces_keep_infinities_apart():
    x = torch.tensor([[1.0, 2.0]])
    weights = [torch.tensor([[torch.inf, 0.0]]), torch.tensor([[torch.nan, 1.0], [0.0, 3.0]])]
    found = torch.ops.ocl.linear_pieces(x.to("ocl"), [w.to("ocl") for w in weights]).cpu()
    expected = torch.tensor([[torch.inf, torch.nan, 6.0]])
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_linear_pieces_of_conjugates_and_integers():
    x, a, b = (torch.randn(n, 8, dtype=torch.complex64) for n in (2, 5, 6))
    expected = x @ torch.cat([a.conj(), b]).t()
    ours, a, b = x.to("ocl"), a.to("ocl"), b.to("ocl")
    torch.testing.assert_close(torch.ops.ocl.linear_pieces(ours, [a.conj(), b]).cpu(), expected)
    expected = x @ torch.cat([a.cpu(), b.cpu()]).conj().t()
    torch.testing.assert_close(
        torch.ops.ocl.linear_pieces(ours, [a.conj(), b.conj()]).cpu(), expected
    )
    x, weight = torch.randint(-9, 9, (3, 8)), torch.randint(-9, 9, (5, 8))
    found = torch.ops.ocl.linear_pieces(x.to("ocl"), [weight.to("ocl")] * 2).cpu()
    assert torch.equal(found, x @ torch.cat([weight, weight]).t())


def test_a_kernel_that_is_left_out_takes_no_pieces():
    """The engine's list decides, as for other products."""
    x, weight = torch.randn(2, 64, device="ocl"), torch.randn(40, 64, device="ocl")
    with testing.dispatches() as lines:
        expected = torch.ops.ocl.linear_pieces(x, [weight, weight])
    (line,) = [line for line in lines if line.endswith(" runs")]
    assert ", pieces: " in line
    name = line.removesuffix(" runs").rpartition(" ")[2]
    _C.set_left_out(0, [("gemm", name, "wrong")])
    try:
        with testing.dispatches() as lines:
            found = torch.ops.ocl.linear_pieces(x, [weight, weight])
    finally:
        _C.set_left_out(0, [])
    torch.testing.assert_close(found, expected)
    running = [line for line in lines if line.endswith(" runs")]
    assert running and not any(f"{name} runs" in line for line in running)


@pytest.mark.parametrize("wrapper", ["cpp_wrapper", "aoti"])
@torch.no_grad()
def test_pieces_are_called_from_cpp(wrapper, tmp_path):
    module, x = Attention().eval(), torch.randn(1, 1, 24)
    expected = module(x)
    module, x = module.to("ocl"), x.to("ocl")
    if wrapper == "aoti":
        exported = torch.export.export(module, (x,))
        path = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(tmp_path / "model.pt2")
        )
        function = torch._inductor.aoti_load_package(path)
    else:
        function = torch.compile(module, fullgraph=True, options={"cpp_wrapper": True})
    function(x)
    found, count = launches(lambda: function(x))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
    assert count <= 2


def test_linear_pieces_says_what_it_wants():
    x = torch.randn(2, 8, device="ocl")
    with pytest.raises(RuntimeError, match="weights of 8 columns of"):
        torch.ops.ocl.linear_pieces(x, [torch.randn(3, 7, device="ocl")])
    with pytest.raises(RuntimeError, match="weights of 8 columns of"):
        torch.ops.ocl.linear_pieces(x, [torch.randn(3, 8, device="ocl").half()])
    with pytest.raises(RuntimeError, match="aren't stored as Int"):
        torch.ops.ocl.linear_pieces(x, [torch.randn(3, 8, device="ocl")], dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        torch.ops.ocl.linear_pieces(x.bool(), [torch.ones(3, 8, device="ocl").bool()])
    with pytest.raises(RuntimeError, match="at least one weight"):
        torch.ops.ocl.linear_pieces(x, [])
    torch.library.opcheck(
        torch.ops.ocl.linear_pieces,
        (x, [torch.randn(3, 8, device="ocl")]),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_small_kernels_share_a_launch():
    """Reductions and large kernels stay alone, and what writes with checked indices does not."""

    def function(x, y, cache, place):
        return x.sin(), y.exp() * 2, cache.index_copy_(0, place, y[:2]), x.sum(0)

    inputs = [torch.randn(33), torch.randn(4, 7), torch.randn(9, 7), torch.tensor([3, 8])]
    check(function, *inputs, most=2)


def test_indices_are_checked_beside_others():
    def function(x, table, index):
        return x.cos(), table[index]

    compiled = torch.compile(function, fullgraph=True)
    x, table = torch.randn(5, device="ocl"), torch.randn(6, 3, device="ocl")
    good = torch.tensor([1, 5], device="ocl")
    compiled(x, table, good)
    assert launches(lambda: compiled(x, table, good))[1] == 1
    compiled(x, table, torch.tensor([1, 6], device="ocl"))
    with pytest.raises(IndexError, match="index 6 is out of range for a dimension of size 6"):
        torch.ocl.synchronize()


def test_small_kernels_of_sizes_that_change():
    def function(x, y):
        return x.sin(), y.exp()

    for length in (4, 9, 17):
        check(function, torch.randn(length, 3), torch.randn(length), dynamic=True)


def test_as_gpu():
    """Dot products by work-groups find their rows in three tensors, too."""
    run_as_gpu(__file__, "-k", "linear_pieces or one_product or small_kernels or checked")
