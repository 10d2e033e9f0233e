"""DataLoader's workers beside a device: forked or spawned, with pinned batches, before and after
its first use. A hang is a failure: each program has a limit."""

import os
import subprocess
import sys
import tempfile

import pytest

PROGRAM = """
import sys, torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Squares(Dataset):
    '''Tensors, a dict and a number of each item.'''
    def __len__(self):
        return 12
    def __getitem__(self, index):
        assert torch.utils.data.get_worker_info() is not None
        x = torch.full((3,), float(index))
        return {"x": x, "square": x.square(), "index": index}

class OnDevice(Squares):
    def __getitem__(self, index):
        return torch.ones(2, device="ocl") * index

class OnDeviceAndBack(OnDevice):
    def __getitem__(self, index):
        return super().__getitem__(index).cpu()

def loader(data, **arguments):
    return DataLoader(data, 4, num_workers=2, pin_memory=True, **arguments)

if __name__ == "__main__":
    context = sys.argv[1]
"""


def run(body, context, limit=240):
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    # Spawned workers import the program from its file.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        with open(path, "w") as file:
            file.write(PROGRAM + lines)
        done = subprocess.run(
            [sys.executable, path, context],
            capture_output=True,
            text=True,
            timeout=limit,
            env=os.environ | {"PYTHONFAULTHANDLER": "1"},
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


TRAINING = """
model = torch.nn.Linear(3, 3){first}
batches = loader(Squares(), multiprocessing_context=context, persistent_workers={persistent})
weights = torch.zeros(3, device="ocl")
for epoch in range(2):
    seen = []
    for batch in batches:
        assert batch["x"].is_pinned() and batch["index"].is_pinned()
        x = batch["x"].to("ocl", non_blocking=True)
        square = batch["square"].to("ocl", non_blocking=True)
        model = model.to("ocl")
        (model(x) - square).square().mean().backward()
        assert torch.equal((x * x).cpu(), batch["square"])
        seen += batch["index"].tolist()
    assert seen == list(range(12)), seen
    assert model.weight.grad.isfinite().all()
print("done")
"""


@pytest.mark.parametrize(
    "context, used", [("fork", False), ("fork", True), ("forkserver", True), ("spawn", True)]
)
def test_pinned_batches(context, used):
    persistent = context != "fork"
    body = TRAINING.format(first='.to("ocl")' if used else "", persistent=persistent)
    assert run(body, context).split() == ["done"]


def test_forked_workers_that_stay():
    body = TRAINING.format(first='.to("ocl")', persistent=True)
    assert run(body, "fork").split() == ["done"]


def test_two_loaders_at_once():
    """The second forks its workers while the first's thread pins memory."""
    body = """
train = loader(Squares(), multiprocessing_context=context)
for _ in range(3):
    for batch in train:
        batch["x"].to("ocl", non_blocking=True)
        for other in loader(Squares(), multiprocessing_context=context):
            assert other["x"].is_pinned()
print("done")
"""
    assert run(body, "fork").split() == ["done"]


def test_a_loop_that_ends_early():
    body = """
for _ in range(3):
    for batch in loader(Squares(), multiprocessing_context=context):
        batch["x"].to("ocl", non_blocking=True)
        break
print("done")
"""
    assert run(body, "fork").split() == ["done"]


def test_pinned_tensors_of_the_data_reach_forked_workers():
    body = """
x = torch.arange(12.0).pin_memory()
for epoch in range(2):
    batches = loader(TensorDataset(x), multiprocessing_context=context)
    found = torch.cat([part for (part,) in batches])
    assert found.equal(torch.arange(12.0)), found
print("done")
"""
    assert run(body, "fork").split() == ["done"]


def test_forked_workers_can_not_use_a_device_in_use():
    body = """
torch.ones(2, device="ocl")
try:
    list(loader(OnDevice(), multiprocessing_context=context))
except RuntimeError as error:
    assert "multiprocessing_context='spawn'" in str(error), error
    print("refused")
"""
    assert run(body, "fork").split() == ["refused"]


def test_spawned_workers_may_use_a_device_for_themselves():
    body = """
torch.ones(2, device="ocl")
found = torch.cat(list(loader(OnDeviceAndBack(), multiprocessing_context=context)))
assert found[:, 0].tolist() == list(range(12))
try:
    list(loader(OnDevice(), multiprocessing_context=context, timeout=60))
except RuntimeError as error:
    print("refused", "as a CPU tensor" in str(error))
"""
    assert run(body, "spawn").split() == ["refused", "True"]


def test_seeds_of_workers():
    """Augmentations in workers are as reproducible as without the device."""
    body = """
class Random(Squares):
    def __getitem__(self, index):
        return torch.rand(2)
def numbers():
    torch.manual_seed(5)
    return torch.cat(list(loader(Random(), multiprocessing_context=context)))
first = numbers()
torch.ones(2, device="ocl")
assert numbers().equal(first) and len(first.unique()) == 24
print("done")
"""
    assert run(body, "fork").split() == ["done"]


def test_forked_workers_may_ask_for_devices_and_seed_them():
    """As workers of programs do that seed all that there is."""
    body = """
class Asking(Squares):
    def __getitem__(self, index):
        torch.manual_seed(index)
        if torch.ocl.is_available():
            torch.ocl.manual_seed_all(index)
        y = torch.ones(1, requires_grad=True)
        (y * 2).sum().backward()
        return torch.tensor([torch.ocl.device_count(), torch.rand(1).item(), y.grad.item()])
weight = torch.ones(2, device="ocl", requires_grad=True)
weight.sum()
found = torch.cat(list(loader(Asking(), multiprocessing_context=context)))
assert set(found[:, 0].tolist()) == {float(torch.ocl.device_count())}, found
print("done")
"""
    assert run(body, "fork").split() == ["done"]
