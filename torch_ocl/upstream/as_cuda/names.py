"""Programs that say "cuda" run on `ocl`: what torch_ocl.cuda_to_ocl() installs.

Places where a program names a device are changed, once: ops on tensors that exist are as fast as
before. A name becomes `ocl` on its way in. Where the program looks at a device it sees "cuda", and
torch's own code sees `ocl` (csrc/python/device_names.cpp).
"""

import functools
import inspect
import operator
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from torch_ocl import _import_hook
from torch_ocl.api import unavailable
from torch_ocl.notices import unused
from torch_ocl.upstream.as_cuda import tensor_types as cuda_tensor_types
from torch_ocl.upstream.as_cuda.stand_in import stand_in

_Device = torch.device  # the class itself: torch.device becomes a stand-in
#: CUDA's version for a device that has bfloat16 and the kernels for weights of 4 bits. Programs ask
#: for it to choose a dtype.
_CAPABILITY = (8, 0)
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
    _change_torch_cuda()
    _change_profilers()
    # Not above: this module is imported before the native part can be.
    from torch_ocl import _C
    from torch_ocl.upstream.as_cuda import native

    native.install()
    _C.show_devices_as_cuda()
    _import_hook.after("torch._dynamo.variables.constant", _change_dynamo)
    _import_hook.after("torch._dynamo.variables.builtin", _change_dynamos_text)
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


def to_ocl(value: Any) -> Any:
    """The `ocl` device for a name of CUDA's; anything else as it is."""
    if isinstance(value, str):
        return "ocl" + value[4:] if value == "cuda" or value.startswith("cuda:") else value
    if type(value) is _Device and value.type == "cuda":
        return _Device("ocl") if value.index is None else _Device("ocl", value.index)
    return value


def _converting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments converted."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = to_ocl(kwargs["device"])
        return function(*map(to_ocl, args), **kwargs)

    return wrapper


class _Method:
    """A method of a tensor with its arguments converted.

    Tensor subclasses look up what to do by the method, and get the one written in C: to them this
    is the same one.
    """

    def __init__(self, upstream: Callable[..., Any]) -> None:
        self._upstream = upstream
        functools.update_wrapper(self, upstream)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = to_ocl(kwargs["device"])
        return self._upstream(*map(to_ocl, args), **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._upstream

    def __hash__(self) -> int:
        return hash(self._upstream)


def _change_functions() -> None:
    for owner, name in list(unavailable.functions_with_a_device()):
        upstream = getattr(owner, name)
        if owner is torch.Tensor:
            setattr(owner, name, _Method(upstream))
            continue
        changed = _converting(upstream)
        # torch.jit.script goes by the object where it looks for ATen's functions.
        if builtin := torch.jit._builtins._find_builtin(upstream):
            torch.jit._builtins._register_builtin(changed, builtin)
        setattr(owner, name, changed)


def _change_types() -> None:
    torch.device = stand_in(_Device, _converting_type(_Device))
    for name in ("Event", "Generator", "Stream"):
        setattr(torch, name, unavailable.stand_in_for(getattr(torch, name), _converting_type))


def _converting_type(kind: type) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        for name in ("device", "type"):
            if name in kwargs:
                kwargs[name] = to_ocl(kwargs[name])
        return kind(*map(to_ocl, args), **kwargs)

    return make


def _change_tensors() -> None:
    for kind in (torch.Tensor, torch.nn.Module, torch.UntypedStorage, torch.TypedStorage):
        if hasattr(kind, "ocl"):
            kind.cuda = _Method(kind.ocl)
    torch.nn.utils.rnn.PackedSequence.cuda = _converting(torch.nn.utils.rnn.PackedSequence.ocl)
    on_cuda = torch.Tensor.is_cuda
    interface = torch.Tensor.__cuda_array_interface__

    def is_cuda(self: torch.Tensor) -> bool:
        return self.is_ocl or on_cuda.__get__(self)

    def __cuda_array_interface__(self: torch.Tensor) -> Any:
        if self.is_ocl:
            raise AttributeError("tensors on ocl have no addresses that CUDA could read")
        return interface.__get__(self)

    torch.Tensor.type = cuda_tensor_types.converting(torch.Tensor.type)
    torch.set_default_tensor_type = cuda_tensor_types.set_default_tensor_type(
        torch.set_default_tensor_type
    )
    torch.Tensor.is_cuda = property(is_cuda)
    torch.Tensor.__cuda_array_interface__ = property(__cuda_array_interface__)


def _change_amp() -> None:
    upstream = torch.amp.GradScaler.__init__

    @functools.wraps(upstream)
    def __init__(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        upstream(self, to_ocl(device), *args, **kwargs)

    torch.amp.GradScaler.__init__ = __init__
    for name in ("custom_fwd", "custom_bwd"):
        decorator = _converting_device_type(getattr(torch.amp, name))
        setattr(torch.amp, name, decorator)
        setattr(torch.amp.autocast_mode, name, decorator)


def _converting_device_type(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, device_type: str, **kwargs: Any) -> Any:
        return function(*args, device_type=to_ocl(device_type), **kwargs)

    return wrapper


def _change_loading() -> None:
    upstream = torch.load

    @functools.wraps(upstream)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = {
                place: to_ocl(device)
                for name, device in map_location.items()
                for place in (name, to_ocl(name))
            }
        return upstream(f, to_ocl(map_location), *args, **kwargs)

    def restore(storage: Any, location: str) -> Any:
        """Restores storages of files that were written on CUDA."""
        place = to_ocl(location)
        if place == location:
            return None
        return torch.serialization.default_restore_location(storage, place)

    torch.load = torch.serialization.load = load
    torch.serialization.register_package(0, lambda storage: None, restore)


def _change_torch_cuda() -> None:
    theirs, ours = torch.cuda, torch.ocl
    changed = {name: _of_cuda(name, getattr(ours, name)) for name in _shared_names()}
    changed["get_device_capability"] = _get_device_capability
    changed["get_device_properties"] = _get_device_properties
    changed["is_available"] = _is_available
    changed["CUDAGraph"] = ours.OclGraph
    changed |= cuda_tensor_types.types()
    for name, new in changed.items():
        upstream = getattr(theirs, name, None)
        setattr(theirs, name, new)
        for module in (theirs.memory, theirs.random, theirs.streams, theirs.graphs):
            if upstream is not None and vars(module).get(name) is upstream:
                setattr(module, name, new)
    for name in ours.nvtx.__all__:
        setattr(theirs.nvtx, name, getattr(ours.nvtx, name))


def _of_activity(activity: Any) -> Any:
    """An activity, or a dictionary from activities to filters."""
    if isinstance(activity, dict):
        return {_of_activity(key): filters for key, filters in activity.items()}
    names = torch.profiler.ProfilerActivity
    return names.PrivateUse1 if activity == names.CUDA else activity


def _change_profilers() -> None:
    """ProfilerActivity.CUDA and use_cuda mean the device's kernels."""
    kineto = torch.profiler.profiler._KinetoProfile
    made = kineto.__init__

    @functools.wraps(made)
    def of_activities(self: Any, *args: Any, activities: Any = None, **kwargs: Any) -> None:
        if activities is not None:
            activities = [_of_activity(a) for a in activities]
        made(self, *args, activities=activities, **kwargs)

    kineto.__init__ = of_activities
    older = torch.autograd.profiler.profile
    upstream = older.__init__

    @functools.wraps(upstream)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        called = inspect.signature(upstream).bind(self, *args, **kwargs).arguments
        called.pop("self")
        if called.pop("use_cuda", False) or called.get("use_device") == "cuda":
            called["use_device"] = "ocl"
        rest = called.pop("kwargs", {})
        upstream(self, **called, **rest)

    older.__init__ = __init__


def _change_dynamo(module: types.ModuleType) -> None:
    """A device's type is a constant to Dynamo: the one that the traced code sees when it is run."""
    kind = module.ConstantVariable
    upstream = kind.const_getattr

    @functools.wraps(upstream)
    def const_getattr(self: Any, tx: Any, name: str) -> Any:
        if name == "type" and type(self.value) is _Device and self.value.type == "ocl":
            return "ocl" if _is_of_torch(tx.f_globals.get("__name__", "")) else "cuda"
        return upstream(self, tx, name)

    kind.const_getattr = const_getattr


def _change_dynamos_text(module: types.ModuleType) -> None:
    """So is its text. Dynamo makes that in its own modules, where a device is `ocl`. The text is
    made once more, by code that counts as the program's."""
    kind = module.BuiltinVariable
    upstream = kind.call_function
    makers = (str, format, str.format, operator.mod, operator.imod)
    as_program = eval("lambda make, args, kwargs: make(*args, **kwargs)", {"__name__": "program"})

    @functools.wraps(upstream)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        made = upstream(self, tx, args, kwargs)
        if not any(self.fn is maker for maker in makers):
            return made
        if not all(v.is_python_constant() for v in (made, *args, *kwargs.values())):
            return made
        text = made.as_python_constant()
        if type(text) is not str or "ocl" not in text:
            return made
        if _is_of_torch(tx.f_globals.get("__name__", "")):
            return made
        values = [v.as_python_constant() for v in args]
        named = {name: v.as_python_constant() for name, v in kwargs.items()}
        return module.ConstantVariable.create(as_program(self.fn, values, named))

    kind.call_function = call_function


def _is_of_torch(module: str) -> bool:
    """As csrc/python/device_names.cpp has it."""
    return module == "torch" or module.startswith(("torch.", "torch_ocl"))


def _change_meshes(module: types.ModuleType) -> None:
    """Meshes of devices are made by the type's name."""
    upstream = module.init_device_mesh
    module.init_device_mesh = _converting_device_type_first(upstream)
    distributed = sys.modules["torch.distributed"]
    if getattr(distributed, "init_device_mesh", None) is upstream:
        distributed.init_device_mesh = module.init_device_mesh
    mesh = module.DeviceMesh
    made = mesh.__init__

    @functools.wraps(made)
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        made(self, to_ocl(device_type), *args, **kwargs)

    mesh.__init__ = __init__


def _converting_device_type_first(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return function(to_ocl(device_type), *args, **kwargs)

    return wrapper


def _shared_names() -> list[str]:
    ours = {*torch.ocl.__all__, "_is_in_bad_fork", "_lazy_init"}
    ours |= {name for name in vars(torch.ocl) if name.endswith("Storage")}
    shared = ours & set(vars(torch.cuda)) - {"default_generators"}
    return sorted(name for name in shared if callable(getattr(torch.ocl, name)))


def _of_cuda(name: str, ours: Any) -> Any:
    """A function or class of torch.ocl for torch.cuda."""
    if not isinstance(ours, type):
        return _converting(ours)
    takes_a_device = name in ("Stream", "StreamContext", "device", "device_of")
    return stand_in(ours, _converting_type(ours)) if takes_a_device else ours


def _is_available() -> bool:
    """As torch.ocl.is_available, but to torch.compile's own code there is no CUDA: it asks in order
    to call CUDA's parts of torch._C, which other builds lack."""
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if not caller.startswith("torch."):
        unused.cuda_was_asked = True
    return not caller.startswith("torch._inductor.") and torch.ocl.is_available()


def _get_device_capability(device: Any = None) -> tuple[int, int]:
    """(8, 0): what programs that ask CUDA for it do then is right here."""
    return _CAPABILITY


def _get_device_properties(device: Any = None) -> Any:
    """As torch.ocl.get_device_properties, and with CUDA's capability."""
    found = torch.ocl.get_device_properties(to_ocl(device))
    return _properties_class(type(found))(**vars(found))


@functools.cache
def _properties_class(base: type) -> type:
    values = {"major": _CAPABILITY[0], "minor": _CAPABILITY[1], "__doc__": inspect.getdoc(base)}
    if not hasattr(base, "is_integrated"):
        values["is_integrated"] = False
    return type(base.__name__, (base,), values)
