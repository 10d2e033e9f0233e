"""PyTorch on any OpenCL device: importing this package adds device `ocl` to torch.

Torch imports it by itself, but not where it has a CUDA device (torch_ocl_autoload.py). The device's
API is `torch.ocl`; tensors move there with `.to("ocl")` or `.ocl()`.
"""

import importlib
import warnings
from types import ModuleType

from torch_ocl._registration import register

register()


def _follow_environment() -> None:
    """Does what TORCH_OCL_AS_CUDA says. `import torch` must go on whatever comes of it."""
    from torch_ocl import _environment

    if not _environment.is_as_cuda():
        return
    try:
        from torch_ocl.upstream.as_cuda import names as cuda_to_ocl

        cuda_to_ocl.install()
        cuda_to_ocl.by_variable = True
    except Exception as error:
        warnings.warn(f"TORCH_OCL_AS_CUDA=1 has no effect: {error}", stacklevel=2)


def cuda_to_ocl() -> None:
    """Makes "cuda" mean `ocl` in this process, for programs that can't be changed.

    Covers the names of devices ("cuda", "cuda:1", torch.device), `.cuda()`, `is_cuda`, factories,
    `torch.cuda` as far as `torch.ocl` has it, autocast, GradScaler, Generator, torch.load. A device
    calls itself "cuda" to the program and `ocl` to torch. Processes that are started from here on
    do the same (TORCH_OCL_AS_CUDA). Call it before the program's own imports: what was imported
    from torch by name is not changed. It can't be undone.

    Raises:
        RuntimeError: There is a CUDA device.
    """
    from torch_ocl.upstream.as_cuda import names as cuda_to_ocl

    cuda_to_ocl.install()


_MODULES = {"gguf": "torch_ocl.utils.gguf", "testing": "torch_ocl.testing"}


def __getattr__(name: str) -> ModuleType:
    """`torch_ocl.gguf` and `torch_ocl.testing` without imports of their own."""
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_follow_environment()
__version__ = "0.1.0"
