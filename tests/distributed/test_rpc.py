"""RPC takes ocl tensors by device maps, as CUDA's."""

import re

import pytest
import torch
import torch.distributed.autograd as dist_autograd
from torch.distributed import rpc

from tests.distributed import processes


def start(rank, path, pairs):
    """A worker for each rank, with a map from each to the other."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}")
    if pairs:
        options.set_device_map(f"worker{1 - rank}", pairs)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)


def doubled(pair):
    """On the callee. Arguments may be nested, and so may results."""
    tensor, scale = pair["tensor"], pair["scale"]
    return {"device": str(tensor.device), "result": [tensor * scale, torch.ones(2)]}


def where(tensor):
    return str(tensor.device), tensor


def calls(rank, path):
    start(rank, path, {"ocl:0": "ocl:0"})
    if rank == 0:
        x = torch.arange(6.0, device="ocl").reshape(2, 3).t()
        got = rpc.rpc_sync("worker1", doubled, ({"tensor": x, "scale": 2},))
        assert got["device"] == "ocl:0" and got["result"][1].device.type == "cpu"
        assert got["result"][0].device == x.device
        assert torch.equal(got["result"][0].cpu(), 2 * x.cpu())
        # Functions of torch itself go another way upstream.
        total = rpc.rpc_async("worker1", torch.add, (x, x), {"alpha": 3}).wait()
        assert total.device == x.device and torch.equal(total, 4 * x)
        assert torch.equal(rpc.rpc_sync(1, torch.add, (torch.ones(2), 1)), torch.full((2,), 2.0))
        for reference in (rpc.remote("worker1", torch.mul, (x, 5)), rpc.remote(1, scaled, (x,))):
            assert torch.equal(reference.to_here(), 5 * x)
            assert torch.equal(reference.rpc_sync().add(1), 5 * x + 1)
        assert rpc.rpc_sync("worker0", where, (x,))[0] == "ocl:0"
        parameter = torch.nn.Parameter(x)
        assert torch.equal(rpc.rpc_sync("worker1", where, (parameter,))[1], x)
        with pytest.raises(ValueError, match="for the caller"):
            rpc.rpc_sync("worker1", failing, (x,))
        gradients(x)
    rpc.shutdown()


def scaled(tensor):
    return tensor * 5


def failing(tensor):
    raise ValueError("for the caller")


def gradients(x):
    """Distributed autograd, there and back."""
    a = x.clone().requires_grad_()
    with dist_autograd.context() as context:
        loss = (rpc.rpc_sync("worker1", scaled, (a,)) * a).sum()
        dist_autograd.backward(context, [loss])
        found = dist_autograd.get_gradients(context)[a]
    assert found.device == a.device and torch.equal(found, 10 * x)


def without_a_map(rank, path):
    start(rank, path, {})
    if rank == 0:
        x = torch.ones(2, device="ocl")
        with pytest.raises(RuntimeError, match="no device map for ocl:0 of this call with worker1"):
            rpc.rpc_sync("worker1", scaled, (x,))
        with pytest.raises(RuntimeError, match="no device map for ocl:0 of this call with worker1"):
            rpc.rpc_sync("worker1", new, ())
        assert torch.equal(rpc.rpc_sync("worker1", scaled, (x.cpu(),)), torch.full((2,), 5.0))
    rpc.shutdown()


def new():
    return torch.ones(2, device="ocl")


def wrong_maps(rank, path):
    words = "source devices with invalid indices in its device map for worker"
    count = torch.ocl.device_count()
    for pairs, message in (
        ({f"ocl:{count}": "ocl:0"}, words),
        ({"ocl:0": "cpu"}, "maps devices of ocl to others"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            start(rank, f"{path}{len(message)}", pairs)


@pytest.mark.parametrize("function", [calls, without_a_map, wrong_maps])
def test_rpc(function, tmp_path):
    processes.run(function, str(tmp_path / "rpc"), backend="")
