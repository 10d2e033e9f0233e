"""Whether a library that chooses a device by itself chooses `ocl`.

TORCH_OCL_INTEGRATIONS: with `off` libraries are as upstream wrote them. With `explicit` they take
`ocl` where a program names it. With `auto` they also choose it where the device is a GPU: on a CPU
device torch's own CPU code is what they would have used, and mostly what is wanted. With `always`
they choose it on CPU devices, too.
"""

import contextlib
import os
import sys
import warnings

import torch

_MODES = ("off", "explicit", "auto", "always")
_hinted: set[str] = set()  # libraries


def mode() -> str:
    """The value of TORCH_OCL_INTEGRATIONS; auto for what is none."""
    value = os.environ.get("TORCH_OCL_INTEGRATIONS") or "auto"
    if value in _MODES:
        return value
    with contextlib.suppress(Warning):  # an error here would be one of `import torch`
        text = f"TORCH_OCL_INTEGRATIONS={value}: it is {', '.join(_MODES)}; taken as auto"
        warnings.warn(text, stacklevel=2)
    os.environ["TORCH_OCL_INTEGRATIONS"] = "auto"
    return "auto"


def chooses_ocl(library: str, advice: str) -> bool:
    """Whether a library that has just chosen the CPU, for want of a device that it knows, is to
    take `ocl`. Says once for each, on stderr, how to choose it if it is a CPU's: `advice`. Does not
    initialise OpenCL."""
    wanted = mode()
    if wanted in ("off", "explicit") or not torch.ocl.is_available():
        return False
    if wanted == "always" or is_gpu():
        return True
    _hint(library, advice)
    return False


def is_gpu() -> bool:
    """Whether the first device is more than a CPU. Does not initialise OpenCL."""
    from torch_ocl import _C

    types = _C.device_types()
    return bool(types) and types[0] != "cpu"


def means_cuda() -> bool:
    """Whether "cuda" means `ocl` in this process: then what CUDA would be chosen for is ours."""
    ours = sys.modules.get("torch_ocl.upstream.as_cuda.names")
    return bool(getattr(ours, "_installed", False))


def has_other_accelerator() -> bool:
    """Whether there is a device that libraries choose before `ocl`."""
    cuda = None if means_cuda() else torch.cuda
    others = (cuda, getattr(torch, "xpu", None), torch.backends.mps)
    return any(other is not None and other.is_available() for other in others)


def settle(library: str) -> None:
    """Keeps the hint back of a library whose choice another one overrules."""
    _hinted.add(library)


def _hint(library: str, advice: str) -> None:
    # Who names accelerate's device has chosen one, for the models of transformers, too.
    named = "ACCELERATE_TORCH_DEVICE" in os.environ
    if library in _hinted or named or os.environ.get("TORCH_OCL_NOTICES") == "0":
        return
    _hinted.add(library)
    with contextlib.suppress(OSError, ValueError):
        print(
            f"torch_ocl: {library} chose the CPU. The device ocl is a CPU here, too; to use it: "
            f"{advice}, or TORCH_OCL_INTEGRATIONS=always.",
            file=sys.stderr,
            flush=True,
        )
