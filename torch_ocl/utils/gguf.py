"""Weights of GGUF files that stay in the file's blocks, on a device::

    state = torch_ocl.gguf.load("model.gguf", device="ocl")
    weight = state["blk.0.ffn_up.weight"]  # a GGUFTensor
    y = torch.nn.functional.linear(x, weight)

Needs the package `gguf`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

__all__ = ["BLOCKS", "GGUFTensor", "load"]

#: The formats that stay packed: the elements of a block, and its bytes.
BLOCKS = {
    "Q4_0": (32, 18),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "Q8_0": (32, 34),
}
#: These are tensors like any other.
_PLAIN = {"F32", "F16", "F64", "BF16", "I8", "I16", "I32", "I64"}

_aten, _ops = torch.ops.aten, torch.ops.torch_ocl


def _gguf() -> ModuleType:
    try:
        import gguf
    except ImportError as error:
        raise ImportError("GGUF files are read by the package gguf: pip install gguf") from error
    return gguf


class GGUFTensor(torch.Tensor):
    """A tensor in the blocks of a GGUF file.

    As the weight of ``linear()`` and ``embedding()`` it is read as it is. Gradients go through it
    to their inputs; it has none itself. It can be moved, copied and saved, and its rows be chosen.
    Other operations take its numbers, which are unpacked for each call. ``dtype`` is that of the
    numbers, and ``to(dtype)`` changes no more than that.

    Args:
        blocks: the bytes, [..., bytes of a row].
        format: its name in GGUF files, one of BLOCKS.
        dtype: float32, float16 or bfloat16.
    """

    blocks: torch.Tensor
    format: str

    @staticmethod
    def __new__(
        cls, blocks: torch.Tensor, format: str, dtype: torch.dtype = torch.float32
    ) -> GGUFTensor:
        if format not in BLOCKS:
            raise ValueError(f"tensors of type {format} can't stay packed: {', '.join(BLOCKS)} can")
        elements, size = BLOCKS[format]
        if blocks.dtype != torch.uint8 or blocks.dim() == 0 or blocks.shape[-1] % size:
            raise ValueError(
                f"{format}: expected rows of a multiple of {size} bytes, got {blocks.dtype} of "
                f"sizes {tuple(blocks.shape)}"
            )
        sizes = (*blocks.shape[:-1], blocks.shape[-1] // size * elements)
        self = torch.Tensor._make_wrapper_subclass(
            cls, sizes, dtype=dtype, device=blocks.device, requires_grad=False
        )
        self.blocks, self.format = blocks, format
        return self

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["blocks"], (self.format, self.dtype)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> GGUFTensor:
        return cls(inner["blocks"], *context)

    def _stable_hash_for_caching(self) -> str:
        """The traits that compiled code depends on, for its cache."""
        return f"{self.format}, {self.dtype}, {tuple(self.shape)}"

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return (
            f"GGUFTensor({self.format}, shape={tuple(self.shape)}, dtype={self.dtype}, "
            f"device='{self.device}')"
        )

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        is_parameter = isinstance(self, torch.nn.Parameter)
        return _rebuild, (self.blocks, self.format, self.dtype, self.requires_grad, is_parameter)

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The numbers, as a plain tensor of this dtype or of the given one."""
        return _ops.gguf_dequantize(self.blocks, self.format, dtype or self.dtype)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Upstream's own would make packed tensors of all results.
        with torch._C.DisableTorchFunctionSubclass():
            return _FUNCTIONS.get(func, func)(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packed = _PACKED[func](*args, **kwargs) if func in _PACKED else NotImplemented
        if packed is not NotImplemented:
            return return_and_correct_aliasing(func, args, kwargs, packed)
        written = [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        if any(isinstance(given.get(name), GGUFTensor) for name in written):
            raise NotImplementedError(f"{func}: a packed tensor's numbers can't be written")
        plain = tree_map_only(GGUFTensor, GGUFTensor.dequantize, (args, kwargs))
        return func(*plain[0], **plain[1])


def _with(tensor: GGUFTensor, blocks: torch.Tensor, dtype: torch.dtype | None = None) -> GGUFTensor:
    return GGUFTensor(blocks, tensor.format, dtype or tensor.dtype)


def _rebuild(
    blocks: torch.Tensor, format: str, dtype: torch.dtype, requires_grad: bool, is_parameter: bool
) -> GGUFTensor:
    tensor = GGUFTensor(blocks, format, dtype)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


torch.serialization.add_safe_globals([_rebuild])


# Operations that keep a tensor packed. NotImplemented: with these arguments they don't.


def _to_copy(tensor: GGUFTensor, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    if dtype not in (None, torch.float32, torch.float16, torch.bfloat16):
        return NotImplemented
    kept = {name: options[name] for name in ("non_blocking",) if name in options}
    return _with(tensor, _aten._to_copy(tensor.blocks, device=device, **kept), dtype)


def _copy(to: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(to, GGUFTensor) or not isinstance(source, GGUFTensor):
        return NotImplemented
    if to.format != source.format:
        raise NotImplementedError(f"copy_: {source.format} into {to.format}")
    to.blocks.copy_(source.blocks, non_blocking)
    return to


def _same_shape(tensor: GGUFTensor, sizes: Any) -> Any:
    asked = [b if a == -1 else a for a, b in zip(sizes, tensor.shape, strict=False)]
    if len(sizes) != tensor.dim() or asked != list(tensor.shape):
        return NotImplemented
    return _with(tensor, tensor.blocks.view(tensor.blocks.shape))


def _of_rows(op: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def chosen(tensor: GGUFTensor, dim: int = 0, *args: Any) -> Any:
        if dim not in (0, -tensor.dim()) or tensor.dim() < 2:
            return NotImplemented
        return _with(tensor, op(tensor.blocks, 0, *args))

    return chosen


def _like(op: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    return lambda tensor, **options: _with(tensor, op(tensor.blocks))


_PACKED: dict[Any, Callable[..., Any]] = {
    _aten._to_copy.default: _to_copy,
    _aten.alias.default: _like(_aten.alias.default),
    _aten.clone.default: _like(_aten.clone.default),
    _aten.copy_.default: _copy,
    _aten.detach.default: _like(_aten.detach.default),
    _aten.index_select.default: _of_rows(_aten.index_select.default),
    _aten.select.int: _of_rows(_aten.select.int),
    _aten.slice.Tensor: _of_rows(_aten.slice.Tensor),
    _aten.view.default: _same_shape,
}


# Functions of torch that read the blocks.


def _linear(input: torch.Tensor, weight: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
    if not isinstance(weight, GGUFTensor) or isinstance(input, GGUFTensor):
        operands = tree_map_only(GGUFTensor, GGUFTensor.dequantize, (input, weight, bias))
        return functional.linear(*operands)
    if torch.is_autocast_enabled(input.device.type):
        input = input.to(torch.get_autocast_dtype(input.device.type))
        bias = None if bias is None else bias.to(input.dtype)
    return _ops.gguf_linear(input, weight.blocks, weight.format, bias)


def _embedding(
    input: torch.Tensor,
    weight: GGUFTensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    if max_norm is not None:
        raise NotImplementedError("embedding: max_norm would write a packed weight")
    return _ops.gguf_embedding(weight.blocks, input, weight.format, weight.dtype)


_FUNCTIONS = {functional.linear: _linear, functional.embedding: _embedding}


# These functions trace and differentiate the ops, and compute them on CPU tensors.


def _unpacked_size(blocks: torch.Tensor, format: str) -> Any:
    elements, size = BLOCKS[format]
    return blocks.shape[-1] // size * elements


@torch.library.register_fake("torch_ocl::gguf_dequantize")
def _fake_dequantize(blocks, format, dtype):
    sizes = (*blocks.shape[:-1], _unpacked_size(blocks, format))
    return blocks.new_empty(sizes, dtype=dtype)


@torch.library.register_fake("torch_ocl::gguf_embedding")
def _fake_embedding(blocks, indices, format, dtype):
    return blocks.new_empty((*indices.shape, _unpacked_size(blocks, format)), dtype=dtype)


@torch.library.register_fake("torch_ocl::gguf_linear")
def _fake_linear(input, blocks, format, bias):
    return input.new_empty((*input.shape[:-1], blocks.shape[0]))


@torch.library.register_fake("torch_ocl::gguf_linear_gradient")
def _fake_linear_gradient(grad, blocks, format):
    return grad.new_empty((*grad.shape[:-1], _unpacked_size(blocks, format)))


def _keep_weight(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.format = inputs[2]


def _linear_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    (blocks,) = ctx.saved_tensors
    of_input = of_bias = None
    if ctx.needs_input_grad[0]:
        of_input = _ops.gguf_linear_gradient(grad, blocks, ctx.format)
    if ctx.needs_input_grad[3]:
        of_bias = grad.flatten(0, -2).sum(0) if grad.dim() > 1 else grad
    return of_input, None, None, of_bias


def _gradient_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    (blocks,) = ctx.saved_tensors
    return _ops.gguf_linear(grad, blocks, ctx.format, None), None, None


torch.library.register_autograd(
    "torch_ocl::gguf_linear", _linear_backward, setup_context=_keep_weight
)
torch.library.register_autograd(
    "torch_ocl::gguf_linear_gradient", _gradient_backward, setup_context=_keep_weight
)


def _dequantize_on_cpu(blocks, format, dtype):
    gguf = _gguf()
    kind = gguf.GGMLQuantizationType[format]
    return torch.from_numpy(gguf.dequantize(blocks.contiguous().numpy(), kind)).to(dtype)


def _embedding_on_cpu(blocks, indices, format, dtype):
    rows = blocks.index_select(0, indices.flatten())
    return _dequantize_on_cpu(rows, format, dtype).view(*indices.shape, -1)


def _linear_on_cpu(input, blocks, format, bias):
    return functional.linear(input, _dequantize_on_cpu(blocks, format, input.dtype), bias)


def _linear_gradient_on_cpu(grad, blocks, format):
    return grad @ _dequantize_on_cpu(blocks, format, grad.dtype)


for _name, _kernel in (
    ("gguf_dequantize", _dequantize_on_cpu),
    ("gguf_embedding", _embedding_on_cpu),
    ("gguf_linear", _linear_on_cpu),
    ("gguf_linear_gradient", _linear_gradient_on_cpu),
):
    torch.library.register_kernel(f"torch_ocl::{_name}", "cpu", _kernel)


def tensor_of(data: Any, kind: str, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The tensor of a file's `data` (as gguf.ReaderTensor has them) of a type, on the CPU."""
    if kind in BLOCKS:
        return GGUFTensor(torch.from_numpy(data.copy()), kind, dtype or torch.float32)
    if kind not in _PLAIN:
        raise ValueError(
            f"tensors of type {kind} are not supported: {', '.join([*BLOCKS, *sorted(_PLAIN)])} are"
        )
    plain = torch.from_numpy(data.copy())
    if kind == "BF16":
        plain = plain.view(torch.bfloat16)
    return plain.to(dtype) if plain.is_floating_point() else plain


def load(
    path: str | os.PathLike[str],
    device: torch.device | str = "ocl",
    dtype: torch.dtype | None = None,
) -> dict[str, torch.Tensor]:
    """The tensors of a GGUF file by their names there.

    Quantised ones are GGUFTensors, with the file's own blocks in memory. F32, F16, BF16 and the
    like are plain tensors.

    Args:
        path: the file.
        device: where the tensors lie.
        dtype: that of all floating-point tensors: plain ones are converted, packed ones give
            numbers of it. None: as in the file, and float32 for packed ones.

    Raises:
        ImportError: the package gguf isn't there.
        ValueError: a tensor's type is none of those above.
    """
    reader = _gguf().GGUFReader(os.fspath(path))
    if reader.byte_order != "I":
        raise ValueError(
            f"{os.fspath(path)}: its numbers have the bytes of another machine's order"
        )
    state = {}
    for tensor in reader.tensors:
        try:
            state[tensor.name] = tensor_of(tensor.data, tensor.tensor_type.name, dtype).to(device)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {tensor.name}: {error}") from None
    return state
