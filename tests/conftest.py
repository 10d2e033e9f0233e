"""Shared fixtures: the device under test and a clean state around each test."""

import os

import pytest
import torch

from tests import cores


def pytest_configure(config):
    cores.share(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def pytest_collection_modifyitems(config, items):
    """TORCH_OCL_TEST_DTYPES (comma-separated names) leaves out tests whose parameters are other
    dtypes, for drivers whose compiler would take too long for all of them."""
    names = os.environ.get("TORCH_OCL_TEST_DTYPES")
    if not names:
        return
    wanted = {getattr(torch, name) for name in names.split(",")}
    chosen = [item for item in items if dtypes_of(item) <= wanted]
    left_out = [item for item in items if not dtypes_of(item) <= wanted]
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


def dtypes_of(item):
    """The dtypes among a test's parameters."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return {value for value in parameters if isinstance(value, torch.dtype)}


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
