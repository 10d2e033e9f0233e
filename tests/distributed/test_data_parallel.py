"""DistributedDataParallel on ocl devices trains as a single process on the CPU does."""

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook,
    quantization_hooks,
)
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

from tests.distributed import processes, training


def trained(rank, net=None, device="ocl", make=training.optimizer, steps=training.STEPS, **options):
    net = DDP(training.model(device) if net is None else net, **options)
    return training.train(net, make(net.parameters()), rank, dist.get_world_size(), device, steps)


def kinds_of_ddp(rank):
    for options in (
        {},
        {"static_graph": True},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"bucket_cap_mb": 0.0005},
        {"device_ids": [0]},
    ):
        training.check(trained(rank, **options))
    net = DDP(training.model("ocl"))
    training.train(net, training.optimizer(net.parameters()), rank, 2, "ocl", 12)
    data = net._get_ddp_logging_data()
    assert data["backend_name"] == "gloo" and data["forward_compute_time"] > 0


class Halves(nn.Module):
    """Ranks use one of two layers, or both."""

    def __init__(self):
        super().__init__()
        self.both, self.other = training.model(), nn.Linear(6, 4)

    def forward(self, x, uses_other):
        return self.both(x) + self.other(x) if uses_other else self.both(x)


def unused_parameters(rank):
    net = DDP(Halves().to("ocl"), find_unused_parameters=True)
    x, _ = training.batch(0, "ocl")
    net(x, rank == 0).sum().backward()
    expected = Halves()
    expected.load_state_dict({k: v.cpu() for k, v in net.module.state_dict().items()})
    (expected(x.cpu(), True).sum() / 2).backward()
    torch.testing.assert_close(net.module.other.weight.grad.cpu(), expected.other.weight.grad)


def accumulation(rank):
    """no_sync: gradients of two batches are those of one twice as large."""
    net = DDP(training.model("ocl"))
    optimizer = training.optimizer(net.parameters())
    losses = []
    for step in range(4):
        x, y = training.share(training.batch(step, "ocl"), rank, 2)
        for number, (a, b) in enumerate(zip(x.chunk(2), y.chunk(2), strict=True)):
            with net.no_sync() if number == 0 else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(net(a), b) / 2
                loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
    total = torch.stack(losses).view(4, 2).sum(1).cpu()
    dist.all_reduce(total)
    training.check(total / 2, 4)


def uneven_inputs(rank):
    net = DDP(training.model("ocl"))
    seen = 0
    with Join([net]):
        for _ in range(2 + 2 * rank):
            net(torch.ones(2, 6, device="ocl")).sum().backward()
            seen += 1
    assert seen == 2 + 2 * rank
    # Ranks that have ended take part with zeros: parameters and gradients are as on the CPU.
    trained_by = [uneven_training(rank, device) for device in ("ocl", "cpu")]
    for mine, expected in zip(*trained_by, strict=True):
        torch.testing.assert_close(mine.cpu(), expected, rtol=1e-5, atol=1e-6)


def uneven_training(rank, device):
    """Parameters and their gradients after two steps on rank 0, four on rank 1."""
    net = DDP(training.model(device))
    optimizer = training.optimizer(net.parameters())
    with Join([net]):
        for step in range(2 + 2 * rank):
            x, y = training.share(training.batch(step, device), rank, 2)
            optimizer.zero_grad(set_to_none=False)
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    return [*net.parameters()] + [parameter.grad for parameter in net.parameters()]


def hooks(rank):
    for hook, tolerance in (
        (default_hooks.allreduce_hook, 1e-5),
        (default_hooks.fp16_compress_hook, 2e-2),
        (default_hooks.bf16_compress_hook, 5e-2),
    ):
        net = DDP(training.model("ocl"))
        net.register_comm_hook(None, hook)
        optimizer = training.optimizer(net.parameters())
        losses = training.train(net, optimizer, rank, 2, "ocl", 8)
        training.check(losses, 8, tolerance)
    net = DDP(training.model("ocl"))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    losses = training.train(net, training.optimizer(net.parameters()), rank, 2, "ocl", 6)
    assert losses.isfinite().all()
    mine = torch.cat([parameter.flatten() for parameter in net.parameters()])
    others = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(others, mine.detach())
    assert torch.equal(others[0], others[1])


def quantized_gradients(rank):
    """Each rank's gradients go as bytes, so a bucket's mean is right to a step of them."""
    own = training.share(training.batch(0, "ocl"), rank, 2)
    plain = DDP(training.model("ocl"))
    nn.functional.cross_entropy(plain(own[0]), own[1]).backward()
    expected = [parameter.grad for parameter in plain.parameters()]
    for hook in (
        quantization_hooks.quantization_pertensor_hook,
        quantization_hooks.quantization_perchannel_hook,
    ):
        for size in (25, 0.0005):  # one bucket, and several
            net = DDP(training.model("ocl"), bucket_cap_mb=size)
            net.register_comm_hook(dist.group.WORLD, hook)
            for _ in range(2):  # buckets are made anew after the first step
                net.zero_grad()
                nn.functional.cross_entropy(net(own[0]), own[1]).backward()
            mine = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
            error = (mine - torch.cat([grad.flatten() for grad in expected])).abs().max()
            largest = max(grad.abs().max() for grad in expected)
            assert 0 < error < largest / 25, (hook.__name__, size, error, largest)
            both = [torch.empty_like(mine) for _ in range(2)]
            dist.all_gather(both, mine)
            assert torch.equal(both[0], both[1])


class Checkpointed(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def checkpointing(rank):
    training.check(trained(rank, Checkpointed(training.model("ocl"))))
    training.check(trained(rank, Checkpointed(training.model("ocl")), static_graph=True))


def sharded_optimizer(rank):
    def make(parameters):
        return ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=0.2, momentum=0.9)

    training.check(trained(rank, make=make))
    net = DDP(training.model("ocl"))
    optimizer = make(net.parameters())
    training.train(net, optimizer, rank, 2, "ocl", 1)
    optimizer.consolidate_state_dict(0)
    if rank == 0:
        assert len(optimizer.state_dict()["state"]) == len(list(net.parameters()))


def autocast(rank):
    net = DDP(training.model("ocl"))
    optimizer = training.optimizer(net.parameters())
    with torch.autocast("ocl", torch.bfloat16):
        losses = training.train(net, optimizer, rank, 2, "ocl", 4)
    training.check(losses, 4, 5e-2)


def compiled(rank):
    for backend in ("aot_eager", "inductor"):
        torch._dynamo.reset()
        net = torch.compile(DDP(training.model("ocl")), backend=backend)
        optimizer = training.optimizer(net.parameters())
        training.check(training.train(net, optimizer, rank, 2, "ocl", 5), 5)


CASES = (
    kinds_of_ddp,
    unused_parameters,
    accumulation,
    uneven_inputs,
    hooks,
    quantized_gradients,
    checkpointing,
    sharded_optimizer,
    autocast,
    compiled,
)


def all_cases(rank):
    processes.each(CASES, rank)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["lent", "pinned"])
def test_data_parallel(way):
    environment = {"TORCH_OCL_WITHOUT": "unified_memory"} if way == "pinned" else {}
    processes.run(all_cases, environment=environment)


def on_both_devices(rank):
    return trained(rank, device="ocl" if rank == 0 else "cpu").tolist()


def on_cpus(rank):
    return trained(rank, device="cpu").tolist()


def test_a_rank_on_the_cpu_and_one_on_a_device():
    mixed, cpus = processes.run(on_both_devices)[0], processes.run(on_cpus)[0]
    torch.testing.assert_close(torch.tensor(mixed), torch.tensor(cpus), rtol=1e-6, atol=1e-6)


def large_tensors(rank):
    """In chunks where a rank copies: each rank's device is another."""
    device = "ocl" if rank == 0 else "cpu"
    for numel in (1000, 5000, 70001):
        x = torch.arange(numel, dtype=torch.float32, device=device) + rank
        work = dist.all_reduce(x, async_op=True)
        y = torch.full((numel,), float(rank), device=device)
        dist.broadcast(y, 1)
        work.wait()
        dist.reduce(y, 0)
        assert torch.equal(x.cpu(), 2 * torch.arange(numel) + 1.0)
        assert rank == 1 or y.cpu().eq(2).all()
        rows = torch.stack([torch.arange(numel) + 3.0 * i for i in range(2)])
        mine, whole = rows[rank].to(device), torch.zeros(2 * numel, device=device)
        dist.all_gather_into_tensor(whole, mine)
        assert torch.equal(whole.cpu(), rows.flatten()), f"all_gather_into_tensor of {numel}"
        parts = [torch.zeros(numel, device=device) for _ in range(2)]
        if rank == 0:  # gloo wants contiguous ones
            parts[1] = torch.zeros(numel, 2, device=device)[:, 1]
        work = dist.all_gather(parts, mine, async_op=True)
        y.fill_(7)
        work.wait()
        assert torch.equal(torch.stack(parts).cpu(), rows), f"all_gather of {numel}"
        found = [torch.zeros_like(mine) for _ in range(2)] if rank == 1 else None
        dist.gather(mine, found, dst=1)
        assert rank == 0 or torch.equal(torch.stack(found).cpu(), rows), f"gather of {numel}"
        dist.scatter(y, [row + 1 for row in rows.to(device)] if rank == 0 else None, src=0)
        assert torch.equal(y.cpu(), rows[rank] + 1), f"scatter of {numel}"
    t = torch.zeros(300, 200, device=device).t()
    dist.broadcast(t.copy_(torch.ones(200, 300)) if rank == 1 else t, 1)
    assert t.cpu().eq(1).all()


def large_pieces(rank):
    """reduce_scatter in chunks, of a tensor and of a list; with hardly any pinned memory."""
    torch.ocl.reset_peak_host_memory_stats()
    for numel in (1000, 300_001):
        whole = torch.arange(2 * numel, dtype=torch.float32) % 1000
        expected = (2 * whole + 1).view(2, numel)[rank]
        out = torch.empty(numel, device="ocl")
        dist.reduce_scatter_tensor(out, (whole + rank).to("ocl"))
        assert torch.equal(out.cpu(), expected), numel
        dist.reduce_scatter(out.zero_(), list((whole + rank).to("ocl").view(2, numel)))
        assert torch.equal(out.cpu(), expected), numel
        gathered = torch.empty(2 * numel, device="ocl")
        dist.all_gather_into_tensor(gathered, out)
    return torch.ocl.host_memory_stats()["active_bytes.peak"]


@pytest.mark.parametrize("without", ["unified_memory", ""])
def test_large_pieces(without):
    environment = {"TORCH_OCL_DISTRIBUTED_CHUNK": "65536", "TORCH_OCL_WITHOUT": without}
    for pinned in processes.run(large_pieces, environment=environment):
        assert pinned <= (2 << 20 if without else 0)


@pytest.mark.parametrize("without", ["unified_memory", ""])
def test_large_tensors(without):
    environment = {"TORCH_OCL_DISTRIBUTED_CHUNK": "16384", "TORCH_OCL_WITHOUT": without}
    processes.run(large_tensors, environment=environment)


def normalized(rank):
    for shape, format in (
        ((8, 5, 6, 7), torch.contiguous_format),
        ((8, 5, 6, 7), torch.channels_last),
        ((8, 5), torch.contiguous_format),
        ((8, 5, 3), torch.contiguous_format),
    ):
        generator = torch.Generator().manual_seed(3)
        x = torch.randn(shape, generator=generator) * 3 + 1
        grad = torch.randn(shape, generator=generator)
        reference = nn.BatchNorm1d(5) if len(shape) < 4 else nn.BatchNorm2d(5)
        with torch.no_grad():
            reference.weight.copy_(torch.arange(5) + 0.5)
            reference.bias.copy_(torch.arange(5) - 1.0)
        net = type(reference)(5)
        net.load_state_dict(reference.state_dict())
        net = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net).to("ocl"))
        x.requires_grad_()
        y = reference(x)
        y.backward(grad)
        # The ranks have different sizes: 3 and 5 rows.
        rows = slice(0, 3) if rank == 0 else slice(3, 8)
        mine = x.detach()[rows].contiguous(memory_format=format).to("ocl").requires_grad_()
        out = net(mine)
        out.backward(grad[rows].to("ocl"))
        torch.testing.assert_close(out.cpu(), y[rows], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.grad.cpu(), x.grad[rows], rtol=1e-4, atol=1e-5)
        weight = net.module.weight.grad.cpu() * 2  # DDP's are means
        torch.testing.assert_close(weight, reference.weight.grad, rtol=1e-4, atol=1e-4)
        state = net.module.state_dict()
        torch.testing.assert_close(state["running_mean"].cpu(), reference.running_mean)
        torch.testing.assert_close(state["running_var"].cpu(), reference.running_var)


def test_sync_batch_norm():
    processes.run(normalized)
