"""PyTorch's own tests of process groups that can't pass here, or that need a smaller size."""

import os
from types import ModuleType

_SELF = "Gloo has no connection of a rank to itself."
_WORDS = "It wants the words of NCCL's watchdog. wait() raises in time, with gloo's words."
_NCCL = "It makes a ProcessGroupNCCL, which only builds for CUDA have."
#: Tests for CUDA that fail with `ocl` and gloo in the place of CUDA and NCCL, and why. None of the
#: reasons is ocl's: with CPU tensors over gloo the same code fails the same way.
FAILS = {
    "test_batch_isend_irecv_nccl": _SELF,
    "test_batch_isend_irecv_self_nccl": _SELF,
    "test_monitored_barrier_allreduce_hang": _WORDS,
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": _WORDS,
    "test_nccl_high_priority_stream": _NCCL,
}

#: Tests that compare two networks to 1e-5 after their gradients have grown by 1e8. Gloo adds up
#: three ranks' numbers in an order that depends on the place in a bucket; two ranks' have but one.
_OF_TWO_RANKS = (
    "test_ddp_apply_optim_in_backward",
    "test_ddp_apply_optim_in_backward_grad_as_bucket_view_false",
)
#: Tests of a ResNet-50 or a convolution for images of 1000 x 1000, hundreds of times.
_OF_LARGE_IMAGES = (*_OF_TWO_RANKS, "test_ddp_uneven_inputs")
#: Seconds, where it is not the usual time.
LIMITS = dict.fromkeys(_OF_LARGE_IMAGES, 280)


def ranks_of(test: str, usual: int) -> int:
    """How many ranks a test has."""
    return 2 if test in _OF_TWO_RANKS else usual


def make_smaller(module: ModuleType, test: str, ranks: int) -> None:
    """In a rank's process, for a test whose size is a GPU's: fewer ranks, images of 40 x 40, no
    ResNet-50. `module` is upstream's."""
    os.environ["WORLD_SIZE"] = str(ranks_of(test, ranks))
    if test not in _OF_LARGE_IMAGES:
        return
    module.HAS_TORCHVISION = False
    ones = module.torch.ones

    def small_ones(*shape, **kwargs):
        if len(shape) == 4:
            shape = (*shape[:2], *(min(extent, 40) for extent in shape[2:]))
        return ones(*shape, **kwargs)

    module.torch.ones = small_ones
