"""Shared fixtures: the device under test and a clean state around each test."""

import collections
import os
import zlib

import pytest
import torch

import torch_ocl  # noqa: F401
from tests import cores, dtypes

#: Cases of each test that every sample has.
ALWAYS = 4


def pytest_configure(config):
    # The processes that tests start have the device beside CUDA, too.
    os.environ.setdefault("TORCH_OCL_AUTOLOAD", "always")
    cores.share(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def pytest_collection_modifyitems(config, items):
    wanted = sample([item for item in items if is_wanted(item)])
    if len(wanted) < len(items):
        kept = set(wanted)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = wanted


def sample(items):
    """Leaves out cases of tests that have many: the first ones stay, and one of
    TORCH_OCL_TEST_SAMPLE others, always the same. Tests marked `whole` keep theirs."""
    share = int(os.environ.get("TORCH_OCL_TEST_SAMPLE", "1"))
    seen = collections.Counter()
    kept = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        seen[test] += 1
        drawn = zlib.crc32(item.nodeid.encode()) % share == 0
        if drawn or seen[test] <= ALWAYS or item.get_closest_marker("whole"):
            kept.append(item)
    return kept


def is_wanted(item):
    """Whether all dtypes among a test's parameters are, or some of those that "dtypes" names."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if isinstance(parameters.get("dtypes"), str) and not dtypes.chosen(parameters["dtypes"]):
        return False
    values = parameters.values()
    return all(dtypes.wanted(value) for value in values if isinstance(value, torch.dtype))


def pytest_sessionstart(session):
    # Nothing is skipped for want of a device: a suite that tests nothing must not pass.
    try:
        torch.ones(1, device="ocl")
    except RuntimeError as error:
        pytest.exit(f"The tests need an OpenCL device: {error}", returncode=1)


def pytest_report_header(config):
    names = [torch.ocl.get_device_name(i) for i in range(torch.ocl.device_count())]
    return f"ocl devices: {names}"


@pytest.fixture(autouse=True)
def _pending_device_errors_belong_to_their_test():
    """A device-side check that fails is raised at a later wait: that wait must be in this test."""
    yield
    if torch.ocl.is_available():
        torch.ocl.synchronize()


@pytest.fixture(autouse=True, scope="module")
def _memory_goes_back_after_each_file():
    """The workers share the machine's memory: what one file's largest tensors took is not kept."""
    yield
    if torch.ocl.is_available():
        torch.ocl.empty_cache()


@pytest.fixture
def device():
    return torch.device("ocl")
