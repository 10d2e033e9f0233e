"""Squares transposed into a panel (kernels/gemm/transpose_panel.clh): what lies behind it is
somebody else's."""

import pytest
import torch

from torch_ocl import _C

KERNEL = """
kernel void transpose_one(global char* panel_base, ulong offset) {
  global E* panel = (global E*)(panel_base + offset);
  FOR_SQUARES(lane0, LANES) {
    V square[WIDTH];
    for (uint r = 0; r < WIDTH; r++) square[r] = (V)(lane0 + r);
    transpose_into_panel(square, panel + lane0, LANES, LANES - lane0, true);
  }
}
"""


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 6, 8, 12, 14, 16, 20, 24, 32])
def test_nothing_is_stored_past_a_panel(lanes, width):
    """Rows shorter than a vector by half and more end several rows before the last in the next."""
    source = _C.kernel_source("gemm/packed.cl") + KERNEL
    options = f"-DC=f32 -DWIDTH={width} -DLANES={lanes}"
    rows = width * lanes
    memory = torch.full((rows + 64,), -1.0, device="ocl")
    kernel = _C.SourceKernel(0, source, "transpose_one", options)
    kernel.launch([1], [1], (memory.data_ptr(), memory.nbytes), bytes(8))  # an offset of 0
    panel, behind = memory.cpu().split([rows, 64])
    assert torch.equal(panel.view(width, lanes), torch.arange(float(lanes)).expand(width, -1))
    assert (behind == -1).all()
