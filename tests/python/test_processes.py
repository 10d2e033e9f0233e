"""Tensors between processes: those on the device are refused when they are sent."""

import multiprocessing.reduction

import pytest
import torch
import torch.multiprocessing


@pytest.mark.parametrize(
    "value",
    [
        lambda: torch.ones(3, device="ocl"),
        lambda: [torch.nn.Linear(2, 2, device="ocl").weight],
        lambda: torch.ones(3, device="ocl").untyped_storage(),
        lambda: torch.nn.Linear(2, 2, device="ocl"),
    ],
    ids=["tensor", "parameter", "storage", "module"],
)
def test_sending_is_refused(value):
    with pytest.raises(RuntimeError, match="as a CPU tensor"):
        multiprocessing.reduction.ForkingPickler.dumps(value())


def test_a_queue_refuses_at_once():
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    with pytest.raises(RuntimeError, match="as a CPU tensor"):
        queue.put(torch.ones(3, device="ocl"))


def test_what_is_shared():
    assert not torch.ones(3, device="ocl").is_shared()
    assert not torch.ones(3).is_shared()
    assert torch.ones(3).share_memory_().is_shared()
    received = torch.multiprocessing.get_context("spawn").SimpleQueue()
    received.put(torch.arange(3))
    assert received.get().tolist() == [0, 1, 2]
