"""Random DTensors have the numbers that one ocl device makes with the same seed."""

import pytest
import torch
import torch.distributed.tensor as dt
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor._random import is_rng_supported_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import _StridedShard

from tests.distributed import processes

# A dimension that no mesh divides evenly, and one of which a rank of four has no part.
SHAPES = ((8, 6), (7, 5, 3), (3, 4))
PLACEMENTS = {
    (2,): ([Replicate()], [Shard(0)], [Shard(1)]),
    (2, 2): ([Shard(0), Shard(1)], [Replicate(), Shard(1)], [Shard(0), Shard(0)]),
}
#: Upstream distributes them where they are equal.
STRIDED = (
    [_StridedShard(0, split_factor=2), Shard(0)],
    [_StridedShard(1, split_factor=2), Shard(1)],
    [_StridedShard(0, split_factor=4), Shard(1)],
)
IN_PLACE = (
    lambda t: t.uniform_(-1, 2),
    lambda t: t.normal_(1, 3),
    lambda t: t.bernoulli_(0.3),
    lambda t: nn.init.xavier_uniform_(t),
    lambda t: nn.init.kaiming_normal_(t),
)
NEW = (
    torch.rand_like,
    torch.randn_like,
    lambda t: torch.randint_like(t, 9),
    lambda t: torch.randint_like(t, -3, 9),
    lambda t: torch.bernoulli(t.abs() / 20),
    lambda t: nn.functional.dropout(t, 0.4),
)


def numbers(rank, mesh_shape):
    mesh = init_device_mesh("ocl", mesh_shape)
    assert is_rng_supported_mesh(mesh)
    cases = [(shape, placements) for shape in SHAPES for placements in PLACEMENTS[mesh_shape]]
    cases += [((8, 4), placements) for placements in STRIDED if mesh_shape == (2, 2)]
    for shape, placements in cases:
        made = one_after_the_other(shape, mesh, placements)
        for number, (whole, sharded) in enumerate(made):
            case = (shape, placements, number)
            assert sharded.placements == tuple(placements), case
            assert torch.equal(sharded.full_tensor(), whole), case


def one_after_the_other(shape, mesh, placements):
    """Pairs of tensors by each op, whose numbers follow those of the op before."""
    whole = torch.arange(1.0, torch.Size(shape).numel() + 1, device="ocl").reshape(shape) / 10
    sharded = distribute_tensor(whole, mesh, placements)
    torch.manual_seed(5)
    expected = [torch.rand(shape, device="ocl"), torch.randn(shape, device="ocl")]
    expected += [op(whole) for op in NEW]
    expected += [op(whole.clone()) for op in IN_PLACE]
    expected.append(torch.rand(3, device="ocl"))
    torch.manual_seed(5)
    made = [make(shape, device_mesh=mesh, placements=placements) for make in (dt.rand, dt.randn)]
    made += [op(sharded) for op in NEW]
    made += [op(distribute_tensor(whole.clone(), mesh, placements)) for op in IN_PLACE]
    # Then a plain tensor's.
    assert torch.equal(torch.rand(3, device="ocl"), expected.pop())
    return zip(expected, made, strict=True)


@pytest.mark.parametrize("mesh_shape", list(PLACEMENTS))
def test_numbers_are_those_of_one_device(mesh_shape):
    processes.run(numbers, mesh_shape, size=torch.Size(mesh_shape).numel())


def initialised(rank, mesh_shape):
    """A model with tensor parallelism in FSDP: its shards of columns are strided."""
    mesh = init_device_mesh("ocl", mesh_shape, mesh_dim_names=("dp", "tp"))

    def model(device):
        return nn.Sequential(nn.Linear(7, 10), nn.ReLU(), nn.Linear(10, 6)).to(device)

    sharded = model("meta")
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(sharded, mesh["tp"], plan)
    fully_shard(sharded, mesh=mesh["dp"])
    sharded.to_empty(device="ocl")
    whole = model("ocl")
    for net in (whole, sharded):
        torch.manual_seed(3)
        for p in net.parameters():
            nn.init.normal_(p, 1, 2)
            nn.init.uniform_(p) if p.dim() == 1 else nn.init.kaiming_uniform_(p)
    kinds = {type(p).__name__ for p in sharded[0].weight.placements}
    assert "_StridedShard" in kinds, kinds
    for expected, p in zip(whole.parameters(), sharded.parameters(), strict=True):
        assert torch.equal(p.full_tensor(), expected), p.placements


def test_models_with_two_kinds_of_shards():
    processes.run(initialised, (2, 2), size=4)
