"""Ranges under the names of torch.cuda.nvtx: they show in the profiles of torch.profiler."""

from torch_ocl.api.profiling import mark, range, range_pop, range_push

__all__ = ["mark", "range", "range_pop", "range_push"]
