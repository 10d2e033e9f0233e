"""ComfyUI's integration, beside a stand-in for the module that it changes. The program itself is
tried by `make integrations`, where COMFYUI names a folder with it."""

import os
import subprocess
import sys
import textwrap

import pytest

# As upstream, it asks for CUDA while it is loaded.
MODEL_MANAGEMENT = """
from enum import Enum
from types import SimpleNamespace
import torch

args = SimpleNamespace(cpu=False, force_fp16=False, gpu_only=False, async_offload=False,
                       use_split_cross_attention=False, use_quad_cross_attention=False)
args.__dict__.update({args})
FORCE_FP32 = ENABLE_PYTORCH_ATTENTION = False

class VRAMState(Enum):
    LOW_VRAM, NORMAL_VRAM, HIGH_VRAM = range(3)

vram_state = VRAMState.NORMAL_VRAM

def get_torch_device():
    return torch.device("cpu") if args.cpu else torch.device(torch.cuda.current_device())

def get_total_memory(dev=None, torch_total_too=False):
    return ("upstream", dev)

total_vram = get_total_memory(get_torch_device())

def get_free_memory(dev=None, torch_free_too=False):
    return ("upstream", dev)

def maximum_vram_for_weights(device=None):
    return 4000

def get_torch_device_name(device):
    return device.type

def soft_empty_cache(force=False):
    torch.cuda.empty_cache()

def should_use_fp16(device=None, model_params=0, prioritize_performance=True, manual_cast=False):
    return "upstream"

def should_use_bf16(device=None, model_params=0, prioritize_performance=True, manual_cast=False):
    return "upstream"

def text_encoder_device():
    return get_torch_device() if should_use_fp16() else torch.device("cpu")

def pytorch_attention_flash_attention():
    return False

def xformers_enabled():
    return True

def get_offload_stream(device):
    return None

def sync_stream(device, stream):
    assert stream is None
"""
USUAL = """
import torch, comfy.model_management as m
ocl = torch.device("ocl", 0)
"""


@pytest.fixture
def comfy(tmp_path):
    """Runs code beside the stand-in; returns what it printed, and its errors."""

    def run(code, args="", fails=False, upstream=MODEL_MANAGEMENT, **environment):
        folder = tmp_path / "comfy"
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text("")
        text = upstream.replace("{args}", args)
        (folder / "model_management.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", USUAL + textwrap.dedent(code)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"TORCH_OCL_INTEGRATIONS": "auto"} | environment,
        )
        assert bool(done.returncode) == fails, done.stderr
        return done.stdout.split(), done.stderr

    return run


def test_it_takes_ocl_without_flags(comfy):
    code = """
    print(m.get_torch_device(), m.text_encoder_device(), m.total_vram > 2**20)
    print(m.ENABLE_PYTORCH_ATTENTION, m.pytorch_attention_flash_attention(), m.xformers_enabled())
    """
    assert comfy(code)[0] == "ocl:0 ocl:0 True True True False".split()


def test_with_cpu_it_is_as_upstream_wrote_it(comfy):
    code = """
    print(m.get_torch_device(), m.text_encoder_device(), m.total_vram[0], m.xformers_enabled())
    print(m.ENABLE_PYTORCH_ATTENTION, torch.ocl.is_initialized())
    """
    assert comfy(code, "cpu=True")[0] == "cpu cpu upstream True False False".split()


@pytest.mark.parametrize("mode", ["off", "explicit"])
def test_it_chooses_nothing_in_other_modes(comfy, mode):
    _, error = comfy("", fails=True, TORCH_OCL_INTEGRATIONS=mode)
    assert "AssertionError: Torch not compiled with CUDA enabled" in error


def test_without_a_device_upstreams_error_stays(comfy):
    _, error = comfy("", fails=True, TORCH_OCL_LOADER="/nonexistent.so")
    assert "AssertionError: Torch not compiled with CUDA enabled" in error


def test_its_flag_for_a_device(comfy):
    assert comfy("print(m.get_torch_device())", "cuda_device='0,1'")[0] == ["ocl:0"]


@pytest.mark.parametrize("flag", ["use_split_cross_attention", "use_quad_cross_attention"])
def test_another_attention_can_be_asked_for(comfy, flag):
    assert comfy("print(m.ENABLE_PYTORCH_ATTENTION)", f"{flag}=True")[0] == ["False"]


def test_a_module_of_another_shape_is_left_alone(comfy):
    other = MODEL_MANAGEMENT.replace("def sync_stream", "def other_stream")
    _, error = comfy("", fails=True, upstream=other, TORCH_OCL_VERBOSE="integrations")
    assert "comfy.model_management: left as it is: it has no sync_stream" in error


def test_what_importlib_tells_is_as_without(comfy):
    code = """
    import inspect
    assert vars(m.__loader__).keys() == {"name", "path"} and m.__loader__ is m.__spec__.loader
    assert inspect.signature(m.should_use_fp16).parameters.keys() >= {"model_params"}
    assert m.get_free_memory.__module__ == m.__name__
    assert m.get_total_memory.__globals__ is not None and "enum" not in vars(m)
    """
    comfy(code)


def test_memory(comfy):
    code = """
    total, reserved = m.get_total_memory(ocl, torch_total_too=True)
    free, kept = m.get_free_memory(torch_free_too=True)
    assert 0 < free <= total == m.get_total_memory() == torch.ocl.mem_get_info(ocl)[1]
    x = torch.zeros(64, 2**20, device="ocl")
    assert m.get_total_memory(ocl, True)[1] >= reserved + x.nbytes
    del x
    assert m.get_free_memory(dev=ocl, torch_free_too=True)[1] >= kept + 2**28
    m.soft_empty_cache()
    assert m.get_free_memory(ocl, torch_free_too=True)[1] < 2**28
    assert m.get_free_memory(torch.device("cpu"))[0] == "upstream"
    assert m.get_torch_device_name(ocl) == "ocl:0 " + torch.ocl.get_device_name(0)
    assert m.get_torch_device_name(torch.device("cpu")) == "cpu"
    """
    comfy(code)


DEVICES = {  # whether float16 and bfloat16 are faster than float32
    "type='cpu', has_fp16=True": (False, False),
    "type='gpu', has_fp16=False": (False, False),
    "type='gpu', has_fp16=True": (True, False),
    "type='gpu', has_fp16=False, has_tensor_cores=True": (True, True),
    "type='gpu', has_fp16=True, subgroup_matrix_size=8": (True, True),
}


def test_dtypes_by_device(comfy):
    code = f"""
    from types import SimpleNamespace
    for text, expected in {DEVICES!r}.items():
        made = dict(has_tensor_cores=False, subgroup_matrix_size=0) | eval(f"dict({{text}})")
        torch.ocl.get_device_properties = lambda device: SimpleNamespace(**made)
        assert (m.should_use_fp16(ocl), m.should_use_bf16(device=ocl)) == expected, text
        # Weights that don't fit in float32 are kept in half, and computed with in float32.
        assert m.should_use_fp16(ocl, model_params=1001, manual_cast=True)
        assert m.should_use_bf16(ocl, model_params=1001, manual_cast=True)
        assert m.should_use_fp16(ocl, 1000, manual_cast=True) == m.should_use_fp16(ocl)
        assert m.should_use_fp16(ocl, prioritize_performance=False) == m.should_use_fp16()
    assert m.should_use_fp16(torch.device("cpu")) == "upstream"
    m.FORCE_FP32 = True
    assert not m.should_use_fp16(ocl) and not m.should_use_bf16(ocl, 10**9, manual_cast=True)
    m.args.force_fp16 = True
    assert m.should_use_fp16(ocl) and not m.should_use_bf16(ocl)
    """
    comfy(code)


@pytest.mark.parametrize("asked, count", [("True", 2), ("3", 3), ("None", 0)])
def test_streams_for_weights(comfy, asked, count):
    code = f"""
    found = [m.get_offload_stream(ocl) for _ in range(2 * {count} + 1)]
    assert len(set(found)) == max({count}, 1) and found[0] is found[-1]
    assert (found[0] is None) == (not {count}) and m.get_offload_stream(torch.device("cpu")) is None
    m.sync_stream(ocl, found[0])
    if found[0] is not None:
        weight = torch.randn(64, 64)
        for _ in range(4):
            stream = m.get_offload_stream(ocl)
            with stream.as_context(stream):
                copy = torch.empty_like(weight, device=ocl)
                copy.copy_(weight, non_blocking=True)
            m.sync_stream(ocl, stream)
            assert (copy @ copy).cpu().allclose(weight @ weight, atol=1e-4)
    """
    comfy(code, f"async_offload={asked}")
