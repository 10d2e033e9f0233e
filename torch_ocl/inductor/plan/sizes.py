"""The sizes that kernels are written for: lanes, tiles, work-groups, and what is kept in registers.

The launcher has none of these numbers: it gets a form's in the description of its kernel.
"""

from __future__ import annotations

import math

import sympy
import torch

from torch_ocl import _C
from torch_ocl.inductor import device as devices

# Bytes of a vector: of a CPU's at most, and what a GPU moves at a time. Its lanes of four bytes.
CPU_BYTES, GPU_BYTES = _C.CPU_VECTOR_BYTES, _C.GPU_VECTOR_BYTES
CPU_LANES, GPU_LANES = CPU_BYTES // 4, GPU_BYTES // 4
# Lanes below this are worth less than what a division for each lane costs.
FEWEST_LANES = 4

# The side of a GPU's tile in local memory, and the lines of work-items that share one.
TILE_SIDE, TILE_LINES = 32, 8

# Columns that are enough for a GPU without work-items that share their rows, and the rows that are
# worth one of these. The bytes of local memory of a work-item's accumulators.
ENOUGH_COLUMNS, ROWS_OF_A_LINE, BYTES_OF_A_LINE = 1 << 17, 4, 64
# The longest line of these work-items.
LONGEST_LINE = 32

# Accumulators of a reduction in turns, so that a sum needn't wait for the one before.
TURNS = 4

# Elements that a kernel reads and writes in less time than its launch takes.
SMALL_KERNEL = 1 << 16

# Rows up to this length stay in private arrays from pass to pass: the first cache holds them.
LONGEST_PRIVATE_ROW = 8192
# Registers of a GPU's work-item that a value of its row may take, and all that are kept.
_MOST_IN_REGISTERS, _MOST_KEPT = 32, 64


def combining_items(group: int) -> int:
    """The work-items of such a group that combine the accumulators of all."""
    return 16 if group >= 128 else 8


def row_group(device: int, length: sympy.Expr) -> int:
    """The work-items of a GPU's work-group that reduces a row."""
    _, most = devices.work_group_sizes(device)
    size = int(length) if isinstance(length, sympy.Integer) else 1 << 20
    vectors = -(-size // GPU_LANES)

    def cost(group: int) -> float:
        """Work-items that idle in the last round, and how far from four vectors each has."""
        each = -(-vectors // group)
        return each * group / vectors + abs(math.log2(each / 4)) / 8

    return min((most >> i for i in range(most.bit_length() - 5)), key=cost)


def may_keep(device: int, length: sympy.Expr, dtype: torch.dtype, others: int) -> bool:
    """Whether a row of such values can be kept from pass to pass, beside so many others."""
    if not isinstance(length, sympy.Integer):
        return False
    if devices.is_cpu_form(device):
        return bool(length <= LONGEST_PRIVATE_ROW)
    each = -(-int(length) // row_group(device, length)) * max(1, dtype.itemsize // 4)
    return each <= _MOST_IN_REGISTERS and each * (others + 1) <= _MOST_KEPT
