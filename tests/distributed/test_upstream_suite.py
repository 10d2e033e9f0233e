"""A sample of PyTorch's own tests of process groups (all: python -m tests.distributed.upstream)."""

import pytest

from tests.distributed import upstream

SAMPLE = {
    "ocl": (
        "test_all_gather_full_group",
        "test_all_reduce_coalesced_sum",
        "test_batch_isend_irecv_gloo",
        "test_broadcast_full_group",
        "test_reduce_full_group_max",
        "test_scatter_full_group",
        "test_send_recv_any_source",
        "test_sparse_all_reduce_sum",
    ),
    "cuda": (
        "test_all_reduce_sum_cuda_async",
        "test_broadcast_cuda",
        "test_ddp_apply_optim_in_backward_grad_as_bucket_view_false",
        "test_ddp_control_flow_different_across_ranks",
        "test_ddp_join_model_equivalence",
        "test_ddp_logging_data_gpu",
        "test_DistributedDataParallel_SyncBatchNorm",
    ),
    "nccl": (
        "test_all_to_all_cuda",
        "test_all_to_all_single_equal_split_cuda",
        "test_all_to_all_single_unequal_split_cuda",
        "test_coalescing_manager_async",
        "test_reduce_scatter_v_cuda",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", SAMPLE)
def test_a_sample_passes(way):
    found = upstream.run(way, list(SAMPLE[way]))
    assert found == dict.fromkeys(SAMPLE[way], "ok")
