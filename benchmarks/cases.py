"""Every case of the harness, in the order of its tables."""

from benchmarks import (  # noqa: F401 - register cases
    cases_attention,
    cases_images,
    cases_large,
    cases_networks,
    cases_ops,
    cases_products,
    cases_sparse,
    cases_training,
)
from benchmarks.case import CASES

__all__ = ["CASES"]

FAMILIES = (
    *("gemm", "pointwise", "copy", "reduce", "rows", "fft", "index", "sort", "random", "launch"),
    *("sparse", "attention", "spatial", "convolution", "networks", "training", "large"),
)
CASES.sort(key=lambda case: FAMILIES.index(case.family))
