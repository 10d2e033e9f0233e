"""All that this package changes in torch itself. README.md has a table of it.

A module has install(), which `import torch` runs, or PATCHES: names of torch's modules that it may
never load, each with the function that changes it once it is.
"""

import functools
import importlib

from torch_ocl import _import_hook

_AT_ONCE = (
    "multiprocessing",
    "cross_entropy",
    "compile.fake_tensors",
    "grad_scaler",
    "harmless",
    "lbfgs",
    "optimizers",
    "profiled_imports",
    "sparse_files",
    "distributed.process_groups",
    "device_lists",
)
#: Modules of torch, each with the module here that waits for it.
_LATER = {
    "torch._dynamo.guards": "compile.signed_zeros",
    "torch._dynamo.variables.builder": "compile.signed_zeros",
    "torch._dynamo.variables.builtin": "compile.tensor_types",
    "torch.export.pt2_archive._package": "compile.pt2_packages",
    "torch.nested._internal.sdpa": "jagged_attention",
    "torch.nn.attention.flex_attention": "compile.flex_attention",
}


def install() -> None:
    """Changes what `import torch` has loaded, and has the rest changed once it is loaded."""
    for name in _AT_ONCE:
        importlib.import_module(f"torch_ocl.upstream.{name}").install()
    for upstream, name in _LATER.items():
        _import_hook.before(upstream, functools.partial(_wait_for, upstream, name))


def _wait_for(upstream: str, name: str) -> None:
    module = importlib.import_module(f"torch_ocl.upstream.{name}")
    _import_hook.after(upstream, module.PATCHES[upstream])
