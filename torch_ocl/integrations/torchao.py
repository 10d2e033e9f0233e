"""torchao: weights of 4 bits in the format of PyTorch's own kernels (TILE_PACKED_TO_4D).

It asks CUDA for its compute capability. `ocl` has these kernels on every device.
"""

from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations._patches import Absent


class _Cuda:
    """torch.cuda for that one question."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cuda, name)

    @staticmethod
    def get_device_capability(device: Any = None) -> tuple[int, int]:
        """The real one; that of the first device with those kernels where there is no CUDA."""
        return torch.cuda.get_device_capability(device) if torch.cuda.is_available() else (8, 0)


class _Torch(ModuleType):
    """torch as that one module sees it."""

    cuda = _Cuda()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _tile_packed(module: ModuleType) -> None:
    if getattr(module, "torch", None) is not torch:
        raise Absent("it doesn't use torch by that name")
    module.torch = _Torch("torch")


_WORKFLOWS = "torchao.quantization.quantize_.workflows.int4"
PATCHES = {f"{_WORKFLOWS}.int4_tile_packed_to_4d_tensor": _tile_packed}
