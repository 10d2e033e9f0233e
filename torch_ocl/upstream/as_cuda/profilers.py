"""torch.profiler and torch.autograd.profiler, where "cuda" is `ocl`.

ProfilerActivity.CUDA and use_cuda mean the device's kernels. What is recorded says "cuda", too.
"""

import functools
import inspect
import sys
from typing import Any

import torch
from torch.autograd import profiler_util

from torch_ocl.upstream.as_cuda.converting import is_of_torch, put


def install() -> None:
    """Changes both profilers and their events."""
    _activities()
    _devices_of_old()
    _events()
    _ranges()


def _activities() -> None:
    kineto = torch.profiler.profiler._KinetoProfile
    upstream = kineto.__init__

    @functools.wraps(upstream)
    def __init__(self: Any, *args: Any, activities: Any = None, **kwargs: Any) -> None:
        if activities is not None:
            activities = [_of_activity(a) for a in activities]
        upstream(self, *args, activities=activities, **kwargs)

    kineto.__init__ = __init__
    supported = torch.profiler.supported_activities
    names = torch.profiler.ProfilerActivity

    @functools.wraps(supported)
    def supported_activities() -> set[Any]:
        # Profilers without activities ask, too.
        if is_of_torch(sys._getframe(1).f_globals.get("__name__", "")):
            return supported()
        return {names.CUDA if a == names.PrivateUse1 else a for a in supported()}

    put(torch.profiler, "supported_activities", supported_activities)


def _of_activity(activity: Any) -> Any:
    """An activity, or a dictionary from activities to filters."""
    if isinstance(activity, dict):
        return {_of_activity(key): filters for key, filters in activity.items()}
    names = torch.profiler.ProfilerActivity
    return names.PrivateUse1 if activity == names.CUDA else activity


def _devices_of_old() -> None:
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


def _events() -> None:
    """Programs look for kernels by DeviceType.CUDA, and for columns by CUDA's name."""
    kind = profiler_util.FunctionEvent
    types = torch.autograd.DeviceType
    upstream = kind.__init__

    @functools.wraps(upstream)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        upstream(self, *args, **kwargs)
        if self.device_type == types.PrivateUse1:
            self.device_type = types.CUDA
        if self.use_device == "ocl":
            self.use_device = "cuda"

    kind.__init__ = __init__


def _ranges() -> None:
    """emit_nvtx() tells NVIDIA's tools of ops. Without one it does nothing, as on CUDA."""
    kind: Any = torch.autograd.profiler.emit_nvtx
    kind.__enter__ = lambda self: self
    kind.__exit__ = lambda self, *error: False
