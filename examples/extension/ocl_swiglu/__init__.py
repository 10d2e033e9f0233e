"""silu(gate) * up in one kernel, as an extension of torch_ocl: `ocl_swiglu.swiglu(gate, up)`."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

import torch_ocl  # noqa: F401  (loads the library that this one links to)

(_library,) = Path(__file__).parent.glob("_C*.so")
torch.ops.load_library(_library)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, for floating-point tensors of one shape and dtype. Has a gradient."""
    return torch.ops.ocl_swiglu.swiglu(gate, up)


@torch.library.impl("ocl_swiglu::swiglu", "CPU")
def _swiglu_cpu(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


@torch.library.impl("ocl_swiglu::swiglu_backward", "CPU")
def _swiglu_backward_cpu(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(gate)
    return grad * up * s * (1 + gate * (1 - s)), grad * gate * s


# Shapes and dtypes without data, for torch.compile and the device "meta".
@torch.library.register_fake("ocl_swiglu::swiglu")
def _swiglu_fake(gate: Tensor, up: Tensor) -> Tensor:
    return gate.new_empty(gate.shape)


@torch.library.register_fake("ocl_swiglu::swiglu_backward")
def _swiglu_backward_fake(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    return gate.new_empty(gate.shape), gate.new_empty(gate.shape)


def _save(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.ocl_swiglu.swiglu_backward(grad, *ctx.saved_tensors)


torch.library.register_autograd("ocl_swiglu::swiglu", _gradient, setup_context=_save)
