"""torch.amp.GradScaler() scales in programs that use `ocl`.

Its default device is "cuda"; where there is none upstream warns and disables it, and a training in
float16 goes on unscaled. Here a scaler of no device waits: it is enabled as soon as the process
uses `ocl`, and disabled, with upstream's warning, once it is to scale tensors of another device.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

GradScaler = torch.amp.GradScaler
# Beside upstream's attribute, which is False meanwhile: a scaler that is pickled and loaded where
# this package is missing is disabled there.
_UNDECIDED = "_undecided_for_ocl"


def install() -> None:
    """Changes torch.amp.GradScaler. One that names its device stays as it is."""
    GradScaler._enabled = property(_is_enabled, _set_enabled)
    GradScaler.__init__ = _undecided_without_a_device(GradScaler.__init__)
    GradScaler.scale = _deciding(GradScaler.scale)
    GradScaler.load_state_dict = _also_while_undecided(GradScaler.load_state_dict)
    GradScaler.unscale_ = _without_double_precision(GradScaler.unscale_)


def _is_undecided(scaler: GradScaler) -> bool:
    return scaler.__dict__.get(_UNDECIDED, False)


def _is_enabled(scaler: GradScaler) -> bool:
    """The attribute that all of upstream's methods ask. The answer of an undecided one may change
    until it has something to scale."""
    return torch.ocl.is_initialized() if _is_undecided(scaler) else scaler.__dict__["_enabled"]


def _set_enabled(scaler: GradScaler, enabled: bool) -> None:
    scaler.__dict__["_enabled"] = enabled
    scaler.__dict__.pop(_UNDECIDED, None)


def _enable(scaler: GradScaler) -> None:
    scaler._enabled = True
    scaler._device = "ocl"


def _undecided_without_a_device(upstream: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(upstream)
    def __init__(self: GradScaler, *args: Any, **kwargs: Any) -> None:
        if args or "device" in kwargs or torch.cuda.is_available():
            upstream(self, *args, **kwargs)
            return
        upstream(self, "ocl", **kwargs)
        self._device = "cuda"
        if self._enabled:
            self._enabled = False
            self.__dict__[_UNDECIDED] = True

    return __init__


def _deciding(upstream: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(upstream)
    def scale(self: GradScaler, outputs: Any) -> Any:
        if _is_undecided(self):
            # An iterator can be read only once: for one it is enough that the process uses `ocl`.
            tensors = [x for x in _pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]
            on_device = any(tensor.device.type == "ocl" for tensor in tensors)
            if on_device or (not tensors and torch.ocl.is_initialized()):
                _enable(self)
            elif tensors:
                self._enabled = False
                warnings.warn(
                    "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                    stacklevel=2,
                )
        return upstream(self, outputs)

    return scale


def _also_while_undecided(upstream: Callable[..., None]) -> Callable[..., None]:
    """A training that goes on may load the state before anything is on the device."""

    @functools.wraps(upstream)
    def load_state_dict(self: GradScaler, state_dict: dict[str, Any]) -> None:
        undecided = _is_undecided(self)
        if undecided and state_dict:
            self._enabled = True
        try:
            upstream(self, state_dict)
        finally:
            if undecided:
                self._enabled = False
                self.__dict__[_UNDECIDED] = True

    return load_state_dict


class _SingleScale(torch.Tensor):
    def double(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


def _lacks_double(device: torch.device) -> bool:
    return device.type == "ocl" and not torch.ocl.get_device_properties(device).has_fp64


def _without_double_precision(upstream: Callable[..., None]) -> Callable[..., None]:
    """Upstream takes the scale's reciprocal in double. In float that of a power of two is exact, as
    scales are unless other factors were asked for."""

    @functools.wraps(upstream)
    def unscale_(self: GradScaler, optimizer: torch.optim.Optimizer) -> None:
        scale = self._scale if self._enabled else None
        if scale is not None and _lacks_double(scale.device):
            self._scale = scale.as_subclass(_SingleScale)
        try:
            upstream(self, optimizer)
        finally:
            if scale is not None:
                self._scale = scale

    return unscale_
