"""NCCL for `ocl` tensors of NVIDIA's devices: what names it, and what is missing where it can't be.

`"cpu:gloo,ocl:nccl"` names it, and so does `"nccl"` alone in a program that has used `ocl` by then
or has called `cuda_to_ocl()`. Programs of CUDA keep upstream's groups. The backend is that of
csrc/distributed, with memory that CUDA and OpenCL share: nothing is asked of CUDA before the first
call.
"""

import functools
from typing import Any

import torch
from torch.distributed import distributed_c10d

#: Bytes of shared memory that a group keeps for its next calls.
KEPT = 512 << 20


def install() -> None:
    """Changes what upstream makes of a backend's name."""
    config = distributed_c10d.BackendConfig
    upstream = config.__init__

    @functools.wraps(upstream)
    def __init__(self: Any, backend: Any) -> None:
        upstream(self, backend)
        backends = self.device_backend_map
        alone = ":" not in str(backend) and backends.get("cuda") == "nccl"
        if alone and not _cuda_is_ocl() and torch.ocl.is_initialized():
            backends["ocl"] = backends["cuda"]
        _check(backends)

    config.__init__ = __init__


def wrap(backend: Any) -> Any:
    """The backend for `ocl` around one of NCCL."""
    from torch_ocl import _distributed

    return _distributed.share(backend, "cuda", KEPT)


def _cuda_is_ocl() -> bool:
    """Whether cuda_to_ocl() was called: upstream's groups for CUDA are then for `ocl`."""
    return torch.device("cuda").type == "ocl"


def _check(backends: dict[str, Any]) -> None:
    named = backends.get("ocl") == "nccl" or (backends.get("cuda") == "nccl" and _cuda_is_ocl())
    if named and not distributed_c10d.is_nccl_available():
        raise RuntimeError(
            f"NCCL for ocl tensors needs a PyTorch that was built with CUDA and NCCL, and "
            f'{torch.__version__} was not. The backend "gloo" needs neither: '
            f'init_process_group() or "cpu:gloo,ocl:gloo".'
        )
