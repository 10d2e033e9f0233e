"""Every op that Inductor hands over is taken, or upstream never hands it to this backend."""

from torch._inductor.ops_handler import OpsHandler

from torch_ocl.inductor.collect.collector import Collector
from torch_ocl.inductor.collect.ops import Overrides
from torch_ocl.inductor.kernel import OclKernel

# Ops that kernels of this backend are never given: what the reason is.
NOT_GIVEN = {
    "inline_asm_elementwise": "of NVIDIA's language",
    "rand_eager": "of CUDA's numbering of random numbers",
    "dot": "of triton's products",
    "scan": "BackendFeature.SCAN",
    "sort": "BackendFeature.SORT",
    "bucketize": "BackendFeature.BUCKETIZE",
    "partial_accumulate": "of triton's reductions in mixed orders",
    "placeholder": "of graphs",
    "output": "of graphs",
}


def test_every_op_is_taken():
    ops = {n for n, op in vars(OpsHandler).items() if not n.startswith("_") and callable(op)}
    taken = {name for owner in (Overrides, Collector, OclKernel) for name in vars(owner)}
    assert ops - taken - {"indirect_indexing"} == set(NOT_GIVEN)  # that one is SIMDKernel's
