"""Programs that say "cuda" run on `ocl`: what torch_ocl.cuda_to_ocl() installs.

Places where a program names a device are changed, once: ops on tensors that exist are as fast as
before. A name becomes `ocl` on its way in. Where the program looks at a device it sees "cuda", and
torch's own code sees `ocl` (csrc/python/device_names.cpp).
"""

import copyreg
import functools
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from torch_ocl import _import_hook
from torch_ocl.notices import unused
from torch_ocl.upstream import device_functions
from torch_ocl.upstream.as_cuda import backends, dynamo, operators, profilers
from torch_ocl.upstream.as_cuda import tensor_types as cuda_tensor_types
from torch_ocl.upstream.as_cuda.converting import (
    change,
    converted,
    converting,
    converting_device_type,
    converting_device_type_first,
    is_of_torch,
    put,
    to_cuda,
    to_ocl,
)

_installed = False
by_variable = False  # TORCH_OCL_AS_CUDA has done it, and not the program
#: Libraries that were there first: they may have asked for CUDA, or copied torch's functions.
imported_before: list[str] = []


def install() -> None:
    """torch_ocl.cuda_to_ocl(), which says what it does. Nothing the second time."""
    global _installed
    if _installed:
        return
    if torch.cuda.is_available():
        raise RuntimeError("cuda_to_ocl: this machine has a CUDA device")
    _installed = True
    os.environ["TORCH_OCL_AS_CUDA"] = "1"  # for the processes that this one starts
    imported_before.extend(_users_of_torch())
    unused.watch()
    _change_functions()
    _change_types()
    _change_tensors()
    _change_amp()
    _change_loading()
    backends.install()
    operators.install()
    profilers.install()
    # Not above: this module is imported before the native part can be.
    from torch_ocl import _C
    from torch_ocl.upstream.as_cuda import cuda_module, native, scripts

    cuda_module.install()
    native.install()
    _C.show_devices_as_cuda()
    scripts.install()
    for name, patch in dynamo.PATCHES.items():
        _import_hook.after(name, patch)
    _import_hook.after("torch.distributed.device_mesh", _change_meshes)


def _users_of_torch() -> list[str]:
    """The libraries whose loaded modules have imported torch."""
    ours = {"torch", "torch_ocl", "torch_ocl_autoload"}
    users = {
        name.partition(".")[0]
        for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType) and vars(module).get("torch") is torch
    }
    return sorted(name for name in users - ours if not name.startswith("_"))


def _change_functions() -> None:
    for owner, name in list(device_functions.functions_with_a_device()):
        change(owner, name, converting)


def _change_types() -> None:
    from torch_ocl import _C

    for kind in (torch.device, torch.Event, torch.Generator, torch.Stream):
        _C.convert_arguments(kind, converted)
    # As a CUDA program's: what it pickles says "cuda", and means `ocl` here wherever it is read.
    copyreg.pickle(torch.device, _pickled)


def _pickled(device: torch.device) -> tuple[type, tuple[Any, ...]]:
    name = to_cuda(device.type)
    return torch.device, (name,) if device.index is None else (name, device.index)


def _change_tensors() -> None:
    change(torch.Tensor, "cuda", _cuda_of_tensors)
    packed = torch.nn.utils.rnn.PackedSequence
    for kind in (torch.nn.Module, torch.UntypedStorage, torch.TypedStorage, packed):
        put(kind, "cuda", converting(kind.ocl))
    on_cuda = torch.Tensor.is_cuda
    interface = torch.Tensor.__cuda_array_interface__

    def is_cuda(self: torch.Tensor) -> bool:
        return self.is_ocl or on_cuda.__get__(self)

    def __cuda_array_interface__(self: torch.Tensor) -> Any:
        if self.is_ocl:
            raise AttributeError("tensors on ocl have no addresses that CUDA could read")
        return interface.__get__(self)

    change(torch.Tensor, "type", cuda_tensor_types.converting)
    change(torch, "set_default_tensor_type", cuda_tensor_types.set_default_tensor_type)
    torch.Tensor.is_cuda = property(is_cuda)
    _change_storages()
    torch.Tensor.__cuda_array_interface__ = property(__cuda_array_interface__)


def _cuda_of_tensors(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def cuda(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if torch.overrides.has_torch_function_unary(self):
            return torch.overrides.handle_torch_function(
                torch.Tensor.cuda, (self,), self, *args, **kwargs
            )
        return self.ocl(*map(to_ocl, args), **converted(**kwargs)[1])

    return cuda


def _change_storages() -> None:
    """torch's own code asks storages in order to call CUDA's functions."""

    def is_cuda(self: Any) -> bool:
        return self.device.type == "ocl" and not is_of_torch(_module_of_caller())

    for kind in (torch.UntypedStorage, torch.TypedStorage):
        kind.is_cuda = property(is_cuda)
    torch.UntypedStorage.__new__ = converting(torch.UntypedStorage.__new__)


def _module_of_caller() -> str:
    return sys._getframe(2).f_globals.get("__name__", "")


def _change_amp() -> None:
    _change_autocasts_of_old()
    upstream = torch.amp.GradScaler.__init__

    @functools.wraps(upstream)
    def __init__(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        upstream(self, to_ocl(device), *args, **kwargs)

    torch.amp.GradScaler.__init__ = __init__
    for name in ("custom_fwd", "custom_bwd"):
        decorator = converting_device_type(getattr(torch.amp, name))
        setattr(torch.amp, name, decorator)
        setattr(torch.amp.autocast_mode, name, decorator)


def _change_autocasts_of_old() -> None:
    """Functions without a device are about CUDA."""
    change(torch, "is_autocast_enabled", _with_default_device)
    change(torch, "set_autocast_enabled", _with_default_device)
    get = functools.wraps(torch.get_autocast_gpu_dtype)(lambda: torch.get_autocast_dtype("ocl"))
    set_ = functools.wraps(torch.set_autocast_gpu_dtype)(
        lambda dtype: torch.set_autocast_dtype("ocl", dtype)
    )
    for owner in (torch, torch._C):
        put(owner, "get_autocast_gpu_dtype", get)
        put(owner, "set_autocast_gpu_dtype", set_)


def _with_default_device(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """With the argument `enabled` alone, or none, of a function of autocast."""

    @functools.wraps(upstream)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        names_device = isinstance((*args, *kwargs.values(), None)[0], str)
        if names_device:
            return upstream(*args, **kwargs)
        return upstream("ocl", *args, *kwargs.values())

    return wrapper


def _change_loading() -> None:
    """Files say "cuda", as those of a program on CUDA do, so they can be read there. Files that say
    `ocl` are read all the same."""
    upstream = torch.load

    @functools.wraps(upstream)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = {
                place: to_ocl(device)
                for name, device in map_location.items()
                for place in (name, to_ocl(name), to_cuda(name))
            }
        elif callable(map_location):
            map_location = _given_cuda(map_location)
        return upstream(f, to_ocl(map_location), *args, **kwargs)

    def tag(storage: Any) -> str | None:
        return f"cuda:{storage.device.index}" if storage.device.type == "ocl" else None

    def restore(storage: Any, location: str) -> Any:
        place = to_ocl(location)
        if place == location:
            return None
        return torch.serialization.default_restore_location(storage, place)

    torch.load = torch.serialization.load = load
    torch.serialization.register_package(0, tag, restore)


def _given_cuda(place: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """A program's function that says where a storage goes, by where it was."""

    @functools.wraps(place)
    def map_location(storage: Any, location: str) -> Any:
        return place(storage, to_cuda(location))

    return map_location


def _change_meshes(module: types.ModuleType) -> None:
    """Meshes of devices are made by the type's name."""
    upstream = module.init_device_mesh
    module.init_device_mesh = converting_device_type_first(upstream)
    distributed = sys.modules["torch.distributed"]
    if getattr(distributed, "init_device_mesh", None) is upstream:
        distributed.init_device_mesh = module.init_device_mesh
    mesh = module.DeviceMesh
    made = mesh.__init__

    @functools.wraps(made)
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        made(self, to_ocl(device_type), *args, **kwargs)

    mesh.__init__ = __init__
