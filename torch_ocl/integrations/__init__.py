"""Libraries above PyTorch take `ocl` as they take `cuda`.

Many keep lists of devices that they know. A module here changes one library, as soon as the library
is imported: it is no dependency, and what is never imported costs nothing. No change is made where
upstream's code isn't what it is expected to be (`TORCH_OCL_VERBOSE=integrations` says so), and none
starts OpenCL.

A module has PATCHES: names of the library's modules, each with the function that changes it once it
is loaded. docs/design/integrations.md says what belongs here, and how to add one.
"""

import functools
import importlib

from torch_ocl import _import_hook
from torch_ocl.integrations import _choice

#: The names that programs import, each with the module here that serves it.
LIBRARIES = {
    "accelerate": "accelerate",
    "bitsandbytes": "bitsandbytes",
    "comfy": "comfyui",
    "fastai": "fastai",
    "ignite": "ignite",
    "lightning": "lightning",
    "lightning_fabric": "lightning",
    "litgpt": "litgpt",
    "lm_eval": "lm_eval",
    "pytorch_lightning": "lightning",
    "safetensors": "safetensors",
    "sentence_transformers": "sentence_transformers",
    "stable_baselines3": "stable_baselines3",
    "torch_geometric": "torch_geometric",
    "torchao": "torchao",
    "torchaudio": "torchaudio",
    "torchrl": "torchrl",
    "torchtitan": "torchtitan",
    "torchvision": "torchvision",
    "transformers": "transformers",
    "ultralytics": "ultralytics",
}

#: Those whose ops get kernels for `ocl` tensors with TORCH_OCL_INTEGRATIONS=off, too. Nothing of
#: the libraries' own is replaced then.
KERNELS = frozenset({"bitsandbytes", "torchaudio", "torchvision"})


def install() -> None:
    """Changes the libraries that are imported already, and the others when they will be."""
    for name in LIBRARIES:
        _import_hook.before(name, functools.partial(_expect, name))


def _expect(library: str) -> None:
    """Waits for the modules of a library that are to be changed: of those that its integration
    serves, the ones of this name. With TORCH_OCL_INTEGRATIONS=off only kernels are added."""
    if _choice.mode() == "off" and library not in KERNELS:
        return
    # A fault of ours must not keep a program from importing the library.
    try:
        integration = importlib.import_module(f"torch_ocl.integrations.{LIBRARIES[library]}")
    except Exception as error:
        _import_hook.tell(f"{library}: left as it is: {error}")
        return
    for name, patch in integration.PATCHES.items():
        if name == library or name.startswith(library + "."):
            _import_hook.after(name, patch)
    for name, definitions in getattr(integration, "DEFINITIONS", {}).items():
        _import_hook.define(name, definitions)
