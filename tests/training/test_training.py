"""Training end to end: gradients, optimisers and memory, compared with the same run on the CPU."""

import copy

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.testing import assert_close


def test_scalar_autograd():
    """d = (a * b) * b with a = 2, b = 3: dd/da = b^2 = 9, dd/db = 2ab = 12."""
    a = torch.tensor(2.0, device="ocl", requires_grad=True)
    b = torch.tensor(3.0, device="ocl", requires_grad=True)
    c = a * b
    d = c * b
    d.backward()
    assert d.item() == 18.0
    assert a.grad.item() == 9.0
    assert b.grad.item() == 12.0


def mlp(sizes):
    layers = []
    for i, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:], strict=False)):
        if i:
            layers.append(nn.ReLU())
        layers.append(nn.Linear(fan_in, fan_out))
    return nn.Sequential(*layers)


OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01),
    "SGD momentum": lambda p: torch.optim.SGD(
        p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-3
    ),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "Adam amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True, weight_decay=1e-2),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "AdamW single tensor": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
}


def train(device, make_optimiser, loss_function, targets, steps=20, clip=None):
    torch.manual_seed(0)
    model = mlp([30, 64, 64, targets.shape[1] if targets.is_floating_point() else 10])
    model = model.to(device)
    optimiser = make_optimiser(model.parameters())
    inputs = torch.randn(50, 30, generator=torch.Generator().manual_seed(1)).to(device)
    targets = targets.to(device)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = loss_function(model(inputs), targets)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
        losses.append(loss.detach())
    return model, torch.stack(losses).cpu()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_follow_the_cpu(name):
    targets = torch.randn(50, 3, generator=torch.Generator().manual_seed(2))
    cpu_model, cpu = train("cpu", OPTIMISERS[name], nn.functional.mse_loss, targets)
    ocl_model, ocl = train("ocl", OPTIMISERS[name], nn.functional.mse_loss, targets)
    assert_close(ocl, cpu, rtol=1e-4, atol=1e-5)
    for a, e in zip(ocl_model.parameters(), cpu_model.parameters(), strict=True):
        assert_close(a.detach().cpu(), e.detach(), rtol=2e-3, atol=1e-4)
    assert torch.ocl.fallback_counts() == {}


def test_classification_with_clipping():
    targets = torch.randint(0, 10, (50,), generator=torch.Generator().manual_seed(3))
    arguments = (lambda p: torch.optim.Adam(p, lr=1e-2), nn.functional.cross_entropy, targets)
    _, cpu = train("cpu", *arguments, clip=0.5)
    _, ocl = train("ocl", *arguments, clip=0.5)
    assert_close(ocl, cpu, rtol=1e-4, atol=1e-5)


def test_foreach_is_the_default():
    model = mlp([4, 4]).to("ocl")
    params = list(model.parameters())
    from torch.optim.optimizer import _default_to_fused_or_foreach

    assert _default_to_fused_or_foreach(params, differentiable=False) == (False, True)


def test_model_moves_and_copies():
    model = mlp([5, 7, 2])
    moved = copy.deepcopy(model).to("ocl")
    x = torch.randn(3, 5)
    assert_close(moved(x.to("ocl")).cpu(), model(x), rtol=1e-5, atol=1e-6)
    back = copy.deepcopy(moved).cpu()
    assert_close(back(x), model(x))
    other = mlp([5, 7, 2]).to("ocl")
    other.load_state_dict(moved.state_dict())
    assert_close(other(x.to("ocl")).cpu(), model(x), rtol=1e-5, atol=1e-6)


def test_memory_is_flat_while_training():
    model = mlp([30, 64, 3]).to("ocl")
    optimiser = torch.optim.AdamW(model.parameters())
    inputs, targets = torch.randn(50, 30).to("ocl"), torch.randn(50, 3).to("ocl")

    def step():
        optimiser.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimiser.step()

    for _ in range(5):
        step()
    torch.ocl.synchronize()
    before = torch.ocl.memory_allocated(), torch.ocl.memory_reserved()
    for _ in range(50):
        step()
    torch.ocl.synchronize()
    assert (torch.ocl.memory_allocated(), torch.ocl.memory_reserved()) == before


def test_two_threads_train():
    import threading

    errors = []

    def work(seed):
        try:
            targets = torch.randn(50, 3, generator=torch.Generator().manual_seed(seed))
            _, losses = train("ocl", OPTIMISERS["SGD"], nn.functional.mse_loss, targets)
            assert losses[-1] < losses[0]
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_draws_the_same_dropout_again(reentrant):
    x = torch.ones(1000, device="ocl", requires_grad=True)
    torch.manual_seed(0)
    y = torch.utils.checkpoint.checkpoint(
        lambda t: torch.nn.functional.dropout(t, 0.5), x, use_reentrant=reentrant
    )
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
