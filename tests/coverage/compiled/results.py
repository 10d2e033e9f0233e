"""The results under torch.compile: docs/reference/compile-coverage.json, one line an op.

    {"<runtime>": {"about": {...}, "ops": {"<OpInfo>": {"<dtype>": ["<verdict>", <kernels>]}}}}

A verdict is how a case ended, and why:

    pass      compiled as one graph, with the results of the eager op
    breaks    the same, in several graphs, for Dynamo can't take the op into one
    eager     the eager op fails: not counted
    upstream  fails, and under CPU torch's own inductor too
    gap       raises an error, crashes or hangs
    wrong     gives something else
"""

import os
import pathlib

from tests.coverage.results import _short

ROOT = pathlib.Path(__file__).resolve().parents[3]
#: Results that a run keeps, for the next to go on with; --write puts it into DOCUMENTED.
KEPT = ROOT / "build" / "compile-coverage.json"
DOCUMENTED = ROOT / "docs" / "reference" / "compile-coverage.json"
PASSING = ("pass", "breaks")
FAILING = ("upstream", "gap", "wrong")


def runtime():
    """This process's runtime, by name; beside it the form of kernels that was asked for."""
    import torch  # not by those who only read a file

    name = torch.ocl.get_device_properties(0).platform_name
    tuned_as = os.environ.get("TORCH_OCL_TUNE_AS")
    return f"{name}, tuned as {tuned_as}" if tuned_as else name


def verdict(result):
    """[verdict, kernels] of a worker's result; a worker that died has neither."""
    if "end" not in result:
        return ["gap: " + _short(result["error"]), 0]
    why = _short(result["why"])
    return [f"{result['end']}: {why}" if why else result["end"], result["kernels"]]


def kind(entry):
    """How a case ended, without the reason."""
    return entry[0].split(":")[0]


def counts(ops, dtype):
    """{how it ended: how many} of one dtype, and how many had kernels generated."""
    entries = [entry[dtype] for entry in ops.values() if dtype in entry]
    kinds = [kind(entry) for entry in entries]
    count = {name: kinds.count(name) for name in ("pass", "breaks", *FAILING, "eager")}
    return count, sum(entry[1] > 0 for entry in entries)


def merge(old, new):
    """`old` with the cases of `new` in the place of its own."""
    for name, part in new.items():
        kept = old.setdefault(name, {"about": {}, "ops": {}})
        kept["about"] = part["about"]
        for op, dtypes in part["ops"].items():
            kept["ops"].setdefault(op, {}).update(dtypes)
    return old
