"""Random DTensors have the numbers that one ocl device makes with the same seed."""

import pytest
import torch
import torch.distributed.tensor as dt
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor._random import is_rng_supported_mesh

from tests.distributed import processes

# A dimension that no mesh divides evenly, and one of which a rank of four has no part.
SHAPES = ((8, 6), (7, 5, 3), (3, 4))
PLACEMENTS = {
    (2,): ([Replicate()], [Shard(0)], [Shard(1)]),
    (2, 2): ([Shard(0), Shard(1)], [Replicate(), Shard(1)], [Shard(0), Shard(0)]),
}
IN_PLACE = (
    lambda t: t.uniform_(-1, 2),
    lambda t: t.normal_(1, 3),
    lambda t: t.bernoulli_(0.3),
    lambda t: nn.init.xavier_uniform_(t),
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
    for shape in SHAPES:
        for placements in PLACEMENTS[mesh_shape]:
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
