"""`import torch` runs this: it adds device `ocl`, unless that would break CUDA.

PyTorch knows one accelerator in a process. Where it is `ocl`, backward passes on `cuda` fail. So a
CUDA build with a CUDA device gets `ocl` only if a program asks for it, by `import torch_ocl`. That
is why this is no part of torch_ocl.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings


def autoload() -> None:
    """Imports torch_ocl if it is wanted. Torch calls it at the end of `import torch`."""
    # A torch_ocl that imports torch goes on by itself.
    if "torch_ocl" not in sys.modules and not reason_to_stand_back():
        import torch_ocl  # noqa: F401


def reason_to_stand_back() -> str:
    """Why `import torch` leaves `ocl` out; empty if it adds it."""
    choice = os.environ.get("TORCH_OCL_AUTOLOAD", "auto")
    if choice not in ("auto", "always", "never"):
        # An error here would be one of `import torch`.
        with contextlib.suppress(Warning):
            text = f"TORCH_OCL_AUTOLOAD={choice}: it is auto, always or never; taken as auto"
            warnings.warn(text, stacklevel=2)
    if choice == "never":
        return "TORCH_OCL_AUTOLOAD=never"
    if choice != "always" and _has_cuda():
        return "torch has a CUDA device here, and knows one accelerator in a process"
    return ""


def _has_cuda() -> bool:
    """Whether torch can use a GPU by CUDA or ROCm. Starts neither: it asks NVML or AMD SMI."""
    import torch

    return bool(torch.version.cuda or torch.version.hip) and torch.cuda.device_count() > 0
