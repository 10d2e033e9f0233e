"""A small training that the tests of distributed training share, and what a single process makes of
it."""

import torch
from torch import nn

STEPS = 20
BATCH = 8


def model(device: str = "cpu") -> nn.Module:
    """A model with the same parameters at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        net = nn.Sequential(
            nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16, bias=False), nn.ReLU(), nn.Linear(16, 4)
        )
    return net.to(device)


def batch(step: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of all ranks."""
    generator = torch.Generator().manual_seed(100 + step)
    x = torch.randn(BATCH, 6, generator=generator)
    y = torch.randint(0, 4, (BATCH,), generator=generator)
    return x.to(device), y.to(device)


def share(tensors, rank: int, size: int):
    """A rank's part of each tensor."""
    return [tensor.chunk(size)[rank] for tensor in tensors]


def optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def train(net, optimizer, rank: int = 0, size: int = 1, device: str = "cpu", steps: int = STEPS):
    """Losses of the steps: means over all ranks' inputs, as numbers on this rank."""
    losses = []
    for step in range(steps):
        x, y = share(batch(step, device), rank, size)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().float())
    losses = torch.stack([loss.cpu() for loss in losses])
    if size > 1:
        torch.distributed.all_reduce(losses)
        losses /= size
    return losses


def alone(steps: int = STEPS) -> torch.Tensor:
    """The losses of a single process on the CPU."""
    net = model()
    return train(net, optimizer(net.parameters()), steps=steps)


def check(losses: torch.Tensor, steps: int = STEPS, tolerance: float = 1e-5) -> None:
    """They are those of a single process with all ranks' inputs."""
    torch.testing.assert_close(losses, alone(steps), rtol=tolerance, atol=tolerance)
