"""torch.func on the device: batches, gradients and their combinations, as on the CPU."""

import warnings

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing import assert_close


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check(function, *inputs):
    """Native on the device, and equal to what the CPU has."""
    expected = function(*inputs)
    torch.ocl.reset_fallback_counts()
    torch.ocl.reset_host_staged_counts()
    actual = function(*(x.to("ocl") for x in inputs))
    assert not torch.ocl.fallback_counts() and not torch.ocl.host_staged_counts()
    for a, e in zip(
        torch.utils._pytree.tree_leaves(actual),
        torch.utils._pytree.tree_leaves(expected),
        strict=True,
    ):
        assert a.device.type == "ocl"
        assert_close(a.cpu(), e)


#: Functions mapped over a batch of matrices of 4 x 5.
MAPPED = {
    "add": lambda x: x + 1,
    "argsort": lambda x: x.argsort(-1),
    "cat": lambda x: torch.cat([x, x], 1),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.T + 3 * torch.eye(4, device=x.device)),
    "clamp": lambda x: x.clamp(-1, 0.5),
    "cumsum": lambda x: x.cumsum(0),
    "det": lambda x: torch.linalg.det(x[:, :4]),
    "diagonal": lambda x: x.diagonal(),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "fft": lambda x: torch.fft.rfft(x),
    "flip": lambda x: x.flip(0),
    "gather": lambda x: x.gather(1, torch.arange(4, device=x.device).unsqueeze(1)),
    "gelu": torch.nn.functional.gelu,
    "index": lambda x: x[torch.tensor([0, 2], device=x.device)],
    "index_add": lambda x: x.index_add(0, torch.tensor([1, 1, 0], device=x.device), x[:3]),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (5,)),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 2.0),
    "matmul": lambda x: x @ x.T,
    "max": lambda x: x.max(0),
    "max_pool": lambda x: torch.nn.functional.max_pool2d(x[None], 2),
    "mean": lambda x: x.mean(),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 2)),
    "prod": lambda x: x.prod(1),
    "roll": lambda x: x.roll(2, 1),
    "scatter": lambda x: x.scatter(1, torch.zeros(4, 2, dtype=torch.long, device=x.device), 7.0),
    "solve": lambda x: torch.linalg.solve(x[:, :4] + 9 * torch.eye(4, device=x.device), x),
    "sort": lambda x: x.sort(0),
    "std": lambda x: x.std(1),
    "topk": lambda x: x.topk(2),
    "tril": torch.tril,
    "upsample": lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=2.0),
    "where": lambda x: torch.where(x > 0, x, x.neg()),
}


@pytest.mark.parametrize("name", MAPPED)
def test_vmap(name):
    check(vmap(MAPPED[name]), random(3, 4, 5))
    check(vmap(MAPPED[name], in_dims=2), random(4, 5, 3))


def test_vmap_of_random_numbers():
    x = torch.zeros(3, 1000, device="ocl")
    different = vmap(lambda t: t + torch.rand_like(t), randomness="different")(x).cpu()
    assert not torch.equal(different[0], different[1])
    alike = vmap(lambda t: t + torch.rand(1000, device="ocl"), randomness="same")(x).cpu()
    assert torch.equal(alike[0], alike[1])
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda t: t + torch.rand_like(t))(x)


def f(x):
    return (x.sin() * x.exp()).cumsum(0).tanh()


def test_jacobians():
    x = random(7) / 4
    check(jacrev(f), x)
    check(jacfwd(f), x)
    check(hessian(lambda t: f(t).square().sum()), x)
    check(lambda t: jvp(f, (t,), (t.cos(),)), x)
    check(lambda t: vjp(f, t)[1](t.cos()), x)


def test_per_sample_gradients():
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3))
    names = [name for name, _ in model.named_parameters()]

    def loss(parameters, x, label):
        out = functional_call(model, dict(zip(names, parameters, strict=True)), (x,))
        return torch.nn.functional.cross_entropy(out[None], label[None].long())

    def per_sample(x, labels, *parameters):
        return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, labels)

    parameters = [p.detach() for p in model.parameters()]
    check(per_sample, random(5, 6), torch.tensor([0, 2, 1, 1, 0]), *parameters)


def test_tangents_of_constants():
    """They are zeros without memory: reading them must not look for any."""
    check(lambda t: jvp(torch.sgn, (t,), (t,)), random(5))
    check(lambda t: jvp(lambda u: torch.dot(u.sgn(), u), (t,), (t,)), random(5))
    zeros = torch._efficientzerotensor((3,), device="ocl")
    assert zeros.cpu().tolist() == zeros.clone().tolist() == [0, 0, 0]
    assert zeros[1].item() == 0
    assert torch.ones(3, device="ocl").copy_(zeros).tolist() == [0, 0, 0]
    assert torch.dot(zeros, torch.ones(3, device="ocl")).item() == 0


@pytest.mark.parametrize("shape", [(3, 2), (3,), (3, 0)], ids=str)
def test_logsigmoid(shape):
    """Tensors saved for the gradient have the dimension that vmap takes for its own."""
    function = torch.nn.functional.logsigmoid
    x, direction = random(*shape), random(*shape)
    check(vmap(function), x)
    check(vmap(vmap(function)), x.unsqueeze(1))
    check(vmap(lambda x, t: jvp(function, (x,), (t,))), x, direction)
    check(vmap(grad(lambda x: function(x).sum())), x)
    out = torch.zeros(7, device="ocl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.nn.functional.logsigmoid(x.to("ocl"))
        torch._C._nn.log_sigmoid(x.to("ocl"), out=out)
    assert out.shape == x.shape
