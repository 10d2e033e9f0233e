"""Which OpInfos and dtypes the op matrix runs: all that CPU torch has."""

import os

import torch
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
#: A dtype of each kind that kernels tell apart, for `make test`; .ci/run takes more, and
#: `make coverage` all.
QUICK = "float32,bfloat16,int64,complex64"


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def all_ops():
    """Every OpInfo of torch."""
    return op_db


def out_of_scope(op):
    """Whether CPU torch has nothing to compare with: CUDA source is given, or it has no dtype."""
    return op.name.startswith("jiterator_") or not op.supported_dtypes("cpu")


def in_scope():
    """Every other OpInfo, sorted by name."""
    return sorted((op for op in all_ops() if not out_of_scope(op)), key=full_name)


def supported_dtypes(op):
    """dtypes CPU torch has for the op, of those this backend has.

    TORCH_OCL_COVERAGE_DTYPES (comma-separated names, or "all") chooses some of them; those of QUICK
    otherwise.
    """
    known = op.supported_dtypes("cpu")
    names = os.environ.get("TORCH_OCL_COVERAGE_DTYPES", QUICK).split(",")
    return [
        d
        for d in DTYPES
        if d in known and (str(d).removeprefix("torch.") in names or names == ["all"])
    ]
