"""NCCL for `ocl` tensors of NVIDIA's devices: what names it, and what is missing where it can't be.

`"cpu:gloo,ocl:nccl"` names it, and so does `"nccl"` alone in a program that has used `ocl` by then
or has called `cuda_to_ocl()`. Programs of CUDA keep upstream's groups. The backend is that of
csrc/distributed, with memory that CUDA and OpenCL share: nothing is asked of CUDA before the first
call.

Programs that can't be changed name it, too. Where cuda means `ocl`, and this PyTorch has no NCCL,
gloo takes its place, with a warning.
"""

import functools
import os
import warnings
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
        if "ocl:nccl" in str(backend).lower():
            _check()
        upstream(self, backend)
        backends = self.device_backend_map
        alone = ":" not in str(backend) and backends.get("cuda") == "nccl"
        if alone and not _cuda_is_ocl() and torch.ocl.is_initialized():
            backends["ocl"] = backends["cuda"]
            _check()

    config.__init__ = __init__
    named = distributed_c10d.Backend.__new__

    @functools.wraps(named)
    def __new__(cls: type, name: str) -> Any:
        return named(cls, _of_programs_for_cuda(name))

    distributed_c10d.Backend.__new__ = __new__


def _of_programs_for_cuda(name: Any) -> Any:
    """A backend's name: "cpu:gloo,cuda:gloo" for "cpu:gloo,cuda:nccl" where NCCL is missing."""
    if not isinstance(name, str) or "nccl" not in name.lower() or not _cuda_is_ocl():
        return name
    parts = name.lower().split(",")
    meant = [{"nccl": "gloo", "cuda:nccl": "cuda:gloo"}.get(part, part) for part in parts]
    if meant == parts or distributed_c10d.is_nccl_available():
        return name
    if os.environ.get("LOCAL_RANK", "0") == "0":
        warnings.warn(
            "cuda means ocl, and this PyTorch has no NCCL: the process group is gloo's, for "
            "tensors of ocl, too",
            stacklevel=4,
        )
    return ",".join(meant)


def wrap(backend: Any) -> Any:
    """The backend for `ocl` around one of NCCL."""
    from torch_ocl import _distributed

    return _distributed.share(backend, "cuda", KEPT)


def _cuda_is_ocl() -> bool:
    """Whether cuda_to_ocl() was called: upstream's groups for CUDA are then for `ocl`."""
    return torch.device("cuda").type == "ocl"


def _check() -> None:
    if not distributed_c10d.is_nccl_available():
        raise RuntimeError(
            f"NCCL for ocl tensors needs a PyTorch that was built with CUDA and NCCL, and "
            f'{torch.__version__} was not. The backend "gloo" needs neither: '
            f'init_process_group() or "cpu:gloo,ocl:gloo".'
        )
