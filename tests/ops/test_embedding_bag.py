"""embedding_bag against CPU torch: modes, offsets, padding, factors, gradients, bad arguments."""

import itertools

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu

FLOATS = [torch.float32, torch.float64]
HALVES = [torch.float16, torch.bfloat16]
MODES = ["sum", "mean", "max"]


def made(shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def bags(rows=23, count=70, bags=12, seed=0):
    g = torch.Generator().manual_seed(seed)
    indices = torch.randint(0, rows, (count,), generator=g)
    offsets = torch.randint(0, count + 1, (bags,), generator=g).sort().values
    offsets[0] = 0
    offsets[4] = offsets[3]  # an empty one
    return indices, offsets


def check(weight, indices, offsets, factors=None, layout=lambda t: t, **options):
    """The result and the gradients of weights and factors. Halves are compared with float's."""
    wide = weight.dtype in HALVES

    def run(device):
        w = weight.detach().float() if wide and device == "cpu" else weight.detach()
        w = layout(w.to(device)).requires_grad_()
        inputs = [w]
        arguments = dict(options)
        if factors is not None:
            f = factors.detach().float() if wide and device == "cpu" else factors.detach()
            inputs.append(f.to(device).requires_grad_())
            arguments["per_sample_weights"] = inputs[1]
        offsets_ = None if offsets is None else offsets.to(device)
        y = functional.embedding_bag(indices.to(device), w, offsets_, **arguments)
        slope = made(y.shape, 5).to(y.dtype).to(device)
        return [y.detach(), *torch.autograd.grad((y * slope).sum(), inputs)]

    for a, e in zip(run("ocl"), run("cpu"), strict=True):
        tolerance = {"rtol": 2e-2, "atol": 5e-2} if wide else {}
        assert_close(a.cpu(), e.to(a.dtype), equal_nan=True, **tolerance)


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("columns", [1, 5, 16, 37, 128, 150, 300])
def test_modes(device, columns, mode, dtype):
    indices, offsets = bags()
    check(made((23, columns), 1, dtype), indices, offsets, mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 3, -2])
def test_options(device, mode, last, padding):
    indices, offsets = bags()
    indices[::3] = 3
    if last:
        offsets[-1] = len(indices)
    for index in (torch.int64, torch.int32):
        check(
            made((23, 9), 1),
            indices.to(index),
            offsets.to(index),
            mode=mode,
            include_last_offset=last,
            padding_idx=padding,
        )
    # Offsets of another dtype than the indices.
    check(made((23, 9)), indices.int(), offsets, mode=mode, include_last_offset=last)


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
@pytest.mark.parametrize("padding", [None, 3])
def test_factors(device, padding, dtype):
    indices, offsets = bags()
    indices[::3] = 3
    factors = made((70,), 2, dtype)
    check(made((23, 21), 1, dtype), indices, offsets, factors, mode="sum", padding_idx=padding)


@pytest.mark.parametrize("mode", MODES[:2])
def test_scale_grad_by_freq(device, mode):
    """Each row's gradient over how often it is named; CPU torch divides by other rows' counts."""
    indices, offsets = bags()
    weight = made((23, 9)).to(device).requires_grad_()
    grads = []
    for scale in (False, True):
        y = functional.embedding_bag(
            indices.to(device), weight, offsets.to(device), mode=mode, scale_grad_by_freq=scale
        )
        grads.append(torch.autograd.grad(y.pow(2).sum(), weight)[0].cpu())
    counts = torch.bincount(indices, minlength=23).clamp_min(1)
    assert_close(grads[1], grads[0] / counts[:, None])


@pytest.mark.parametrize("mode", MODES)
def test_layouts_and_shapes(device, mode):
    indices, offsets = bags()
    for layout in (
        lambda t: t.t().contiguous().t(),
        lambda t: torch.cat([t, t], 1)[:, : t.shape[1]],
        lambda t: torch.stack([t, t], -1)[..., 0],
    ):
        check(made((23, 9)), indices, offsets, layout=layout, mode=mode)
    check(made((23, 9)), indices.view(7, 10), None, mode=mode)
    check(made((23, 9)), indices[:0], torch.zeros(3, dtype=torch.long), mode=mode)
    assert functional.embedding_bag(
        indices[:0].to(device), made((23, 9)).to(device), offsets[:0].to(device), mode=mode
    ).shape == (0, 9)


def test_nan_in_a_maximum(device):
    weight = made((23, 9))
    weight[3, 2], weight[5] = float("nan"), float("-inf")
    indices, offsets = bags()
    check(weight, indices, offsets, mode="max")


@pytest.mark.parametrize("mode", range(3))
def test_what_the_forward_pass_keeps(device, mode):
    indices, offsets = bags()
    weight = made((23, 9))
    arguments = (False, mode, False, None, False, 3)
    wanted = torch._embedding_bag(weight, indices, offsets, *arguments)
    for function in (torch._embedding_bag, torch._embedding_bag_forward_only):
        got = function(weight.to(device), indices.to(device), offsets.to(device), *arguments)
        assert_close(got[0].cpu(), wanted[0])
        bag_of = torch.bucketize(torch.arange(70), offsets, right=True) - 1
        assert torch.equal(got[1].cpu(), bag_of)
        sizes = torch.zeros(12, dtype=torch.long).index_add_(0, bag_of, (indices != 3).long())
        assert torch.equal(got[2].cpu(), sizes)
        if mode == 2:
            filled = sizes > 0
            assert torch.equal(got[3].cpu()[filled], wanted[3][filled])


def test_forward_repeats(device):
    indices, offsets = bags(rows=5, count=5000, bags=40)
    weight, i, o = (t.to(device) for t in (made((5, 33)), indices, offsets))
    first = [t.cpu() for t in torch._embedding_bag(weight, i, o)]
    assert all(
        torch.equal(a, b.cpu())
        for _, (a, b) in itertools.product(
            range(3), zip(first, torch._embedding_bag(weight, i, o), strict=True)
        )
    )


def test_factors_backward_without_a_map(device):
    """A forward pass of CPU torch leaves offset2bag empty where it doesn't need it."""
    indices, offsets = bags()
    weight, grad = made((23, 9)), made((12, 9), 1)
    function = torch.ops.aten._embedding_bag_per_sample_weights_backward
    arguments = [grad, weight, indices, offsets, offsets[:0]]
    wanted = function(*arguments, 0, 3)
    assert_close(function(*(a.to(device) for a in arguments), 0, 3).cpu(), wanted)


def test_module_trains(device):
    for place in ("cpu", "ocl"):
        torch.manual_seed(0)
        bag = torch.nn.EmbeddingBag(10, 4, mode="mean", max_norm=1.0).to(place)
        optimiser = torch.optim.SGD(bag.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            bag(torch.tensor([[1, 2], [2, 9]]).to(place)).pow(2).sum().backward()
            optimiser.step()
        if place == "cpu":
            wanted = bag.weight.detach()
    assert_close(bag.weight.detach().cpu(), wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [23, -1])
def test_index_out_of_range(device, bad, mode):
    indices, offsets = bags()
    indices[60] = bad
    with pytest.raises(RuntimeError):
        functional.embedding_bag(indices, made((23, 9)), offsets, mode=mode)
    with pytest.raises(RuntimeError, match="embedding_bag"):
        functional.embedding_bag(
            indices.to(device), made((23, 9)).to(device), offsets.to(device), mode=mode
        )
        torch.ocl.synchronize()


def test_bad_offsets(device):
    weight = made((23, 9))
    indices, _ = bags()
    for offsets in ([1, 5], [0, 71]):
        offsets = torch.tensor(offsets)
        with pytest.raises(RuntimeError):
            functional.embedding_bag(indices, weight, offsets)
        with pytest.raises(RuntimeError, match="offsets"):
            functional.embedding_bag(indices.to(device), weight.to(device), offsets.to(device))
            torch.ocl.synchronize()


def test_bad_arguments(device):
    indices, offsets = bags()
    weight = made((23, 9))
    for arguments, options in (
        ((indices.float(), weight, offsets), {}),
        ((indices, weight, offsets.float()), {}),
        ((indices, weight.long(), offsets), {}),
        ((indices, weight, offsets), {"per_sample_weights": made((69,))}),
        ((indices, weight, offsets), {"per_sample_weights": made((70,)).double()}),
        ((indices, weight, offsets), {"per_sample_weights": made((70,)), "mode": "max"}),
        ((indices, weight, offsets[:0]), {"include_last_offset": True}),
        ((indices, weight, offsets), {"padding_idx": 23}),
    ):

        def call(place, arguments=arguments, options=options):
            moved = {k: v.to(place) if hasattr(v, "to") else v for k, v in options.items()}
            functional.embedding_bag(*(a.to(place) for a in arguments), **moved)

        with pytest.raises(Exception) as on_cpu:
            call("cpu")
        with pytest.raises(type(on_cpu.value)):
            call("ocl")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_half_types_are_summed_in_float(dtype, mode):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(10, 21, generator=generator).to(dtype)
    bags = torch.randint(0, 10, (300, 7), generator=generator)
    cotangent = torch.randn(300, 21, generator=generator).to(dtype)

    def gradient(w, i, g):
        leaf = w.detach().requires_grad_()
        return torch.autograd.grad(functional.embedding_bag(i, leaf, mode=mode), leaf, g)[0]

    exact = gradient(weight.double(), bags, cotangent.double()).to(dtype)
    got = gradient(weight.to("ocl"), bags.to("ocl"), cotangent.to("ocl"))
    torch.testing.assert_close(got.cpu(), exact)


@pytest.mark.as_gpu
def test_as_a_gpu():
    run_as_gpu(__file__, "-k", "gradient")
