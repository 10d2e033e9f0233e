"""Symmetric memory on `ocl`: the products that it makes faster, and what to use for the rest.

OpenCL has no memory that other processes' kernels can address. The fused products of
torch.ops.symm_mem mean collectives and matrix products, and so they are run as such."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

#: Ops, each with upstream's composition of collectives and products.
_COMPOSED = {
    "fused_all_gather_matmul": "_fused_all_gather_matmul_fallback",
    "fused_all_gather_scaled_matmul": "_fused_all_gather_scaled_matmul_fallback",
    "fused_matmul_reduce_scatter": "_fused_matmul_reduce_scatter_fallback",
    "fused_scaled_matmul_reduce_scatter": "_fused_scaled_matmul_reduce_scatter_fallback",
}
_ADVICE = (
    "ocl has no symmetric memory: OpenCL's kernels can't address the memory of other processes. "
    "Use the collectives of torch.distributed, or torch.ops.symm_mem's fused products, which run "
    "as collectives on ocl."
)


def change_module(module: ModuleType) -> None:
    """`module` is upstream's."""
    library = torch.library.Library("symm_mem", "IMPL")
    for op, function in _COMPOSED.items():
        library.impl(op, getattr(module, function), "PrivateUse1")
    library.impl("_low_contention_all_gather", _all_gather, "PrivateUse1")
    library.impl("_low_contention_reduce_scatter", _reduce_scatter, "PrivateUse1")
    module._ocl_library = library  # its end would take the ops away

    for name in ("empty", "rendezvous", "get_mem_pool", "get_mempool_allocator"):
        setattr(module, name, _saying_what_to_do(getattr(module, name)))
    workspace = module.get_symm_mem_workspace

    @functools.wraps(workspace)
    def get_symm_mem_workspace(group_name: str, min_size: int) -> Any:
        """It takes a device of CUDA, without asking."""
        if torch._C._get_accelerator().type == "ocl" and not torch.cuda.is_available():
            raise RuntimeError(_ADVICE)
        return workspace(group_name, min_size)

    module.get_symm_mem_workspace = get_symm_mem_workspace


def _size(group_name: str) -> int:
    return torch.distributed.distributed_c10d._get_group_size_by_name(group_name)


def _all_gather(tensor: torch.Tensor, group_name: str) -> torch.Tensor:
    return torch.ops._c10d_functional.all_gather_into_tensor(
        tensor.contiguous(), _size(group_name), group_name
    )


def _reduce_scatter(tensor: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    return torch.ops._c10d_functional.reduce_scatter_tensor(
        tensor.contiguous(), reduce_op, _size(group_name), group_name
    )


def _saying_what_to_do(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """Upstream says that the device's type isn't supported."""

    @functools.wraps(upstream)
    def function(*args: Any, **kwargs: Any) -> Any:
        given = [getattr(value, "device", value) for value in (*args, *kwargs.values())]
        named = {value for value in given if isinstance(value, (str, torch.device))}
        if any(str(value).partition(":")[0] == "ocl" for value in named):
            raise RuntimeError(_ADVICE)
        return upstream(*args, **kwargs)

    return function


#: Modules of torch, each with what changes it once it is imported.
PATCHES = {"torch.distributed._symmetric_memory": change_module}
