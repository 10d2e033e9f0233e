"""torch.use_deterministic_algorithms(True): everything here has a deterministic kernel."""

import pytest
import torch
from torch.testing import assert_close

COUNT = 20_000


@pytest.fixture(autouse=True)
def _deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def positions(high, *shape, seed=1):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def gradient(function):
    def run(x, *others):
        x = x.detach().requires_grad_()
        function(x, *others).square().sum().backward()
        return x.grad

    return run


F = torch.nn.functional
INDEX = positions(50, COUNT)
CASES = {
    "index_put": (
        lambda x, i: torch.zeros(50, device=x.device).index_put_((i,), x, accumulate=True),
        numbers(COUNT),
        INDEX,
    ),
    "index_add": (
        lambda x, i: torch.zeros(50, 3, device=x.device).index_add_(0, i, x),
        numbers(COUNT, 3),
        INDEX,
    ),
    "scatter_add": (
        lambda x, i: torch.zeros(50, device=x.device).scatter_add_(0, i, x),
        numbers(COUNT),
        INDEX,
    ),
    "scatter_mean": (
        lambda x, i: torch.zeros(50, device=x.device).scatter_reduce_(0, i, x, "mean"),
        numbers(COUNT),
        INDEX,
    ),
    "index_reduce": (
        lambda x, i: torch.ones(50, device=x.device).index_reduce_(0, i, x, "mean"),
        numbers(COUNT),
        INDEX,
    ),
    "put": (
        lambda x, i: torch.zeros(50, device=x.device).put_(i, x, accumulate=True),
        numbers(COUNT),
        INDEX,
    ),
    "cumsum": (lambda x: x.cumsum(0), numbers(COUNT)),
    "bincount": (lambda x: x.bincount(), INDEX),
    "histc": (lambda x: x.histc(20, -2, 2), numbers(COUNT)),
    "sum": (torch.sum, numbers(COUNT)),
    "embedding": (
        lambda w, i: gradient(lambda t, j: F.embedding(j, t))(w, i),
        numbers(50, 8),
        INDEX,
    ),
    "gather": (lambda x, i: gradient(lambda t, j: t.gather(0, j))(x, i), numbers(50), INDEX),
    "index": (lambda x, i: gradient(lambda t, j: t[j])(x, i), numbers(50), INDEX),
    "grid_sample": (
        lambda x, g: gradient(lambda t, h: F.grid_sample(t, h, align_corners=False))(x, g),
        numbers(1, 2, 9, 9),
        numbers(1, 40, 40, 2) / 2,
    ),
    "upsample": (
        gradient(lambda x: F.interpolate(x, scale_factor=3.0, mode="bilinear")),
        numbers(1, 2, 9, 9),
    ),
    "max_pool": (gradient(lambda x: F.max_pool2d(x, 3, 1)), numbers(1, 2, 20, 20)),
    "reflection_pad": (gradient(lambda x: F.pad(x, (3, 3, 3, 3), "reflect")), numbers(1, 2, 9, 9)),
    "median": (lambda x: x.median(0), numbers(999)),
    "cross_entropy": (
        gradient(lambda x: F.cross_entropy(x, torch.zeros(2, 4, 4, dtype=torch.long).to(x.device))),
        numbers(2, 3, 4, 4),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_repeat_to_the_bit(name):
    function, *inputs = CASES[name]
    on_device = [x.to("ocl") for x in inputs]
    first = torch.utils._pytree.tree_leaves(function(*on_device))
    expected = torch.utils._pytree.tree_leaves(function(*inputs))
    for _ in range(3):
        again = torch.utils._pytree.tree_leaves(function(*on_device))
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    for a, e in zip(first, expected, strict=True):
        assert_close(a.cpu(), e, rtol=1e-4, atol=1e-3)


def test_new_memory_is_filled():
    """As with every device, what isn't written yet is NaN, or the largest integer."""
    assert torch.empty(100, device="ocl").isnan().all()
    assert (torch.empty(100, dtype=torch.int32, device="ocl") == 2**31 - 1).all()
    assert torch.empty_strided((4, 4), (4, 1), device="ocl").isnan().all()
    assert torch.zeros(3, device="ocl").resize_(100)[3:].isnan().all()
