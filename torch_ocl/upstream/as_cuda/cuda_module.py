"""torch.cuda, where "cuda" is `ocl`: what torch.ocl has takes the place of upstream's.

Functions without a counterpart raise NotImplementedError and say why, instead of what comes of a
torch that was built without CUDA.
"""

import ctypes
import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from torch_ocl import _C
from torch_ocl.api import names
from torch_ocl.api.device_arguments import begin_use
from torch_ocl.notices import unused
from torch_ocl.upstream.as_cuda import cuda_runtime
from torch_ocl.upstream.as_cuda import graphs as cuda_graphs
from torch_ocl.upstream.as_cuda import tensor_types as cuda_tensor_types
from torch_ocl.upstream.as_cuda.converting import converting, put, to_ocl

#: CUDA's version for a device that has bfloat16 and the kernels for weights of 4 bits. Programs ask
#: for it to choose a dtype.
_CAPABILITY = (8, 0)
#: Their functions are those of torch.ocl's parts of the same name.
_PARTS = ("memory", "random", "streams", "graphs", "nvtx", "tunable")
#: Upstream's stay, since what they call is there.
_KEPT = {
    *("cudart", "check_error", "cudaStatus", "CudaError", "profiler.start", "profiler.stop"),
    *("amp.amp_definitely_not_available", "amp.common", "comm", "nccl.is_available"),
}
#: Private functions that programs call, each with the name whose reason it shares.
_PRIVATE = {
    "_compile_kernel": "jiterator",
    "jiterator._create_jit_fn": "jiterator",
    "jiterator._create_multi_output_jit_fn": "jiterator",
    "_sleep": "",
}
#: Methods of torch's classes, each with the name of its argument in torch.cuda.
_WITHOUT_NAMES = (
    (torch.Event, "elapsed_time", "end_event"),
    (torch.Stream, "wait_event", "event"),
    (torch.Stream, "wait_stream", "stream"),
)
_NO_CLOCK = "OpenCL's kernels have no clock"


def install() -> None:
    """Changes torch.cuda and its parts."""
    theirs, ours = torch.cuda, torch.ocl
    changed = {name: _of_cuda(getattr(ours, name)) for name in _shared_names()}
    changed["can_device_access_peer"] = _can_device_access_peer
    changed["get_device_capability"] = _get_device_capability
    changed["get_device_name"] = _get_device_name
    changed["get_device_properties"] = _get_device_properties
    changed["is_available"] = _is_available
    changed["CUDAGraph"] = cuda_graphs.CUDAGraph
    changed["graph"] = cuda_graphs.graph
    changed["_get_device_index"] = _get_device_index
    changed["_lazy_call"] = _lazy_call
    changed["cudart"] = _cudart
    changed |= cuda_tensor_types.types()
    vars(theirs.sparse).update(cuda_tensor_types.sparse_types())
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("torch.cuda.")]
    for name, new in changed.items():
        upstream = getattr(theirs, name, None)
        if upstream is None or name.endswith("Storage"):  # a storage's module tells its device
            setattr(theirs, name, new)
        else:
            put(theirs, name, new)
        for module in modules:
            if upstream is not None and vars(module).get(name) is upstream:
                setattr(module, name, new)
    sys.modules["torch.nn.parallel.parallel_apply"]._get_device_index = _get_device_index
    for name in _PARTS:
        _change_part(getattr(theirs, name), getattr(ours, name, None))
    _refuse_the_rest()
    _change_streams()
    theirs._cudart = cuda_runtime.module()
    theirs.__class__ = _CudaModule


def _shared_names() -> list[str]:
    ours = {*torch.ocl.__all__, "_is_in_bad_fork", "_lazy_init"}
    ours |= {name for name in vars(torch.ocl) if name.endswith("Storage")}
    shared = ours & set(vars(torch.cuda)) - {"default_generators", "profiler"}
    return sorted(name for name in shared if callable(getattr(torch.ocl, name)))


def _of_cuda(ours: Any) -> Any:
    """A function or class of torch.ocl for torch.cuda."""
    return ours if isinstance(ours, type) else converting(ours)


def _change_part(theirs: types.ModuleType, ours: types.ModuleType | None) -> None:
    """Private functions too: programs call torch.cuda.memory._record_memory_history()."""
    for name, value in list(vars(theirs).items()):
        function = getattr(ours, name, None)
        if not (inspect.isfunction(value) and inspect.isfunction(function)):
            continue
        if inspect.unwrap(value).__globals__["__name__"].startswith("torch.cuda"):
            put(theirs, name, converting(function))


def _refuse_the_rest() -> None:
    reasons = {
        name.removeprefix("torch.cuda."): why
        for name, why in names.NOT_APPLICABLE.items()
        if name.startswith("torch.cuda.")
    }
    for name, why in reasons.items():
        if name in _KEPT:
            continue
        owner, _, last = name.rpartition(".")
        module = getattr(torch.cuda, owner, None) if owner else torch.cuda
        value = getattr(module, last, None)
        if isinstance(value, types.ModuleType):
            for part, function in list(vars(value).items()):
                is_its_own = getattr(function, "__module__", "") == value.__name__
                if is_its_own and not part.startswith("_") and f"{name}.{part}" not in _KEPT:
                    _refuse(value, part, f"{name}.{part}", why)
        elif value is not None:
            _refuse(module, last, name, why)
    for name, same in _PRIVATE.items():
        owner, _, last = name.rpartition(".")
        module = getattr(torch.cuda, owner) if owner else torch.cuda
        if hasattr(module, last):
            _refuse(module, last, name, reasons[same] if same else _NO_CLOCK)


def _refuse(owner: Any, name: str, full_name: str, why: str) -> None:
    """Has a function, or a class when an object of it is made, say why it isn't there."""
    upstream = getattr(owner, name)
    text = f"torch.cuda.{full_name} has no counterpart on ocl. {why.rstrip('.')}."

    is_class = type(upstream) is type

    @functools.wraps(upstream.__init__ if is_class else upstream)
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(text)

    if is_class:
        upstream.__init__ = refuse
    elif inspect.isfunction(upstream) and upstream.__globals__ is not globals():
        put(owner, name, refuse)


class _CudaModule(type(torch.cuda)):  # type: ignore[misc]
    """torch.cuda with what changes while a program runs."""

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        """One for each device."""
        return torch.ocl.default_generators

    @property
    def _initialized(self) -> bool:
        return torch.ocl.is_initialized()


def _change_streams() -> None:
    """A stream's handle is its command queue, which get_stream_from_external() takes. An event has
    one once it was recorded, and 0 before."""
    stream: Any = torch.ocl.Stream
    stream.cuda_stream = property(lambda self: self.native_handle)
    stream._as_parameter_ = property(lambda self: ctypes.c_void_p(self.native_handle))
    handles = {
        "cuda_event": lambda self: self.event_id,
        "_as_parameter_": lambda self: ctypes.c_void_p(self.event_id),
    }
    for name, handle in handles.items():
        _C.add_attribute(torch.Event, name, property(handle))
    for kind, name, parameter in _WITHOUT_NAMES:
        _C.add_attribute(kind, name, _taking(getattr(kind, name), parameter))


def _taking(upstream: Any, parameter: str) -> Any:
    """A method with a name for its argument, which C code lacks that takes one alone."""

    @functools.wraps(upstream)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if parameter in kwargs:
            args = (*args, kwargs.pop(parameter))
        return upstream(self, *args, **kwargs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", parameter)]
    method.__signature__ = inspect.Signature(parameters)
    method.__module__ = "torch"
    return method


def _cudart() -> types.ModuleType:
    """CUDA's runtime library, as far as programs call it. Initialises OpenCL."""
    torch.ocl.init()
    return torch.cuda._cudart


def _lazy_call(callable: Callable[[], Any], **kwargs: Any) -> None:
    """Calls it now. Upstream waits for CUDA to be initialised, and nobody would tell it here."""
    callable()


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """As upstream's: the index that an int, a name, a device or a context of torch.cuda.device has.

    No index means the current device if `optional`, and ValueError is raised if not. It is raised
    for other types of devices, too; -1 means the CPU if `allow_cpu`.
    """
    if isinstance(device, torch.cuda.device):
        return device.idx
    if isinstance(device, str):
        device = torch.device(device)
    device = to_ocl(device)
    if isinstance(device, torch.device):
        known = ("ocl", "cpu") if allow_cpu else ("ocl",)
        if device.type not in known:
            wanted = "cuda or cpu" if allow_cpu else "cuda"
            raise ValueError(f"Expected a {wanted} device, but got: {device}")
    return torch._utils._get_device_index(device, optional, allow_cpu)


def _is_available() -> bool:
    """As torch.ocl.is_available, but to torch.compile's own code there is no CUDA: it asks in order
    to call CUDA's parts of torch._C, which other builds lack. torch._utils asks for the type of the
    device, which is `ocl` to torch."""
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if not caller.startswith("torch."):
        unused.cuda_was_asked = True
    if caller == "torch._utils" or caller.startswith("torch._inductor."):
        return False
    return torch.ocl.is_available()


def _existing_index(device: Any, what: str = "device id", optional: bool = True) -> int:
    """The index of a device that is there; AssertionError if it isn't, as upstream's. Initialises
    OpenCL."""
    begin_use()
    index = _get_device_index(device, optional)
    if not 0 <= index < torch.ocl.device_count():
        raise AssertionError(f"Invalid {what}")
    return index


def _can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """As torch.ocl.can_device_access_peer."""
    index = _existing_index(device)
    return index == _existing_index(peer_device, "peer device id", optional=False)


def _get_device_capability(device: Any = None) -> tuple[int, int]:
    """(8, 0): what programs that ask CUDA for it do then is right here."""
    found = _get_device_properties(device)
    return found.major, found.minor


def _get_device_name(device: Any = None) -> str:
    """The device's name, as its driver gives it."""
    return _get_device_properties(device).name


def _get_device_properties(device: Any = None) -> Any:
    """As torch.ocl.get_device_properties, and with CUDA's capability."""
    found = torch.ocl.get_device_properties(_existing_index(device))
    return _properties_class(type(found))(**vars(found))


@functools.cache
def _properties_class(base: type) -> type:
    values = {"major": _CAPABILITY[0], "minor": _CAPABILITY[1], "__doc__": inspect.getdoc(base)}
    if not hasattr(base, "is_integrated"):
        values["is_integrated"] = False
    return type(base.__name__, (base,), values)
