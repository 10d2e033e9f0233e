"""No engine launches a kernel without a word: a walk over all ops. A convolution's words are one
block."""

import re
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch.nn import functional
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
        speaking = {line.split()[0] for line in lines}
        for row in profile.kernels:
            name = row.name.split("<", 1)[0]
            engines = ENGINES.get(folder.get(name), ())
            if engines and not speaking & set(engines):
                silent.add(name)
    return silent


@pytest.mark.slow
def test_no_kernel_is_chosen_in_silence():
    folder = folders()
    silent = defaultdict(set)
    for op in op_db:
        if torch.float32 in op.supported_dtypes("cpu"):
            for name in launched_in_silence(op, folder):
                silent[name].add(op.name)
    assert {name: ops for name, ops in silent.items() if name not in WITHOUT_CHOICE} == {}
    assert set(silent) == WITHOUT_CHOICE, "these speak now, or no op launches them"


def image(shape, last):
    x = torch.randn(shape, device="ocl")
    return x.contiguous(memory_format=torch.channels_last) if last else x


def indent(line):
    return len(line) - len(line.lstrip())


def blocks(lines):
    """The choices that others aren't part of, each with the lines of those within it."""
    found, closed = [], True
    for line in lines:
        if indent(line) == 0:
            found += [[]] if closed else []
            closed = line.endswith(" runs")
        found[-1].append(line)
    return found


#: Images, weights and settings whose convolutions, or their gradients, are made of others.
CONVOLUTIONS = {
    "few channels": ((2, 32, 16, 16), (3, 32, 3, 3), {"padding": 1}),
    "a stride": ((2, 3, 32, 32), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    "one element": ((2, 64, 20, 20), (48, 64, 1, 1), {}),
    "side by side": ((2, 8, 32, 32), (16, 8, 4, 4), {"stride": 4}),
    "groups": ((2, 8, 9, 12), (16, 4, 3, 2), {"groups": 2, "dilation": (1, 2)}),
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_tells_its_choice_in_one_block(name, last):
    shape, weight, settings = CONVOLUTIONS[name]
    x, w = image(shape, last).requires_grad_(), image(weight, last).requires_grad_()
    with testing.dispatches() as lines:
        out = functional.conv2d(x, w, **settings)
        torch.autograd.grad(out, (x, w), torch.ones_like(out))
    told = [block for block in blocks(lines) if block[0].startswith("convolution ")]
    passes = [block[0].partition(" with ")[0].rpartition(" ")[0] for block in told]
    wanted = [f"convolution {way}" for way in ("forward", "input gradient", "weight gradient")]
    assert sorted(passes) == sorted(wanted), lines
    for block in told:
        heads = {line.partition(": ")[0] for line in block if indent(line) == 0}
        assert len(heads) == 1, "copies' lines are in between"
        (head,) = heads
        for setting, value in settings.items():
            text = f", {setting} {value if setting == 'groups' else ''}"
            assert text in head, head
        assert ("channels last" if last else "planes") in head, head
        deepest = 0
        for line in block:
            # A choice within a choice is indented by a step more.
            assert indent(line) % 2 == 0 and indent(line) <= deepest, block
            assert line.split()[0] in ("convolution", "gemm"), block
            if line.endswith(" runs"):
                deepest = indent(line) + 2
    assert any(indent(line) for block in told for line in block), "some choose once more"


def test_lines_of_copies_follow_the_block():
    x, w = image((2, 32, 16, 16), last=True), image((3, 32, 3, 3), last=False)
    with testing.force(convolution="to_planes"), testing.dispatches() as lines:
        functional.conv2d(x, w, padding=1)
    problem = "convolution forward 2x32x16x16 with 3x32x3x3 f32, padding 1x1"
    assert lines[0] == f"{problem}, channels last: to_planes runs"
    speaking = [line.split()[0] for line in lines]
    assert speaking == sorted(speaking) and speaking[-1] == "pointwise"
    assert lines[1].startswith(f"  {problem}, in planes, out channels last: ")
    assert any(line.startswith("    convolution contraction ") for line in lines)
