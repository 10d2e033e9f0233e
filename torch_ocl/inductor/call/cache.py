"""The key of inductor's cache has what a compiled graph depends on beside its code."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import torch
from torch._inductor.custom_graph_pass import CustomGraphModulePass

from torch_ocl import _C

_PACKAGE = Path(__file__).parents[2]
# Settings that change what is generated, or what it calls.
_SETTINGS = ("TORCH_OCL_TUNE_AS", "TORCH_OCL_WITHOUT", "TORCH_OCL_INDUCTOR_FALLBACK")


@functools.cache
def _generator() -> str:
    """A hash of this backend, of what it changes upstream, and of the kernels' prelude."""
    digest = hashlib.sha256()
    folders = (_PACKAGE / "upstream" / "compile", _PACKAGE / "inductor")
    for path in [path for folder in folders for path in sorted(folder.rglob("*.py"))]:
        digest.update(path.read_bytes())
    from torch_ocl.inductor.call import runtime

    everything = [*runtime._PARTS, "float8", "special_f32"]
    digest.update(runtime.prelude(everything).encode())
    digest.update(cpp_interface().encode())
    return digest.hexdigest()


@functools.cache
def cpp_interface() -> str:
    """A hash of the headers that generated C++ includes: a library of it that was made with others
    must not be found again."""
    digest = hashlib.sha256()
    for path in sorted((_PACKAGE / "include/torch_ocl/aoti").glob("*.h")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Generator(CustomGraphModulePass):
    """A pass that changes nothing: its uuid is what inductor's cache asks for."""

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        return

    def uuid(self) -> tuple[str, ...]:
        if not torch.ocl.is_initialized():
            return ("no ocl",)
        devices = []
        for index in range(torch.ocl.device_count()):
            p = _C.properties(index)
            devices += [p["name"], p["driver_version"], p["version"], str(p["has_fp64"])]
        settings = [f"{name}={os.environ.get(name, '')}" for name in _SETTINGS]
        return (_generator(), torch.__version__, *devices, *settings)
