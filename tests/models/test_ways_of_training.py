"""Ways to run and train a network besides plain steps, each against the same on the CPU."""

import copy

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize
from torch.testing import assert_close


class Classifier(nn.Module):
    """Convolutions, then attention over what they found; `saving` computes them again backward."""

    def __init__(self, channels=16, classes=5, saving=False):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1)
            )
            for _ in range(4)
        )
        self.mix = nn.TransformerEncoderLayer(channels, 4, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(channels, classes)
        self.saving = saving

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            if self.saving:
                x = x + torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = x + block(x)
        x = functional.avg_pool2d(x, 4).flatten(2).mT
        return self.head(self.mix(x).mean(1))


def make(**arguments):
    torch.manual_seed(0)
    return Classifier(**arguments).double()


def data(device, count=8, size=16):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 3, size, size, dtype=torch.float64, generator=generator)
    return x.to(device), (torch.arange(count) % 5).to(device)


def loss_of(model, x, labels):
    return functional.cross_entropy(model(x), labels)


def gradients(model):
    return [p.grad.cpu() for p in model.parameters()]


def train(model, device, steps=3):
    """The losses of some steps."""
    model = copy.deepcopy(model).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = loss_of(model, *data(device))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()]


def test_inference_mode(device):
    model, (x, _) = make().eval(), data("cpu")
    with torch.inference_mode():
        want = model(x)
        got = copy.deepcopy(model).to(device)(x.to(device))
    assert got.is_inference() and not got.requires_grad
    assert_close(got.cpu(), want)
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        (got * torch.ones_like(want, requires_grad=True).to(device)).sum().backward()


def test_checkpoint(device):
    """The gradients are the same ones to the bit, and it takes less memory."""
    x, labels = data(device, size=64)
    found, peaks = [], []
    for saving in (False, True):
        model = make(saving=saving).to(device)
        torch.ocl.synchronize()
        torch.ocl.reset_peak_memory_stats()
        before = torch.ocl.memory_allocated()
        loss_of(model, x, labels).backward()
        torch.ocl.synchronize()
        peaks.append(torch.ocl.max_memory_allocated() - before)
        found.append(gradients(model))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert peaks[1] < 0.7 * peaks[0]
    model = make()
    loss_of(model, *data("cpu", size=64)).backward()
    assert_close(found[1], gradients(model))


def test_gradient_accumulation(device):
    """Four quarters of a batch give the gradient of the whole one."""
    want, got = make(), make().to(device)
    loss_of(want, *data("cpu")).backward()
    x, labels = data(device)
    for part, wanted in zip(x.chunk(4), labels.chunk(4), strict=True):
        (loss_of(got, part, wanted) / 4).backward()
    assert_close(gradients(got), gradients(want))


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).mT


@pytest.mark.parametrize("kind", ["weight norm", "spectral norm", "orthogonal", "own"])
def test_parametrize(kind):
    model = make()
    if kind == "own":
        parametrize.register_parametrization(model.mix.self_attn.out_proj, "weight", Symmetric())
    elif kind == "orthogonal":
        parametrizations.orthogonal(model.mix.linear1)
    else:
        add = {
            "weight norm": parametrizations.weight_norm,
            "spectral norm": parametrizations.spectral_norm,
        }[kind]
        for block in model.blocks:
            add(block[2])
    assert_close(train(model, "ocl"), train(model, "cpu"))


def test_parametrization_is_removed(device):
    layer = parametrizations.weight_norm(nn.Linear(4, 3)).to(device)
    want = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, nn.Parameter) and torch.equal(layer.weight, want)


def ensemble(device, count=3):
    models = []
    for seed in range(count):
        torch.manual_seed(seed)
        models.append(Classifier().double().to(device))
    return models[0], stack_module_state(models)


def test_functional_call_over_an_ensemble():
    """Each network's gradients at once: vmap of grad of functional_call."""

    def per_network(device):
        model, (parameters, buffers) = ensemble(device)
        x, labels = data(device)

        def loss(parameters, buffers):
            return functional.cross_entropy(
                functional_call(model, (parameters, buffers), x), labels
            )

        return vmap(grad(loss))(parameters, buffers)

    want, got = per_network("cpu"), per_network("ocl")
    assert_close({n: g.cpu() for n, g in got.items()}, want)


def test_gradients_of_each_image():
    """One network, a gradient for every image of the batch."""

    def per_image(device):
        model = make().to(device)
        x, labels = data(device)

        def loss(parameters, image, label):
            scores = functional_call(model, parameters, image[None])
            return functional.cross_entropy(scores, label[None])

        return vmap(grad(loss), in_dims=(None, 0, 0))(dict(model.named_parameters()), x, labels)

    want, got = per_image("cpu"), per_image("ocl")
    assert_close({n: g.cpu() for n, g in got.items()}, want)
