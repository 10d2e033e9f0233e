"""Cases of whole training steps: forward, backward and optimiser, one synchronisation each."""

import torch
from torch import nn
from torch.nn import functional

from benchmarks.cases.models import parameter_shapes
from benchmarks.harness.case import add, wrapped


def mlp(sizes):
    torch.manual_seed(0)
    layers = []
    for i, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:], strict=False)):
        if i:
            layers.append(nn.ReLU())
        layers.append(nn.Linear(fan_in, fan_out))
    return nn.Sequential(*layers)


def step_of(sizes, batch, optimiser_class, loss_function, classes=None):
    def make(device):
        model = mlp(sizes).to(device)
        optimiser = optimiser_class(model.parameters(), lr=1e-3)
        run = wrapped(model)
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(batch, sizes[0], generator=generator).to(device)
        if classes:
            targets = torch.randint(0, classes, (batch,), generator=generator).to(device)
        else:
            targets = torch.randn(batch, sizes[-1], generator=generator).to(device)

        def call():
            optimiser.zero_grad()
            loss = loss_function(run(inputs), targets)
            loss.backward()
            optimiser.step()
            return loss.detach()

        return call

    return make


LARGE, SMALL = [784, 512, 512, 10], [300, 300, 300, 1]


def flops(sizes, batch):
    return 6.0 * batch * sum(a * b for a, b in zip(sizes, sizes[1:], strict=False))


for label, optimiser in (("SGD", torch.optim.SGD), ("AdamW", torch.optim.AdamW)):
    add(
        f"MLP 784-512-512-10 batch 128 {label}",
        "training",
        step_of(LARGE, 128, optimiser, functional.cross_entropy, classes=10),
        flops=flops(LARGE, 128),
        tolerance={"rtol": 1e-3, "atol": 1e-4},
    )
add(
    "MLP 300-300-300-1 batch 100 MSE SGD",
    "training",
    step_of(SMALL, 100, torch.optim.SGD, functional.mse_loss),
    flops=flops(SMALL, 100),
    tolerance={"rtol": 1e-3, "atol": 1e-4},
)


def optimiser_step(optimiser_class, **options):
    """A step over ResNet-50's parameters, whose gradients stay as they are."""

    def make(device):
        generator = torch.Generator().manual_seed(0)
        parameters = []
        for shape in parameter_shapes("ResNet-50"):
            parameters.append(torch.randn(shape, generator=generator).to(device).requires_grad_())
            parameters[-1].grad = torch.randn(shape, generator=generator).to(device)
        optimiser = optimiser_class(parameters, lr=1e-6, **options)

        def call():
            optimiser.step()
            return parameters[0].detach()

        return call

    return make


def elements():
    return sum(torch.Size(shape).numel() for shape in parameter_shapes("ResNet-50"))


# Moved per element: the parameter, its gradient, what the optimiser keeps.
for label, optimiser, options, moved in (
    ("SGD with momentum", torch.optim.SGD, {"momentum": 0.9}, 20),
    ("AdamW", torch.optim.AdamW, {}, 28),
    ("AdamW fused", torch.optim.AdamW, {"fused": True}, 28),
):
    add(
        f"{label}, ResNet-50's parameters",
        "training",
        optimiser_step(optimiser, **options),
        bytes=moved * elements(),
        tolerance={"rtol": 1e-3, "atol": 1e-4},
    )
