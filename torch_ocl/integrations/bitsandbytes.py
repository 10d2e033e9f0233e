"""bitsandbytes: `ocl` is one of its devices, and its ops have kernels: blocks of 4 and 8 bits,
products with 4-bit weights, LLM.int8(), and optimizers with states of 8 bits.

The rest runs by its own functions for any device, which are made of PyTorch's operations.
"""

from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations._hooks import tell

# Registrations last as long as their libraries.
_libraries: list[torch.library.Library] = []


def _optimizer_update_8bit_blockwise(
    optimizer_name: str,
    g: torch.Tensor,
    p: torch.Tensor,
    state1: torch.Tensor,
    state2: torch.Tensor | None,
    beta1: float,
    beta2: float,
    beta3: float,
    alpha: float,
    eps: float,
    step: int,
    lr: float,
    qmap1: torch.Tensor,
    qmap2: torch.Tensor | None,
    absmax1: torch.Tensor,
    absmax2: torch.Tensor | None,
    weight_decay: float,
    gnorm_scale: float,
    skip_zeros: bool = False,
) -> None:
    """The op of that name, of Adam, momentum, RMSprop, Lion and Adagrad."""
    if skip_zeros:
        raise NotImplementedError("ocl: optimizers of 8 bits that skip zeros")
    torch.ops.torch_ocl.optimizer_8bit_(
        optimizer_name, g, p, state1, state2, beta1, beta2, eps, step, lr, qmap1, qmap2,
        absmax1, absmax2, weight_decay, gnorm_scale,
    )  # fmt: skip


def _bitsandbytes(module: ModuleType) -> None:
    devices: Any = getattr(module, "supported_torch_devices", None)
    if isinstance(devices, set):
        devices.add("ocl")
    library = torch.library.Library("bitsandbytes", "IMPL")
    library.impl("optimizer_update_8bit_blockwise", _optimizer_update_8bit_blockwise, "PrivateUse1")
    _libraries.append(library)
    from torch_ocl import _C

    # Upstream's functions for any device stay where a schema is another one.
    for reason in _C.register_bitsandbytes_ops():
        tell(f"bitsandbytes: {reason.splitlines()[0]}")


PATCHES = {"bitsandbytes": _bitsandbytes}
