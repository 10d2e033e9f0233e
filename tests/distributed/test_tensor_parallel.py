"""DTensor, tensor, sequence and context parallel, and pipelines on ocl devices."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import _cp_options
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from tests.distributed import processes, training

SIZE = 2


def tensors(rank):
    mesh = init_device_mesh("ocl", (SIZE,))
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(8, 6, generator=generator), torch.randn(6, 4, generator=generator)
    x = distribute_tensor(a.to("ocl"), mesh, [Shard(0)])
    y = distribute_tensor(b.to("ocl"), mesh, [Replicate()])
    torch.testing.assert_close((x @ y).full_tensor().cpu(), a @ b)
    x = distribute_tensor(a.to("ocl"), mesh, [Shard(1)])
    y = distribute_tensor(b.to("ocl"), mesh, [Shard(0)])
    partial = x @ y
    assert partial.placements[0].is_partial()
    torch.testing.assert_close(partial.full_tensor().cpu(), a @ b)
    torch.testing.assert_close(partial.redistribute(mesh, [Shard(1)]).full_tensor().cpu(), a @ b)
    # From rows to columns: an all-to-all.
    moved = distribute_tensor(a.to("ocl"), mesh, [Shard(0)]).redistribute(mesh, [Shard(1)])
    assert torch.equal(moved.to_local().cpu(), a.chunk(SIZE, 1)[rank])
    z = DTensor.from_local(a.to("ocl"), mesh, [Shard(0)])
    assert z.shape == (8 * SIZE, 6) and z.mean().full_tensor().device.type == "ocl"
    # Random numbers of a replicated tensor are the same on all ranks.
    torch.manual_seed(7)
    noise = torch.distributed.tensor.rand(4, 4, device_mesh=mesh, placements=[Replicate()])
    rows = [torch.empty(4, 4, device="ocl") for _ in range(SIZE)]
    dist.all_gather(rows, noise.to_local())
    assert torch.equal(rows[0], rows[1])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def tensor_parallel(rank):
    mesh = init_device_mesh("ocl", (SIZE,))
    plans = {
        "tensor": {"up": ColwiseParallel(), "down": RowwiseParallel()},
        "sequence": {
            "norm": SequenceParallel(use_local_output=False),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
        },
    }
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 4, 8, generator=generator)
    reference = Block()
    expected = reference(x)
    expected.square().sum().backward()
    for name, plan in plans.items():
        net = parallelize_module(Block().to("ocl"), mesh, plan)
        part = x.chunk(SIZE, 1)[rank] if name == "sequence" else x
        out = net(part.to("ocl"))
        wanted = expected.chunk(SIZE, 1)[rank] if name == "sequence" else expected
        torch.testing.assert_close(out.cpu(), wanted)
        out.square().sum().backward()
        for side in ("up", "down"):
            grad = getattr(net, side).weight.grad.full_tensor().cpu()
            torch.testing.assert_close(grad, getattr(reference, side).weight.grad)


def attention(rank):
    """DTensors with shards of the heads, and of the batch."""
    mesh = init_device_mesh("ocl", (SIZE,))
    generator = torch.Generator().manual_seed(6)
    whole = [torch.randn(2, 4, 8, 8, generator=generator) for _ in range(3)]
    mask = torch.randn(2, 1, 8, 8, generator=generator)
    for dim in (0, 1):
        for bias in (None, mask):
            q, k, v = (t.clone().requires_grad_() for t in whole)
            expected = nn.functional.scaled_dot_product_attention(q, k, v, bias)
            expected.square().sum().backward()
            parts = [
                distribute_tensor(t.to("ocl"), mesh, [Shard(dim)]).requires_grad_() for t in whole
            ]
            own = None if bias is None else distribute_tensor(bias.to("ocl"), mesh, [Replicate()])
            out = nn.functional.scaled_dot_product_attention(*parts, own)
            assert out.placements == (Shard(dim),)
            torch.testing.assert_close(out.full_tensor().cpu(), expected)
            out.square().sum().backward()
            for part, t in zip(parts, (q, k, v), strict=True):
                torch.testing.assert_close(part.grad.full_tensor().cpu(), t.grad)


def context(rank):
    mesh = init_device_mesh("ocl", (SIZE,))
    generator = torch.Generator().manual_seed(4)
    whole = [torch.randn(2, 2, 16, 8, generator=generator) for _ in range(3)]
    for causal in (False, True):
        q, k, v = (t.clone().requires_grad_() for t in whole)
        expected = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        expected.sum().backward()
        _cp_options.enable_load_balance = causal  # upstream's, for causal attention only
        parts = [t.to("ocl") for t in whole]
        with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 3):
            leaves = [t.detach().clone().requires_grad_() for t in parts]
            out = nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
            out.sum().backward()
            grads = [t.grad for t in leaves]
        order = positions(rank, 16) if causal else torch.arange(16).chunk(SIZE)[rank]
        torch.testing.assert_close(out.cpu(), expected[:, :, order])
        for grad, t in zip(grads, (q, k, v), strict=True):
            torch.testing.assert_close(grad.cpu(), t.grad[:, :, order])


def positions(rank, length):
    """A rank's part of a sequence: of each half from another end, for equal work."""
    chunks = torch.arange(length).chunk(2 * SIZE)
    return torch.cat([chunks[rank], chunks[2 * SIZE - 1 - rank]])


def pipeline(rank):
    net = training.model("ocl")
    part = nn.Sequential(*list(net)[:2]) if rank == 0 else nn.Sequential(*list(net)[2:])
    x, y = training.batch(0, "ocl")
    reference = training.model()
    loss = nn.functional.cross_entropy(reference(x.cpu()), y.cpu())
    loss.backward()
    for schedule in (ScheduleGPipe, Schedule1F1B):
        part.zero_grad()
        stage = PipelineStage(part, rank, SIZE, torch.device("ocl", torch.ocl.current_device()))
        runs = schedule(stage, n_microbatches=4, loss_fn=nn.functional.cross_entropy)
        if rank == 0:
            runs.step(x)
        else:
            losses = []
            out = runs.step(target=y, losses=losses)
            torch.testing.assert_close(out.cpu(), reference(x.cpu()))
            torch.testing.assert_close(torch.stack(losses).mean().cpu(), loss.detach())
        index = 0 if rank == 0 else 4
        own = part[0] if rank == 0 else part[2]
        torch.testing.assert_close(own.weight.grad.cpu(), reference[index].weight.grad)


def all_cases(rank):
    processes.each((tensors, tensor_parallel, pipeline, attention, context), rank)


def test_parallel():
    processes.run(all_cases)
