"""torchaudio: rnnt_loss by a kernel of ours, also where its library can't be loaded.

PyPI's torchaudio is built for CUDA. Beside a torch for CPUs its library is missing others, and so
`import torchaudio` fails. What is written in Python works without it. With
TORCH_OCL_INTEGRATIONS=off its loader stays as it is, and ops that it lacks aren't declared.
"""

from collections.abc import Callable
from types import ModuleType

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import wrap

_SCHEMA = (
    "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, "
    "int blank, float clamp, bool fused_log_softmax) -> (Tensor, Tensor)"
)

# Registrations last as long as their libraries.
_libraries: list[torch.library.Library] = []


def _tolerant(upstream: Callable[[str], bool]) -> Callable[[str], bool]:
    """False, as for a library that isn't there, instead of an error for one that lacks CUDA's."""

    def _load_lib(lib: str) -> bool:
        try:
            return upstream(lib)
        except OSError:
            if torch.version.cuda is not None:
                raise
            return False

    return _load_lib


def _utilities(module: ModuleType) -> None:
    if _choice.mode() != "off":
        wrap(module, "_load_lib", _tolerant)


def _extension(module: ModuleType) -> None:
    """torchaudio._extension, which loads the library, or not."""
    if not hasattr(torch.ops.torchaudio, "rnnt_loss_forward"):
        if _choice.mode() == "off":
            return
        library = torch.library.Library("torchaudio", "FRAGMENT")
        library.define(_SCHEMA)
        _libraries.append(library)
    library = torch.library.Library("torchaudio", "IMPL")
    library.impl("rnnt_loss_forward", torch.ops.torch_ocl.rnnt_loss, "PrivateUse1")
    _libraries.append(library)


PATCHES = {"torchaudio._extension.utils": _utilities, "torchaudio._extension": _extension}
