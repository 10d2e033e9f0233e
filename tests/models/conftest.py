"""The tests of networks share this: nothing may run on the host, or ask the network."""

import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def _nothing_runs_on_the_host():
    torch.ocl.reset_fallback_counts()
    torch.ocl.reset_host_staged_counts()
    yield
    assert not torch.ocl.fallback_counts() and not torch.ocl.host_staged_counts()
