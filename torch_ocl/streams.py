"""Streams and events: torch.Stream and torch.Event, with ``ocl`` as default device."""

from typing import Any

import torch

from torch_ocl import _C
from torch_ocl._utils import DeviceLike, existing_device_index


class Stream(torch.Stream):
    """An in-order queue of work on a device.

    Args:
        device: default the current one.
        priority: below 0 for high priority, where the driver knows priorities.

    A device has 32 streams of each priority; they are handed out round robin.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **kwargs: Any) -> "Stream":
        if kwargs:  # stream_id, device_index, device_type: a handle of an existing stream
            return super().__new__(cls, priority=priority, **kwargs)
        index = existing_device_index(device)
        return super().__new__(cls, torch.device("ocl", index), priority=priority)

    def __repr__(self) -> str:
        return f"<torch.ocl.Stream device={self.device} id={self.stream_id}>"


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "ocl"


class Event(torch.Event, metaclass=_EventType):
    """A point in a stream's work, to wait for, or to measure the time from.

    Args:
        enable_timing: whether elapsed_time() may be asked for, which gives milliseconds.
        blocking: as torch.cuda.Event has it; waits are the same with it and without.
        interprocess: must be False, else RuntimeError is raised.

    Makes a plain torch.Event: some of torch's methods refuse events of a derived class.
    """

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        if interprocess:
            raise RuntimeError("events of ocl devices can't be shared between processes")
        return torch.Event("ocl", enable_timing=enable_timing, blocking=blocking)


def _wrap(ids: tuple[int, int, int]) -> Stream:
    stream_id, device_index, device_type = ids
    return Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    """The calling thread's current stream on a device (default: the current one)."""
    return _wrap(_C.current_stream(existing_device_index(device)))


def default_stream(device: DeviceLike = None) -> Stream:
    """The default stream of a device (default: the current one)."""
    return _wrap(_C.default_stream(existing_device_index(device)))


def _check_stream(stream: torch.Stream) -> None:
    if not isinstance(stream, torch.Stream):
        raise TypeError(f"expected a torch.Stream, got {type(stream).__name__}")
    if stream.device.type != "ocl":
        raise ValueError(f"expected a stream of an ocl device, got one of {stream.device}")


def set_stream(stream: torch.Stream | None) -> None:
    """Makes a stream and its device current; None does nothing.

    Raises TypeError for what is no stream, ValueError for a stream of another kind of device.
    """
    if stream is None:
        return
    _check_stream(stream)
    _C.set_stream(stream.stream_id, stream.device_index)
    _C.set_device(stream.device_index)


class StreamContext:
    """Context manager that makes a stream and its device current; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        if stream is not None:
            _check_stream(stream)
        self.stream = stream
        self._previous_device = -1
        self._previous: tuple[int, int, int] | None = None

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            self._previous_device = _C.exchange_device(self.stream.device_index)
            self._previous = _C.set_stream(self.stream.stream_id, self.stream.device_index)
        return self.stream

    def __exit__(self, *exc_info: object) -> None:
        if self._previous is not None:
            stream_id, device_index, _ = self._previous
            _C.set_stream(stream_id, device_index)
            _C.set_device(self._previous_device)
            self._previous = None


def stream(stream: torch.Stream | None) -> StreamContext:
    """A context in which ops on the stream's device run on that stream."""
    return StreamContext(stream)


__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]
