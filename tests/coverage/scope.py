"""Which OpInfos the matrix runs: those whose ATen op is in the op table, or composed of such."""

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


#: Composites of ops of the table: no entry of it has their names.
COMPOSITES = {
    "cdist",
    "cholesky_solve",
    "constant_pad_nd",
    "istft",
    "linalg.cond",
    "linalg.det",
    "linalg.eigh",
    "linalg.eigvalsh",
    "linalg.inv",
    "linalg.ldl_factor",
    "linalg.lu_factor",
    "linalg.matrix_norm",
    "linalg.matrix_power",
    "linalg.matrix_rank",
    "linalg.multi_dot",
    "linalg.pinv",
    "linalg.slogdet",
    "linalg.solve",
    "linalg.solve_ex",
    "linalg.svd",
    "linalg.svdvals",
    "linalg.tensorinv",
    "linalg.tensorsolve",
    "logdet",
    "lu",
    "lu_solve",
    "matrix_exp",
    "nn.functional.adaptive_avg_pool1d",
    "nn.functional.adaptive_max_pool1d",
    "nn.functional.avg_pool1d",
    "nn.functional.grid_sample",
    "nn.functional.interpolate",
    "nn.functional.max_pool1d",
    "nn.functional.max_pool2d",
    "nn.functional.max_pool3d",
    "nn.functional.max_unpool1d",
    "nn.functional.pad",
    "nn.functional.pdist",
    "nn.functional.upsample_bilinear",
    "nn.functional.upsample_nearest",
    "pinverse",
    "qr",
    "stft",
    "svd",
}


@functools.cache
def registered_roots():
    """Names of the registered ATen ops without overload and in-place underscore."""
    import torch_ocl

    path = pathlib.Path(torch_ocl.__file__).with_name("ops_manifest.json")
    manifest = json.loads(path.read_text())
    return {name.split(".")[0].rstrip("_") for name in manifest}


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def all_ops():
    """Every OpInfo of torch."""
    return op_db


def is_composite(op):
    """Whether its function calls ops of the table, none of which has its name."""
    return op.name in COMPOSITES or op.name.startswith("fft.")


def _registered_names(op):
    """What the op, or the one that its composite function calls, may be registered as."""
    names = {op.aten_name, op.name.split(".")[-1], op.name.replace(".", "_")}
    return names | {f"_{name}" for name in names} | {f"{name}_forward" for name in names}


def in_scope():
    """The OpInfos of the op table and of COMPOSITES, sorted by name."""
    roots = registered_roots()
    chosen = [
        op
        for op in all_ops()
        if not op.name.startswith("sparse.")  # strided tensors only
        and (is_composite(op) or _registered_names(op) & roots)
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
