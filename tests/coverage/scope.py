"""Which OpInfos the matrix runs: those whose ATen op is in the op table."""

import functools
import json
import os
import pathlib

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


@functools.cache
def registered_roots():
    """Names of the registered ATen ops without overload and in-place underscore."""
    import torch_ocl

    path = pathlib.Path(torch_ocl.__file__).with_name("ops_manifest.json")
    manifest = json.loads(path.read_text())
    return {name.split(".")[0].rstrip("_") for name in manifest}


#: Prefixes of the names of OpInfos whose function is composite -> the op of the table behind it.
COMPOSITES = {"fft.": "_fft_c2c", "stft": "_fft_r2c", "istft": "_fft_c2r"}


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def all_ops():
    """Every OpInfo of torch."""
    return op_db


def aten_names(op):
    """What the ATen op of an OpInfo, or the one behind it, may be called in the op table."""
    names = {op.aten_name, op.name.split(".")[-1], op.name.replace(".", "_")}
    return names | {name for prefix, name in COMPOSITES.items() if op.name.startswith(prefix)}


def in_scope():
    """The OpInfos of the op table, sorted by name."""
    roots = registered_roots()
    chosen = [
        op
        for op in all_ops()
        if not op.name.startswith("sparse.")  # strided tensors only
        and aten_names(op) & roots
    ]
    return sorted(chosen, key=full_name)


def supported_dtypes(op):
    """dtypes CPU torch has for the op, of those this backend has.

    TORCH_OCL_COVERAGE_DTYPES (comma-separated names) chooses some of them.
    """
    known = op.supported_dtypes("cpu")
    chosen = os.environ.get("TORCH_OCL_COVERAGE_DTYPES")
    names = chosen.split(",") if chosen else [str(d).removeprefix("torch.") for d in DTYPES]
    return [d for d in DTYPES if d in known and str(d).removeprefix("torch.") in names]
