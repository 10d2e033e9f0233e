"""The backend that `import bitsandbytes` gets, with a stand-in for the library, which is too large
to install here: its ops' schemas, the set of devices that it knows, and a list of devices within a
function. `make integrations` tries the library itself."""

import os
import subprocess
import sys
import textwrap

import pytest

BASE = """
import torch
from bitsandbytes import autograd
supported_torch_devices = {"cpu", "cuda"}
define = torch.library.define
define("bitsandbytes::quantize_4bit",
       "(Tensor A, int blocksize, str quant_type, ScalarType quant_storage) -> (Tensor, Tensor)")
define("bitsandbytes::dequantize_4bit",
       "(Tensor A, Tensor absmax, int blocksize, str quant_type, int[] shape, ScalarType dtype) "
       "-> Tensor")
define("bitsandbytes::gemm_4bit",
       "(Tensor A, Tensor B, int[] shapeB, Tensor absmax, int blocksize, str quant_type, "
       "Tensor? bias=None, Tensor? absmax_8bit=None, Tensor? absmax_code=None, "
       "Tensor? absmax_offset=None) -> Tensor")
define("bitsandbytes::quantize_blockwise",
       "(Tensor A, Tensor code, int blocksize) -> (Tensor, Tensor)")
define("bitsandbytes::dequantize_blockwise",
       "(Tensor A, Tensor absmax, Tensor code, int blocksize, ScalarType dtype) -> Tensor")
define("bitsandbytes::int8_linear_matmul", "(Tensor A, Tensor B) -> Tensor")
define("bitsandbytes::optimizer_update_8bit_blockwise",
       "(str optimizer_name, Tensor(a0!) g, Tensor(a1!) p, Tensor(a2!) state1, "
       "Tensor(a3!)? state2, float beta1, float beta2, float beta3, float alpha, float eps, "
       "int step, float lr, Tensor(a4!) qmap1, Tensor(a5!)? qmap2, Tensor(a6!) absmax1, "
       "Tensor(a7!)? absmax2, float weight_decay, float gnorm_scale, bool skip_zeros=False) -> ()")
"""
FUNCTIONS = """
def matmul(device):
    return "restored" if device in ("cpu", "xpu") else "by 8 bits"
"""


@pytest.fixture
def script(tmp_path):
    """Runs code beside the stand-in; returns the words that it wrote."""
    folder = tmp_path / "bitsandbytes" / "autograd"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text(BASE)
    (folder / "__init__.py").write_text("from bitsandbytes.autograd import _functions")
    (folder / "_functions.py").write_text(FUNCTIONS)

    def run(code, mode="auto"):
        text = "import torch, bitsandbytes\nops = torch.ops.bitsandbytes\n" + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"TORCH_OCL_INTEGRATIONS": mode, "TORCH_OCL_VERBOSE": "integrations"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run


@pytest.mark.parametrize("mode, known", [("auto", "True restored"), ("off", "False by 8 bits")])
def test_devices(script, mode, known):
    code = """
    from bitsandbytes.autograd._functions import matmul
    print("ocl" in bitsandbytes.supported_torch_devices, matmul("ocl"))
    """
    assert script(code, mode) == known.split()


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_weights_of_4_bits(script, mode):
    script(
        """
        torch.manual_seed(0)
        weight, x, bias = torch.randn(24, 128), torch.randn(3, 128), torch.randn(24)
        bits, largest = ops.quantize_4bit(weight.ocl(), 64, "nf4", torch.uint8)
        assert torch.equal(largest.cpu(), weight.view(-1, 64).abs().amax(1))
        back = ops.dequantize_4bit(bits, largest, 64, "nf4", [24, 128], torch.float32).cpu()
        # Neighbours of the 16 numbers are 0.3 apart at most.
        assert ((back - weight).view(-1, 64).abs().amax(1) <= 0.16 * largest.cpu()).all()
        out = ops.gemm_4bit(x.ocl(), bits, [24, 128], largest, 64, "nf4", bias.ocl()).cpu()
        torch.testing.assert_close(out, x @ back.t() + bias, rtol=1e-4, atol=1e-4)
        assert not torch.ocl.fallback_counts() and not torch.ocl.host_staged_counts()
        """,
        mode,
    )


def test_8_bits(script):
    script(
        """
        torch.manual_seed(0)
        code = torch.linspace(-1, 1, 256)
        x = torch.randn(8, 64)
        eight, largest = ops.quantize_blockwise(x.ocl(), code.ocl(), 64)
        back = ops.dequantize_blockwise(eight, largest, code.ocl(), 64, torch.float32).cpu()
        assert ((back - x).abs() <= largest.cpu()[:, None] / 250).all()
        a, b = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((4, 32), (6, 32)))
        sums = ops.int8_linear_matmul(a.ocl(), b.ocl()).cpu()
        assert torch.equal(sums, a.int() @ b.int().t())
        """
    )


def test_a_step_of_adam(script):
    """The first one, from states of zeros, is the learning rate against the gradient's sign."""
    script(
        """
        torch.manual_seed(0)
        gradient, parameter = torch.randn(512), torch.randn(512)
        p = parameter.ocl()
        signed, unsigned = torch.linspace(-1, 1, 256).ocl(), torch.linspace(0, 1, 256).ocl()
        zero = int(signed.abs().argmin())
        first = torch.full((512,), zero, dtype=torch.uint8).ocl()
        second = torch.zeros(512, dtype=torch.uint8).ocl()
        most = [torch.zeros(2).ocl() for _ in range(2)]
        ops.optimizer_update_8bit_blockwise(
            "adam", gradient.ocl(), p, first, second, 0.9, 0.999, 0.0, 0.0, 1e-8, 1, 0.01,
            signed, unsigned, most[0], most[1], 0.0, 1.0)
        torch.testing.assert_close(p.cpu(), parameter - 0.01 * gradient.sign(), rtol=0, atol=1e-4)
        torch.testing.assert_close(most[0].cpu(), 0.1 * gradient.view(2, 256).abs().amax(1))
        """
    )
