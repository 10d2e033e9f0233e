"""bitsandbytes: `ocl` is one of its devices, and its ops have kernels: blocks of 4 and 8 bits,
products with 4-bit weights, LLM.int8(), and optimizers with states of 8 bits.

The rest runs by its own functions for any device, which are made of PyTorch's operations.
"""

from types import ModuleType
from typing import Any

import torch

from torch_ocl._import_hook import tell
from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import admit

# Registrations last as long as their libraries.
_libraries: list[torch.library.Library] = []

#: Elements of a state's block.
_BLOCK = 256
#: Optimizers that scale what another one's rule gives.
_RULES = {"lamb": "adam", "lars": "momentum"}


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
    """The op of that name, of Adam, momentum, RMSprop, Lion, Adagrad and AdEMAMix."""
    if skip_zeros:
        raise NotImplementedError("ocl: optimizers of 8 bits that skip zeros")
    if optimizer_name == "ademamix":
        _ademamix(
            g.float() * gnorm_scale, p, state1, state2, (beta1, beta2, beta3), alpha, eps, step, lr,
            qmap1, qmap2, absmax1, absmax2, weight_decay,
        )  # fmt: skip
        return
    torch.ops.torch_ocl.optimizer_8bit_(
        _RULES.get(optimizer_name, optimizer_name), g, p, state1, state2, beta1, beta2, eps, step,
        lr, qmap1, qmap2, absmax1, absmax2, weight_decay, gnorm_scale,
    )  # fmt: skip


def _ademamix(
    g: torch.Tensor, p: torch.Tensor, means: torch.Tensor, squares: Any,
    betas: tuple[float, float, float], alpha: float, eps: float, step: int, lr: float,
    table: torch.Tensor, table2: Any, largest: torch.Tensor, largest2: Any, decay: float,
) -> None:  # fmt: skip
    """AdEMAMix (M. Pagliardini et al., 2024) has two means, one of which is slow: `means` [2, ...]
    and `largest` [2, blocks]. It has no kernel of its own, but those that restore and quantise."""
    ops = torch.ops.torch_ocl
    states = [
        (means[0], largest[0], table, betas[0], g),
        (means[1], largest[1], table, betas[2], g),
        (squares, largest2, table2, betas[1], g * g),
    ]
    fresh = []
    for bits, most, numbers, beta, added in states:
        old = ops.dequantize_blockwise(bits, most, numbers, _BLOCK, torch.float32)
        fresh.append(old.mul_(beta).add_(added.view_as(old), alpha=1 - beta))
        new_bits, new_most = ops.quantize_blockwise(fresh[-1], numbers, _BLOCK)
        bits.copy_(new_bits)
        most.copy_(new_most)
    below = fresh[2].sqrt().div_((1 - betas[1] ** step) ** 0.5).add_(eps)
    update = fresh[0].div(1 - betas[0] ** step).add_(fresh[1], alpha=alpha).div_(below)
    values = p.float() * (1 - lr * decay)
    p.copy_(values.sub_(update.view_as(values), alpha=lr))


def _bitsandbytes(module: ModuleType) -> None:
    library = torch.library.Library("bitsandbytes", "IMPL")
    library.impl("optimizer_update_8bit_blockwise", _optimizer_update_8bit_blockwise, "PrivateUse1")
    _libraries.append(library)
    from torch_ocl import _C

    # Upstream's functions for any device stay where a schema is another one.
    for reason in _C.register_bitsandbytes_ops():
        tell(f"bitsandbytes: {reason.splitlines()[0]}")
    if _choice.mode() != "off":
        devices: Any = getattr(module, "supported_torch_devices", None)
        if isinstance(devices, set):
            devices.add("ocl")
        # Layers of 8 bits train with restored weights, as on the CPU, not with gradients of 8 bits.
        admit(module.autograd._functions, "matmul", {"cpu", "xpu"})


PATCHES = {"bitsandbytes": _bitsandbytes}
