"""Fake quantisation, its gradients and the observer of quantisation-aware training."""

import pytest
import torch
from torch.testing import assert_close

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def made(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 4


def both(function, *arguments, on_cpu=lambda t: t):
    host = [on_cpu(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    mine = [a.to("ocl") if isinstance(a, torch.Tensor) else a for a in arguments]
    return function(*mine), function(*host)


def check(results, wanted):
    for a, e in zip(results, wanted, strict=True):
        assert_close(a.cpu(), e, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES[:1] + DTYPES[2:3], ids=str)
@pytest.mark.parametrize("grid", [(0.1, 3, 0, 15), (0.07, 0, -128, 127), (1.5, -3, -8, 7)])
def test_per_tensor(device, grid, dtype):
    x = made((37, 21)).to(dtype)
    x[0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    function = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask
    for source in (x, x[:, ::2], x[:0]):
        check(*both(function, source, *grid))
    with_tensors = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    for enabled in (0, 1):
        check(
            *both(
                with_tensors,
                x,
                torch.tensor([grid[0]]),
                torch.tensor([grid[1]], dtype=torch.int32),
                torch.tensor([enabled]),
                *grid[2:],
            )
        )


def test_ties_go_to_even(device):
    x = torch.arange(-20, 21) * 0.25
    check(*both(torch.ops.aten.fake_quantize_per_tensor_affine_cachemask, x, 0.5, 1, -4, 5))


@pytest.mark.parametrize("zero_dtype", [torch.int32, torch.float32])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_channel(device, axis, zero_dtype):
    x = made((4, 5, 6))
    channels = x.shape[axis]
    scale = torch.rand(channels, generator=torch.Generator().manual_seed(1)) + 0.1
    zero = torch.arange(channels).to(zero_dtype)
    if zero_dtype.is_floating_point:
        zero += 0.25
    function = torch.ops.aten.fake_quantize_per_channel_affine_cachemask
    for source in (x, x.transpose(0, 2).contiguous().transpose(0, 2)):
        check(*both(function, source, scale, zero, axis, 0, 15))


def test_gradient_of_the_input(device):
    grads = []
    for place in ("cpu", "ocl"):
        x = made((9, 7)).to(place).requires_grad_()
        y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -20, 20)
        grads.append(torch.autograd.grad(y.pow(2).sum(), x)[0].cpu())
    assert_close(grads[1], grads[0])


@pytest.mark.parametrize("grad_factor", [1.0, 0.25])
def test_learnable_per_tensor(device, grad_factor):
    x, grad = made((9, 33)), made((9, 33), 1)
    parameters = (torch.tensor([0.3]), torch.tensor([2.0]), -10, 20, grad_factor)
    forward = torch._fake_quantize_learnable_per_tensor_affine
    backward = torch.ops.aten._fake_quantize_learnable_per_tensor_affine_backward
    check(*([r] for r in both(forward, x, *parameters)))
    check(*both(backward, grad, x, *parameters))


@pytest.mark.parametrize("grad_factor", [1.0, 0.25])
@pytest.mark.parametrize("axis", [0, 1])
def test_learnable_per_channel(device, axis, grad_factor):
    x, grad = made((6, 9)), made((6, 9), 1)
    channels = x.shape[axis]
    parameters = (torch.rand(channels) + 0.2, torch.zeros(channels) + 1, axis, -10, 20, grad_factor)
    forward = torch._fake_quantize_learnable_per_channel_affine
    backward = torch.ops.aten._fake_quantize_learnable_per_channel_affine_backward
    check(*([r] for r in both(forward, x, *parameters)))
    check(*both(backward, grad, x, *parameters))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("shift", [0.0, 20.0, -20.0])
def test_moving_average(device, shift, per_row, symmetric):
    rows = 5 if per_row else 1
    states = {}
    for place in ("cpu", "ocl"):
        state = [torch.full((rows,), float("inf")), torch.full((rows,), -float("inf"))]
        state += [torch.ones(rows), torch.zeros(rows, dtype=torch.int32)]
        states[place] = [s.to(place) for s in state]
    for step in range(4):
        x = made((5, 40), step) + shift
        flags = [torch.tensor([int(step != 2)]), torch.tensor([int(step != 1)])]
        results = {}
        for place, state in states.items():
            results[place] = torch._fused_moving_avg_obs_fq_helper(
                x.to(place),
                *(f.to(place) for f in flags),
                *state,
                0.1,
                -128,
                127,
                0,
                per_row,
                symmetric,
            )
        check(states["ocl"], states["cpu"])
        check(results["ocl"], results["cpu"])


def test_moving_average_of_an_observer_that_has_seen_nothing(device):
    """Its scale and zero point may have one element, as those of torch.ao's fake quantisers."""
    x, results = made((5, 40)), []
    for place in ("cpu", "ocl"):
        state = [torch.empty(0), torch.empty(0), torch.ones(1), torch.zeros(1, dtype=torch.int32)]
        state = [s.to(place) for s in state]
        on = torch.ones(1, dtype=torch.long).to(place)
        y = torch.fused_moving_avg_obs_fake_quant(
            x.to(place), on, on, *state, 0.01, -128, 127, 0, True, True
        )
        results.append([y, *state])
    check(results[1], results[0])


def test_moving_average_of_nothing_wide(device):
    """Constants: the scale does not become 0."""
    for value in (0.0, 1e-6, 3.0):
        results = []
        for place in ("cpu", "ocl"):
            state = [torch.tensor([t]).to(place) for t in (float("inf"), -float("inf"), 1.0)]
            state.append(torch.zeros(1, dtype=torch.int32).to(place))
            on = torch.ones(1, dtype=torch.long).to(place)
            x = torch.full((3, 4), value).to(place)
            y = torch.fused_moving_avg_obs_fake_quant(x, on, on, *state, 0.01, 0, 255, 0)
            results.append([y, *state])
        check(results[1], results[0])


def test_bad_grids(device):
    x = made((3, 4))
    function = torch.ops.aten.fake_quantize_per_channel_affine_cachemask
    for arguments in (
        (x, torch.ones(3), torch.zeros(3).int(), 1, 0, 15),
        (x, torch.ones(4), torch.full((4,), 99).int(), 1, 0, 15),
        (x, torch.ones(4), torch.zeros(4).int(), 1, 15, 0),
    ):
        for place in ("cpu", "ocl"):
            moved = [a.to(place) if isinstance(a, torch.Tensor) else a for a in arguments]
            with pytest.raises(RuntimeError):
                function(*moved)
