"""torch.nn.parallel's functions that use several devices of one process know CUDA alone.

On `ocl` they run where one device is meant. Otherwise they say what to use instead: upstream's own
errors name functions that builds for CUDA have."""

import functools
import sys
from collections.abc import Iterable

import torch
from torch.utils import _pytree

from torch_ocl.upstream.as_cuda import names as cuda_to_ocl

_INSTEAD = (
    "it knows CUDA alone. Start a process for each, with torchrun, and wrap the module in "
    "torch.nn.parallel.DistributedDataParallel"
)
#: All copies between devices pass these, those of replicate(), scatter() and gather() too. The
#: functions of torch.cuda.comm are the same.
_COPIES = (
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
)


def install() -> None:
    """Changes DataParallel, data_parallel and the functions that copy between devices."""
    # The package's attribute of that name is the function.
    module = sys.modules["torch.nn.parallel.data_parallel"]
    _hide_devices(module)
    _check_class(module.DataParallel)
    module.data_parallel = _checked_function(module.data_parallel)
    torch.nn.parallel.data_parallel = module.data_parallel
    copies = sys.modules["torch.nn.parallel.comm"]
    for name in _COPIES:
        setattr(copies, name, _refusing(getattr(copies, name)))


def _hide_devices(module) -> None:
    """DataParallel moves modules to the accelerator's devices, and scatters inputs. As without an
    accelerator it runs the module as it is, on whatever device that is."""
    upstream = module._get_available_device_type

    @functools.wraps(upstream)
    def get_available_device_type():
        device_type = upstream()
        is_ocl = device_type == "ocl" or cuda_to_ocl._installed
        return None if is_ocl else device_type

    module._get_available_device_type = get_available_device_type


def _check_count(name: str, device_ids) -> None:
    count = torch.ocl.device_count() if device_ids is None else len(device_ids)
    if count > 1:
        raise RuntimeError(
            f"{name} can't use {count} ocl devices: {_INSTEAD}; or pass device_ids=[0], or show "
            "the program one device: TORCH_OCL_DEVICES=0."
        )


def _is_on_ocl(module: torch.nn.Module) -> bool:
    return any(parameter.device.type == "ocl" for parameter in module.parameters())


def _check_class(kind: type) -> None:
    constructor = kind.__init__

    @functools.wraps(constructor)
    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        if _is_on_ocl(module) or cuda_to_ocl._installed:
            _check_count("torch.nn.DataParallel", device_ids)
        constructor(self, module, device_ids, output_device, dim)
        if cuda_to_ocl._installed:
            # As upstream's does for one CUDA device.
            first = device_ids[0] if device_ids else 0
            module.to(torch.device("ocl", first) if isinstance(first, int) else first)

    upstream = kind.forward

    @functools.wraps(upstream)
    def forward(self, *inputs, **kwargs):
        return upstream(self, *_moved(inputs, self.module), **_moved(kwargs, self.module))

    kind.__init__ = __init__
    kind.forward = forward


def _moved(inputs, module: torch.nn.Module):
    """Inputs with their tensors on the module's device, if that is on `ocl`."""
    found = (p.device for p in module.parameters() if p.device.type == "ocl")
    device = next(found, None)
    if device is None:
        return inputs
    return _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), inputs)


def _checked_function(upstream):
    @functools.wraps(upstream)
    def data_parallel(
        module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None
    ):
        if not _is_on_ocl(module):
            return upstream(module, inputs, device_ids, output_device, dim, module_kwargs)
        _check_count("torch.nn.parallel.data_parallel", device_ids)
        if not isinstance(inputs, tuple):
            inputs = () if inputs is None else (inputs,)
        return module(*_moved(inputs, module), **_moved(module_kwargs or {}, module))

    return data_parallel


def _refusing(upstream):
    @functools.wraps(upstream)
    def function(*args, **kwargs):
        # A number is a device of the accelerator.
        used = torch._C._get_accelerator().type == "ocl" and torch.ocl.is_initialized()
        if used or any(map(_means_ocl, (*args, *kwargs.values()))):
            raise RuntimeError(
                f"torch.nn.parallel's {upstream.__name__} can't copy between ocl devices: "
                f"{_INSTEAD}. One tensor is copied by tensor.to('ocl:1')."
            )
        return upstream(*args, **kwargs)

    return function


def _means_ocl(argument) -> bool:
    """Whether it is a tensor or a device of `ocl`, or has one inside."""
    if isinstance(argument, torch.Tensor | torch.device):
        device = argument.device if isinstance(argument, torch.Tensor) else argument
        return device.type == "ocl"
    if isinstance(argument, str):
        return argument.partition(":")[0] == "ocl"
    return isinstance(argument, Iterable) and any(map(_means_ocl, argument))
