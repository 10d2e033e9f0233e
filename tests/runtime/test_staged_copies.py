"""Large copies of devices with memory of their own, in pieces through pinned memory."""

import os

import pytest
import torch

from tests import fresh

SCRIPT = """
import torch
torch.manual_seed(0)
piece = 4 << 20
for bytes in (2 * piece - 1, 2 * piece, 3 * piece + 5, 9 * piece + 1):
    x = torch.randint(0, 255, (bytes,), dtype=torch.uint8)
    y = x.to("ocl")
    assert torch.equal(y.cpu(), x), bytes
    # Views: an odd address on either side, and what the copy must leave alone.
    host = torch.full((bytes + 3,), 7, dtype=torch.uint8)
    host[1:-2].copy_(y)
    assert torch.equal(host[1:-2], x) and host[0] == 7 and host[-2:].eq(7).all()
    device = torch.full((bytes + 3,), 7, dtype=torch.uint8, device="ocl")
    device[3:].copy_(x)
    assert torch.equal(device[3:].cpu(), x) and device[:3].eq(7).all()
# In the stream's order, before and after.
a = torch.zeros(6 << 20, device="ocl")
for i in range(4):
    a += 1
    b = a.cpu()
    a.copy_(b * 2)
assert (a == 30).all()
t = torch.randn(2000, 2100).t()
assert torch.equal(t.to("ocl").cpu(), t) and torch.equal(t.to("ocl").t().contiguous().cpu(), t.t())
print("same")
"""


@pytest.mark.parametrize("unified", [True, False], ids=["unified", "own"])
def test_large_copies(unified):
    """Results are the same with staging and without; on a CPU staging is for tests alone."""
    environment = dict(os.environ)
    if not unified:
        environment |= {"TORCH_OCL_TUNE_AS": "gpu", "TORCH_OCL_WITHOUT": "unified_memory"}
    result = fresh.run_script(SCRIPT, environment=environment)
    assert result.stdout == "same\n", result.stderr[-2000:]


def test_copies_between_devices():
    """In pieces, too; with one device there is nothing between to copy."""
    count = torch.ocl.device_count()
    for n in (0, 1, 1000, (9 << 20) + 3):
        x = torch.randn(n)
        for other in range(count):
            y = x.to("ocl:0").to(f"ocl:{other}")
            assert y.device.index == other and torch.equal(y.cpu(), x)
            z = torch.zeros(n + 1, device="ocl:0")
            z[1:].copy_(y)
            assert torch.equal(z[1:].cpu(), x)
