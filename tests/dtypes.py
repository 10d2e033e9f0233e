"""The dtypes that a run of the tests is about.

TORCH_OCL_TEST_DTYPES (comma-separated names; by default all) leaves out tests whose parameters are
other dtypes, where a driver's compiler would take too long for all of them."""

import os

import torch


def wanted(dtype):
    """Whether tests of that dtype are to run."""
    names = os.environ.get("TORCH_OCL_TEST_DTYPES")
    return not names or str(dtype).removeprefix("torch.") in names.split(",")


def chosen(names):
    """Those of comma-separated names of dtypes whose tests are to run."""
    return ",".join(name for name in names.split(",") if wanted(getattr(torch, name)))
