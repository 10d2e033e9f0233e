"""FSDP on ocl devices, both generations, and checkpoints of what it shards."""

import copy

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)

from tests.distributed import processes, training

SIZE = 2


def shard(net, **options):
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(net, **options)


def losses(net, rank, steps=training.STEPS):
    optimizer = training.optimizer(net.parameters())
    return training.train(net, optimizer, rank, SIZE, "ocl", steps)


def fully_sharded(rank):
    mesh = init_device_mesh("ocl", (SIZE,))
    net = shard(training.model("ocl"), mesh=mesh)
    training.check(losses(net, rank))
    assert net[0].weight.to_local().shape[0] == 16 // SIZE
    # Without a mesh, and from the CPU: parameters move to the device, since it is in use.
    net = shard(training.model())
    assert net[0].weight.device.type == "ocl"
    training.check(losses(net, rank, 5), 5)
    # Meta tensors, filled once they are shards.
    with torch.device("meta"):
        net = training.model("meta")
    shard(net, mesh=mesh)
    net.to_empty(device="ocl")
    full = training.model("ocl").state_dict()
    for name, parameter in net.named_parameters():
        row = full[name].chunk(SIZE)[rank]
        with torch.no_grad():
            parameter.to_local().copy_(row)
    training.check(losses(net, rank, 5), 5)
    # Several steps of accumulation, and no resharding after the forward pass.
    net = shard(training.model("ocl"), mesh=mesh, reshard_after_forward=False)
    training.check(losses(net, rank, 5), 5)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    net = shard(training.model("ocl"), mesh=mesh, mp_policy=policy)
    training.check(losses(net, rank, 5), 5, tolerance=5e-2)
    net = shard(training.model("ocl"), mesh=mesh, offload_policy=CPUOffloadPolicy())
    assert net[0].weight.device.type == "cpu"
    training.check(losses(net, rank, 5), 5)
    # Hybrid: replicas of one shard each.
    mesh = init_device_mesh("ocl", (SIZE, 1), mesh_dim_names=("replicate", "shard"))
    training.check(losses(shard(training.model("ocl"), mesh=mesh), rank, 5), 5)
    net = shard(training.model("ocl"), mesh=init_device_mesh("ocl", (SIZE,)))
    losses(net, rank, 1)
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1).full_tensor()
    assert norm.device.type == "ocl" and norm.item() > 0.1


def hybrid(rank):
    """Two replicas, each of two shards."""
    size = 2 * SIZE
    names = ("replicate", "shard")
    mesh = init_device_mesh("ocl", (2, SIZE), mesh_dim_names=names)
    net = shard(training.model("ocl"), mesh=mesh)
    assert net[0].weight.to_local().shape[0] == 16 // SIZE
    optimizer = training.optimizer(net.parameters())
    training.check(training.train(net, optimizer, rank, size, "ocl", 6), 6)
    options = {"sharding_strategy": ShardingStrategy.HYBRID_SHARD, "device_mesh": mesh}
    options["device_id"] = torch.device("ocl", 0)
    net = FullyShardedDataParallel(training.model("ocl"), **options)
    optimizer = training.optimizer(net.parameters())
    training.check(training.train(net, optimizer, rank, size, "ocl", 6), 6)


def fully_sharded_data_parallel(rank):
    device = torch.device("ocl", 0)
    for options, tolerance in (
        ({}, 1e-5),
        ({"use_orig_params": True}, 1e-5),
        ({"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}, 1e-5),
        ({"sharding_strategy": ShardingStrategy.NO_SHARD}, 1e-5),
        ({"cpu_offload": CPUOffload(offload_params=True)}, 1e-5),
        ({"mixed_precision": MixedPrecision(param_dtype=torch.bfloat16)}, 5e-2),
    ):
        net = FullyShardedDataParallel(training.model("ocl"), device_id=device, **options)
        training.check(losses(net, rank, 6), 6, tolerance)


def checkpoints(rank, folder):
    mesh = init_device_mesh("ocl", (SIZE,))
    net = shard(training.model("ocl"), mesh=mesh)
    optimizer = training.optimizer(net.parameters())
    first = training.train(net, optimizer, rank, SIZE, "ocl", 3)
    model_state, optimizer_state = get_state_dict(net, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "step": 3}
    dcp.save(state, checkpoint_id=f"{folder}/now")
    dcp.async_save(state, checkpoint_id=f"{folder}/later").result()
    kept = {name: value.full_tensor().cpu().clone() for name, value in model_state.items()}
    training.train(net, optimizer, rank, SIZE, "ocl", 2)
    for name in ("now", "later"):
        other = shard(training.model("ocl"), mesh=mesh)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        its_optimizer = training.optimizer(other.parameters())
        model_state, optimizer_state = get_state_dict(other, its_optimizer)
        state = {"model": model_state, "optimizer": optimizer_state, "step": 0}
        dcp.load(state, checkpoint_id=f"{folder}/{name}")
        set_state_dict(
            other,
            its_optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        assert state["step"] == 3
        for key, value in other.state_dict().items():
            assert torch.equal(value.full_tensor().cpu(), kept[key])
    assert len(first) == 3
    # Plain tensors, too.
    plain = {"x": torch.arange(6.0, device="ocl") * (1 + rank * 0)}
    dcp.save(copy.copy(plain), checkpoint_id=f"{folder}/plain")
    loaded = {"x": torch.zeros(6, device="ocl")}
    dcp.load(loaded, checkpoint_id=f"{folder}/plain")
    assert torch.equal(loaded["x"].cpu(), torch.arange(6.0))
    dist.barrier()


def test_fully_shard():
    processes.run(fully_sharded)


def test_fully_shard_with_copies():
    processes.run(fully_sharded, environment={"TORCH_OCL_WITHOUT": "unified_memory"})


def test_hybrid_sharding():
    processes.run(hybrid, size=2 * SIZE)


def test_fully_sharded_data_parallel():
    processes.run(fully_sharded_data_parallel)


def test_checkpoints(tmp_path):
    processes.run(checkpoints, str(tmp_path))
