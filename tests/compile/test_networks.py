"""torch.compile of small networks: training and inference against the same network, eagerly."""

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width=32, heads=2):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.RMSNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))


class Language(nn.Module):
    def __init__(self, words=61, width=32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, words)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.blocks(self.words(x) + self.places(places)))


def vision():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, groups=4),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 61),
    )


def batch(name, count=3, length=13):
    generator = torch.Generator().manual_seed(count * length)
    if name == "language":
        x = torch.randint(0, 61, (count, length), generator=generator)
        return x.to("ocl"), torch.randint(0, 61, (count * length,), generator=generator).to("ocl")
    x = torch.randn(count, 3, 10, 12, generator=generator)
    return x.to("ocl"), torch.randint(0, 61, (count,), generator=generator).to("ocl")


NETWORKS = {"language": Language, "vision": vision}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_training(name, dtype):
    torch._dynamo.reset()
    torch.manual_seed(0)
    network = NETWORKS[name]()
    x, y = batch(name)

    def losses(compiled):
        moved = copy.deepcopy(network).to("ocl")
        optimizer = torch.optim.AdamW(moved.parameters(), 1e-2)
        run = torch.compile(moved, fullgraph=True) if compiled else moved
        results = []
        for _ in range(3):
            with torch.autocast("ocl", dtype, enabled=dtype != torch.float32):
                out = run(x)
                loss = functional.cross_entropy(out.reshape(-1, 61).float(), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            results.append(loss.item())
        return torch.tensor(results)

    tol = 1e-4 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(losses(True), losses(False), rtol=tol, atol=tol)


@pytest.mark.parametrize("name", NETWORKS)
def test_sizes_that_change(name):
    """One program for all, after the first change; channels-last images, too."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    network = NETWORKS[name]().to("ocl").eval()
    compiled = torch.compile(network, fullgraph=True)
    counters.clear()
    for count, length in ((3, 13), (5, 17), (2, 33), (7, 20)):
        x = batch(name, count, length)[0]
        if name == "vision":
            x = x.to(memory_format=torch.channels_last)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), network(x), rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] <= 2


def test_a_compiled_optimizer_step():
    def trained(compiled):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(7, 9), nn.Linear(9, 3)).to("ocl")
        optimizer = torch.optim.AdamW(network.parameters(), 1e-2)
        step = torch.compile(optimizer.step) if compiled else optimizer.step
        for _ in range(3):
            network(torch.ones(2, 7, device="ocl")).square().sum().backward()
            step()
        return [p.detach() for p in network.parameters()]

    for actual, expected in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(actual, expected)


def test_dropout_and_seeds():
    torch._dynamo.reset()
    drop = torch.compile(lambda x: functional.dropout(x, 0.25))
    x = torch.ones(4000, device="ocl")
    torch.manual_seed(5)
    first, second = drop(x), drop(x)
    torch.manual_seed(5)
    assert torch.equal(drop(x), first)
    assert not torch.equal(first, second)
    assert abs((first == 0).float().mean().item() - 0.25) < 0.05
    assert set(first.cpu().unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    normal = torch.compile(lambda x: torch.randn_like(x))(torch.ones(20000, device="ocl")).cpu()
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03


def test_parts_of_graphs():
    """torch.cond's branches, several threads and vmap over a gradient."""
    torch._dynamo.reset()

    def branches(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (x,)) + 1

    compiled = torch.compile(branches)
    for x in (torch.ones(5), -torch.ones(5)):
        torch.testing.assert_close(compiled(x.to("ocl")).cpu(), branches(x))
    per_sample = torch.vmap(torch.func.grad(lambda w, x: (w * x).sin().sum()), in_dims=(None, 0))
    w, x = torch.randn(4), torch.randn(3, 4)
    result = torch.compile(per_sample)(w.to("ocl"), x.to("ocl"))
    torch.testing.assert_close(result.cpu(), per_sample(w, x))
