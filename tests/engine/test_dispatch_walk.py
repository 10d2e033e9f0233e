"""No engine launches a kernel without a word: a walk over all ops."""

import re
from collections import defaultdict
from pathlib import Path

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map_only

import torch_ocl.testing as testing

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
#: For each folder of kernels the engines that choose among them.
ENGINES = {
    "attention": ["attention"],
    "binning": ["binning"],
    "conv": ["convolution"],
    "distance": ["distance"],
    "fft": ["fft"],
    "gemm": ["gemm"],
    "index": ["backward_embedding_bag", "index"],
    "linalg": [name for name in testing.engines() if name.startswith("linalg_")],
    "norm": ["norm"],
    "pointwise": ["pointwise"],
    "random": ["random"],
    "reduce": ["reduce"],
    "scan": ["scan"],
    "softmax": ["softmax"],
    "sort": ["sort", "unique"],
    "spatial": [
        "backward_grid_sample",
        "backward_nearest",
        "col2im",
        *(name for name in testing.engines() if name.endswith("pool")),
    ],
}
#: Kernels there that are the only ones for their op, so that there is nothing to choose.
WITHOUT_CHOICE = {
    "bag_forward",
    "bag_map",
    "cross_product",
    "fractional_max_pool",
    "grid_sample",
    "im2col",
    "ldl_factor",
    "ldl_solve",
    "max_unpool",
    "nearest",
    "nonzero_count",
    "nonzero_scan",
    "nonzero_write",
    "pad",
    "resample",
    "resample_axis",
    "resample_table",
    "searchsorted",
    "segment_reduce",
    "unpack_pivots",
}
SAMPLES = 2


def folders():
    """For each kernel the folder that it lies in."""
    return {
        name: path.parent.name
        for path in KERNELS.rglob("*.cl*")
        for name in re.findall(r"\bvoid\s+(\w+)\s*\(", path.read_text(encoding="utf-8"))
    }


def has_elements(value):
    return not isinstance(value, torch.Tensor) or value.numel() > 0


def launched_in_silence(op, folder):
    """The kernels that an op launches while no engine of their folders says anything."""
    silent = set()
    samples = (s for s in op.sample_inputs("cpu", torch.float32) if has_elements(s.input))
    for _, sample in zip(range(SAMPLES), samples, strict=False):
        arguments = (sample.input, sample.args, sample.kwargs)
        first, args, kwargs = tree_map_only(torch.Tensor, lambda t: t.to("ocl"), arguments)
        profile = torch.ocl.profiler(roofline=False, rows=0)
        try:
            with testing.dispatches() as lines, profile:
                op.op(first, *args, **kwargs)
        except (AssertionError, NotImplementedError, RuntimeError):  # see tests/coverage
            continue
        speaking = {line.split(" ", 1)[0] for line in lines}
        for row in profile.kernels:
            name = row.name.split("<", 1)[0]
            engines = ENGINES.get(folder.get(name), ())
            if engines and not speaking & set(engines):
                silent.add(name)
    return silent


def test_no_kernel_is_chosen_in_silence():
    folder = folders()
    silent = defaultdict(set)
    for op in op_db:
        if torch.float32 in op.supported_dtypes("cpu"):
            for name in launched_in_silence(op, folder):
                silent[name].add(op.name)
    assert {name: ops for name, ops in silent.items() if name not in WITHOUT_CHOICE} == {}
    assert set(silent) == WITHOUT_CHOICE, "these speak now, or no op launches them"
