"""Weights of 4-bit integers that stay packed on a device, as GPTQ and AWQ make them."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl.utils.packed_tensor import PackedTensor, register

__all__ = ["MOST_COLUMNS", "UNIT", "Int4Tensor", "pack"]

#: A group is a multiple of so many columns, and has so many at most.
UNIT, MOST_COLUMNS = 32, 256
#: Rows that lie side by side, as lanes of a vector.
_LANES = 16

_ops = torch.ops.torch_ocl


class Int4Tensor(PackedTensor):
    """A matrix [n, k] of 4-bit integers. Groups of columns have a scale and a point for each row,
    and a number is (bits - point) * scale.

    Args:
        bits: bytes [n, k / 2], as torch_ocl::int4_pack makes them.
        pairs: [groups, n, 2], a scale and a point; float32, float16 or bfloat16. Groups are of a
            multiple of UNIT columns, and of MOST_COLUMNS at most.
        order: int32 [k], which column of the matrix each packed one is; None: they lie in order.
        in_lanes: how the bits lie, as that op says. CPUs and GPUs have layouts of their own; a
            matrix that was packed for the other kind is unpacked for each product.
        dtype: that of the numbers.
    """

    parts = ("bits", "pairs", "order")
    traits = ("in_lanes",)

    bits: torch.Tensor
    pairs: torch.Tensor
    order: torch.Tensor | None
    in_lanes: bool

    @staticmethod
    def __new__(
        cls,
        bits: torch.Tensor,
        pairs: torch.Tensor | None = None,
        order: torch.Tensor | None = None,
        in_lanes: bool = False,
        dtype: torch.dtype = torch.float32,
        *,
        requires_grad: bool = False,
    ) -> Int4Tensor:
        if isinstance(bits, Int4Tensor):
            # accelerate makes a parameter anew, of one that it has moved.
            return torch.nn.Parameter(bits, requires_grad)
        assert pairs is not None
        self = torch.Tensor._make_wrapper_subclass(
            cls, _sizes_of(bits), dtype=dtype, device=bits.device, requires_grad=False
        )
        self.bits, self.pairs, self.order, self.in_lanes = bits, pairs, order, in_lanes
        return self

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The numbers, as a plain tensor of this dtype or of the given one."""
        return _ops.int4_dequantize(
            self.bits, self.pairs, self.order, self.in_lanes, dtype or self.dtype
        )

    def as_weight_of(self, input: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """The result of linear()."""
        return _ops.int4_linear(input, self.bits, self.pairs, self.order, self.in_lanes, bias)


torch.serialization.add_safe_globals([Int4Tensor])


def pack(
    values: torch.Tensor,
    scales: torch.Tensor,
    points: torch.Tensor,
    order: torch.Tensor | None,
    dtype: torch.dtype,
) -> Int4Tensor:
    """The tensor of integers of 0 to 15, uint8 [n, k], on a device. Scales and points are
    [groups, n]. A group may have any multiple of UNIT columns."""
    k, groups = values.shape[1], len(scales)
    size = max(part for part in range(UNIT, MOST_COLUMNS + 1, UNIT) if k // groups % part == 0)
    pairs = torch.stack((scales, points.to(scales.dtype)), 2)
    pairs = pairs.repeat_interleave(k // groups // size, 0)
    bits, in_lanes = _ops.int4_pack(values)
    return Int4Tensor(bits, pairs, order, in_lanes, dtype)


def _unpacked_bits(bits: torch.Tensor, in_lanes: bool) -> torch.Tensor:
    """The integers, as kernels/quantize has their layouts."""
    n, half = bits.shape
    if in_lanes:
        lanes = bits.view(n // _LANES, half, _LANES).transpose(1, 2)
        return torch.stack((lanes & 15, lanes >> 4), 3).view(n, 2 * half)
    blocks = bits.view(n, 2 * half // UNIT, UNIT // 2)
    return torch.stack((blocks & 15, blocks >> 4), 2).view(n, 2 * half)


def _sizes_of(bits: torch.Tensor, *others: Any) -> tuple[Any, ...]:
    return bits.shape[0], 2 * bits.shape[1]


def _unpack_on_cpu(bits, pairs, order, in_lanes, dtype):
    n, k = _sizes_of(bits)
    scales, points = pairs.float().repeat_interleave(k // len(pairs), 0).unbind(2)
    numbers = ((_unpacked_bits(bits, in_lanes) - points.t()) * scales.t()).to(dtype)
    if order is None:
        return numbers
    return torch.empty_like(numbers).index_copy_(1, order.long(), numbers)


register("int4", _sizes_of, _unpack_on_cpu)
