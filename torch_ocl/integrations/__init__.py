"""Libraries above PyTorch take `ocl` as they take `cuda`.

Many keep lists of devices that they know. A module here changes one library, as soon as the library
is imported: it is no dependency, and what is never imported costs nothing. No change is made where
upstream's code isn't what it is expected to be (`TORCH_OCL_VERBOSE=integrations` says so), and none
starts OpenCL.

A module has PATCHES: names of the library's modules, each with the function that changes it once it
is loaded. docs/design/integrations.md says what belongs here, and how to add one.
"""

import sys

from torch_ocl.integrations import _hooks

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
    "torch.export.pt2_archive._package": "pt2_packages",
    "torch.nested._internal.sdpa": "jagged_attention",
    "torch.nn.attention.flex_attention": "flex_attention",
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
#: the libraries' own is replaced then. Of torch itself, two functions that ask for CUDA by name are
#: wrapped.
KERNELS = frozenset(
    {
        "bitsandbytes",
        "torch.export.pt2_archive._package",
        "torch.nested._internal.sdpa",
        "torchaudio",
        "torchvision",
    }
)


def install() -> None:
    """Changes the libraries that are imported already, and the others when they will be. Nothing
    the second time."""
    if _hooks.Finder in sys.meta_path:
        return
    sys.meta_path.insert(0, _hooks.Finder)
    for name in LIBRARIES:
        if name in sys.modules:
            _hooks.expect(name)
            _hooks.catch_up(name)
