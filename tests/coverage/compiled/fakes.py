"""Fake tensors beside real ones: all float32 samples of every OpInfo, and those laid channels last.

    python -m tests.coverage.compiled.fakes
    python -m tests.coverage.compiled.fakes --ops '^sort$' --samples 5

tests/compile/test_fakes.py looks at the first sample of each kind.
"""

import argparse
import re
import sys
import time
import warnings

import torch
from torch._subclasses.fake_utils import CrossRefFakeMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map_only

# Upstream's jiterator runs on CUDA devices only.
OPS = [
    op
    for op in op_db
    if op.supports_dtype(torch.float32, "cpu") and not op.name.startswith("jiterator")
]

# The ops whose fakes differ, with what is said of them. One that differs no longer fails.
KNOWN = {
    # The buffer is not used here, so that it is one element, expanded.
    "nn.functional.logsigmoid": "log_sigmoid_forward.default",
    "nn.functional.multilabel_soft_margin_loss": "log_sigmoid_forward.default",
    # The seed and the offset of dropout lie on the CPU, as CUDA's do without a captured graph.
    "nn.functional.scaled_dot_product_attention": "Devices cpu and ocl:0 are not equal",
    # Two of the results that only a gradient needs are one tensor.
    "nn.functional.embedding_bag": "aten._embedding_bag_forward_only.default",
    # On the CPU, too. Inductor takes the decompositions, which no kernel's strides contradict.
    "nn.functional.channel_shuffle": "aten.channel_shuffle.default",
    "nn.functional.max_unpool2d": "aten.max_unpool2d.default",
    "nn.functional.max_unpool2d.grad": "aten.max_unpool2d.default",
    # CrossRefFakeMode makes no fakes of compressed sparse tensors.
    "sparse.mm.reduce": "convert all Tensors to FakeTensors",
    "sparse.sampled_addmm": "convert all Tensors to FakeTensors",
}

# Known differences of samples after the first.
KNOWN_OF_OTHERS = {
    # A view of no elements, on the CPU, too.
    "nn.functional.bilinear": "outputs_alias_inputs",
}


def channels_last(sample):
    """The sample with each tensor of four dimensions laid out channels last, None without one."""
    found = []

    def convert(x):
        if x.dim() != 4 or x.layout != torch.strided:
            return x
        found.append(x)
        return x.to(memory_format=torch.channels_last)

    parts = tree_map_only(torch.Tensor, convert, (sample.input, sample.args, sample.kwargs))
    return parts if found else None


def variants(op, device, count):
    """The first `count` samples of an op, and the first `count` that can lie channels last."""
    plain, last = [], []
    for sample in op.sample_inputs(device, torch.float32):
        if len(plain) < count:
            plain.append((sample.input, sample.args, sample.kwargs))
        if len(last) < count and (converted := channels_last(sample)):
            last.append(converted)
        if len(plain) == len(last) == count:
            break
    return plain + last


def mismatches(op, device, count=1):
    """CrossRefFakeMode's words on an op's samples where fakes differ from real tensors."""
    found = []
    for x, args, kwargs in variants(op, device, count):
        try:
            with CrossRefFakeMode(check_strides=True):
                op(x, *args, **kwargs)
        except (AssertionError, RuntimeError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def unexpected(op, device, count):
    """The mismatches of an op beyond those that are known, each once."""
    known = {**KNOWN, **KNOWN_OF_OTHERS}.get(op.full_name)
    found = [m for m in mismatches(op, device, count) if known is None or known not in m]
    return sorted(set(found))


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.coverage.compiled.fakes")
    parser.add_argument("--ops", default="", help="a regular expression for the names of OpInfos")
    parser.add_argument("--samples", type=int, default=10**9, help="of each kind; default: all")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.monotonic()
    looked_at = failed = 0
    for op in OPS:
        if not re.search(options.ops, op.full_name):
            continue
        looked_at += 1
        found = unexpected(op, "ocl", options.samples)
        failed += bool(found)
        for message in found:
            print(f"{op.full_name}: {' '.join(message.split())[:400]}", flush=True)
    print(f"{failed} of {looked_at} OpInfos have mismatches ({time.monotonic() - start:.0f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
