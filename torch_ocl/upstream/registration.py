"""Names the device to torch: by torch's own functions, and by names that those leave out."""

import importlib
import sys
import types

import torch

BACKEND = "ocl"
#: The OpenCL whose functions the native part uses, where drivers have them.
OPENCL_VERSION = "3.0"
_SUBMODULES = ("amp", "graphs", "memory", "nvtx", "profiler", "random", "streams", "tunable")


def install(module: types.ModuleType) -> None:
    """Makes `module` torch.ocl, and gives tensors, modules and storages a method ocl()."""
    torch._register_device_module(BACKEND, module)
    _add_names()
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    _move_lazy_modules()


def _add_names() -> None:
    """torch.version.ocl, torch.backends.ocl, and modules that `from torch.ocl.amp import ...`
    finds."""
    torch.version.ocl = OPENCL_VERSION
    torch.backends.ocl = importlib.import_module("torch_ocl.api.backends")
    sys.modules["torch.backends.ocl"] = torch.backends.ocl
    for name in _SUBMODULES:
        if (module := sys.modules.get(f"torch_ocl.api.{name}")) is not None:
            sys.modules[f"torch.ocl.{name}"] = module


def _move_lazy_modules() -> None:
    """As torch's own list has it for `cuda`: modules whose parameters are not known yet move."""
    torch.nn.parameter.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.ocl)
