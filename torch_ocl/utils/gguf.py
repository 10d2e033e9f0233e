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

from torch_ocl.utils.packed_tensor import PackedTensor, register

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


class GGUFTensor(PackedTensor):
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

    parts = ("blocks",)
    traits = ("format",)

    blocks: torch.Tensor
    format: str

    @staticmethod
    def __new__(
        cls, blocks: torch.Tensor, format: str, dtype: torch.dtype = torch.float32
    ) -> GGUFTensor:
        if format not in BLOCKS:
            raise ValueError(f"tensors of type {format} can't stay packed: {', '.join(BLOCKS)} can")
        size = BLOCKS[format][1]
        if blocks.dtype != torch.uint8 or blocks.dim() == 0 or blocks.shape[-1] % size:
            raise ValueError(
                f"{format}: expected rows of a multiple of {size} bytes, got {blocks.dtype} of "
                f"sizes {tuple(blocks.shape)}"
            )
        self = torch.Tensor._make_wrapper_subclass(
            cls, _sizes_of(blocks, format), dtype=dtype, device=blocks.device, requires_grad=False
        )
        self.blocks, self.format = blocks, format
        return self

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The numbers, as a plain tensor of this dtype or of the given one."""
        return _ops.gguf_dequantize(self.blocks, self.format, dtype or self.dtype)

    def as_weight_of(self, input: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """The result of linear()."""
        return _ops.gguf_linear(input, self.blocks, self.format, bias)


torch.serialization.add_safe_globals([GGUFTensor])


def _of_rows(op: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def chosen(tensor: GGUFTensor, dim: int = 0, *args: Any) -> Any:
        if dim not in (0, -tensor.dim()) or tensor.dim() < 2:
            return NotImplemented
        return tensor.like(lambda blocks: op(blocks, 0, *args))

    return chosen


GGUFTensor.packed_operations = {
    op: _of_rows(op) for op in (_aten.index_select.default, _aten.select.int, _aten.slice.Tensor)
}


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


GGUFTensor.functions = {functional.embedding: _embedding}


def _sizes_of(blocks: torch.Tensor, format: str) -> tuple[Any, ...]:
    elements, size = BLOCKS[format]
    return (*blocks.shape[:-1], blocks.shape[-1] // size * elements)


def _unpack_on_cpu(blocks, format, dtype):
    gguf = _gguf()
    kind = gguf.GGMLQuantizationType[format]
    return torch.from_numpy(gguf.dequantize(blocks.contiguous().numpy(), kind)).to(dtype)


def _fake_embedding(blocks, indices, format, dtype):
    return blocks.new_empty((*indices.shape, _sizes_of(blocks, format)[-1]), dtype=dtype)


def _embedding_on_cpu(blocks, indices, format, dtype):
    rows = blocks.index_select(0, indices.flatten())
    return _unpack_on_cpu(rows, format, dtype).view(*indices.shape, -1)


register("gguf", _sizes_of, _unpack_on_cpu)
torch.library.register_fake("torch_ocl::gguf_embedding", _fake_embedding)
torch.library.register_kernel("torch_ocl::gguf_embedding", "cpu", _embedding_on_cpu)


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
