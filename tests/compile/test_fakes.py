"""Fake tensors tell the shapes, strides and aliases that the kernels of `ocl` give.

A compiled graph is planned with fakes: strides that differ from the kernel's give wrong results
or errors in the ops that follow.
"""

import pytest
import torch
from torch._subclasses.fake_utils import CrossRefFakeMode

from tests.coverage.compiled.fakes import KNOWN, OPS, mismatches


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.full_name)
def test_fakes(op):
    found = mismatches(op, "ocl")
    if op.full_name in KNOWN:
        assert found, "no longer differs: take it out of KNOWN"
        found = [message for message in found if KNOWN[op.full_name] not in message]
    assert not found, "\n".join(found)


def test_known_ops_exist():
    assert KNOWN.keys() <= {op.full_name for op in OPS}


def test_other_strides_are_found():
    """The comparison sees strides: an op whose fake lies contiguous and whose result does not."""
    with torch.library._scoped_library("ocl_test_fakes", "FRAGMENT") as library:
        library.define("turned(Tensor x) -> Tensor")
        library.impl("turned", lambda x: x.t().contiguous().t(), "PrivateUse1")
        library.impl("turned", torch.empty_like, "Meta")
        with (
            pytest.raises(RuntimeError, match="Stride mismatch"),
            CrossRefFakeMode(check_strides=True),
        ):
            torch.ops.ocl_test_fakes.turned(torch.ones(3, 4, device="ocl"))
