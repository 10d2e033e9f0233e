"""Modules keep their parameters when they move to a device and back.

`Module.to` changes a parameter in place where torch's own list says that both tensors are of a
kind, and replaces it by a new one elsewhere. PrivateUse1 isn't in that list: tied parameters would
become separate ones, and an optimiser made before the move would go on with the old ones.
"""

import functools

import torch

_MARK = "_ocl_keeps_parameters"


def install() -> None:
    """Makes torch.nn.Module's conversions to and from `ocl` keep the identity of parameters."""
    upstream = torch.nn.Module._apply

    @functools.wraps(upstream)
    def _apply(self, fn, recurse=True):
        return upstream(self, _keeping_parameters(fn), recurse)

    torch.nn.Module._apply = _apply


def _keeping_parameters(fn):
    if hasattr(fn, _MARK):
        return fn

    def convert(tensor):
        result = fn(tensor)
        if _replaces(tensor, result):
            # From here on upstream sees two tensors of one device and goes on in place. Lazy
            # parameters, which have no data yet, refuse functions that they don't know.
            with torch._C.DisableTorchFunctionSubclass():
                torch.ops.torch_ocl.set_data(tensor, result)
        return result

    setattr(convert, _MARK, True)
    return convert


def _replaces(tensor, result) -> bool:
    return (
        isinstance(tensor, torch.nn.Parameter)
        and type(result) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device != result.device
        and "ocl" in (tensor.device.type, result.device.type)
        and {tensor.device.type, result.device.type} <= {"ocl", "cpu", "cuda", "mps", "xpu"}
        and tensor.layout == result.layout == torch.strided
        and not torch.__future__.get_overwrite_module_params_on_conversion()
        and not torch.__future__.get_swap_module_params_on_conversion()
    )
