"""Which ops of the op table no case runs."""

import json
import pathlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def root(name):
    """`add_.Tensor` -> `add`, as the op table's documentation counts."""
    base = name.split(".")[0]
    return base if base.startswith("__") else base.rstrip("_")


#: Ops that upstream calls below the level that a Recorder sees: an op's name there, and the
#: device's.
BELOW = {
    "convolution": {"convolution_overrideable"},
    "convolution_backward": {"convolution_backward_overrideable"},
    "copy": {"_copy_from"},
    "_to_copy": {"_copy_from"},
    "scaled_dot_product_attention": {"_fused_sdp_choice"},
    "_scaled_dot_product_fused_attention_overrideable": {"_fused_sdp_choice"},
    "zeros": {"zero"},
}


class Recorder(TorchDispatchMode):
    """Notes the ATen ops that are called inside, in backward passes too."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = root(func.name().removeprefix("aten::"))
        self.seen |= {name} | BELOW.get(name, set())
        return func(*args, **(kwargs or {}))


def by_family(seen):
    """(ops of the table, family -> its ops that are not in `seen`)."""
    import torch_ocl

    path = pathlib.Path(torch_ocl.__file__).with_name("ops_manifest.json")
    families = {}
    for function, entry in json.loads(path.read_text(encoding="utf-8")).items():
        families.setdefault(entry["section"], set()).add(root(function))
    left = {family: sorted(ops - seen) for family, ops in sorted(families.items())}
    total = len(set().union(*families.values()))
    return total, {family: ops for family, ops in left.items() if ops}


def record(call):
    """The ops that one call runs."""
    with Recorder() as recorder:
        call()
    if torch.ocl.is_available():
        torch.ocl.synchronize()
    return recorder.seen
