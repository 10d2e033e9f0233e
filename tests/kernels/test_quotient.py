"""kernels/include/quotient.clh where a driver's quotients are up to 2.5 ulp off."""

import pathlib

import pytest
import torch

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
#: The quotients of such a driver: those of this one, some units in the last place off.
SOURCE = """
#define PASTE2_(a, b) a##b
#define PASTE2(a, b) PASTE2_(a, b)
#include "include/quotient_of_test.clh"
kernel void divide(global const float* x, global const float* y, global float* out) {
  size_t i = get_global_id(0);
  out[i] = QUOTIENT(f32)(x[i], y[i]);
}
"""


@pytest.mark.parametrize("off", [-2, -1, 0, 1, 2])
def test_rough_quotients_are_rounded_right(off, tmp_path):
    text = (KERNELS / "include" / "quotient.clh").read_text(encoding="utf-8")
    rough = "rough = a / b;"
    assert rough in text
    folder = tmp_path / "include"
    folder.mkdir()
    wrong = f"rough = isfinite(a / b) && a / b != 0 ? as_float(as_int(a / b) + ({off})) : a / b;"
    (folder / "quotient_of_test.clh").write_text(text.replace(rough, wrong))
    torch.manual_seed(0)
    x, y = torch.randn(2, 10000)
    whole = torch.arange(1, 1001).float()
    x, y = torch.cat([x, whole * 37]), torch.cat([y, torch.full_like(whole, 37)])
    special = torch.tensor([0.0, -0.0, 1.0, torch.inf, -torch.inf, torch.nan])
    pairs = torch.cartesian_prod(special, special)
    x, y = torch.cat([x, pairs[:, 0]]), torch.cat([y, pairs[:, 1]])
    options = ("-DOCL_ROUGH_DIVISION=1", f"-I{tmp_path}", "-cl-std=CL1.2")
    kernel = torch.ocl.compile_kernel(SOURCE, "divide", options=options)
    out = torch.empty(x.shape, device="ocl")
    kernel(x.to("ocl"), y.to("ocl"), out, global_size=x.numel())
    torch.testing.assert_close(out.cpu(), x / y, rtol=0, atol=0, equal_nan=True)
