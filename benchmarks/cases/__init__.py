"""Every case of the harness, in the order of its tables."""

from benchmarks.cases import (  # noqa: F401 - register cases
    attention,
    images,
    inference,
    large,
    networks,
    ops,
    products,
    programs,
    sparse,
    training,
)
from benchmarks.harness.case import CASES

__all__ = ["CASES"]

FAMILIES = (
    *("gemm", "pointwise", "copy", "reduce", "rows", "fft", "index", "sort", "random", "launch"),
    *("sparse", "attention", "spatial", "convolution", "networks", "training", "large"),
    "inference",
)
CASES.sort(key=lambda case: FAMILIES.index(case.family))
