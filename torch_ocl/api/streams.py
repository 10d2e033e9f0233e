"""Streams and events: torch.Stream and torch.Event, with ``ocl`` as default device."""

from typing import Any

import torch

from torch_ocl import _C
from torch_ocl.api.device_arguments import DeviceLike, begin_use, existing_device_index


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

    @property
    def priority(self) -> int:
        """-1 for high priority, else 0. That of ExternalStream is not known, and 0."""
        return _C.stream_priority(self.stream_id, self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority: (0, -1)."""
        return 0, -1


class ExternalStream(Stream):
    """The stream of a command queue that other code made, so that ops run on it in its order.

    Args:
        stream_ptr: a cl_command_queue as a number (PyOpenCL: queue.int_ptr). It is retained for as
            long as the process lives.
        device: whose it is, default the current one.

    A queue always gives the same stream. A device can have 191. Events with `enable_timing` need a
    queue with profiling. Raises ValueError for a queue out of order, and for one of another context
    than that of torch.ocl.pyopencl_queue().
    """

    def __new__(cls, stream_ptr: int, device: DeviceLike = None) -> "ExternalStream":
        index = existing_device_index(device)
        stream_id, device_index, device_type = _C.external_stream(index, stream_ptr)
        return super().__new__(
            cls, stream_id=stream_id, device_index=device_index, device_type=device_type
        )


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> Stream:
    """The stream of a command queue that other code made, as ExternalStream."""
    return ExternalStream(data_ptr, device)


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "ocl"


class Event(torch.Event, metaclass=_EventType):
    """A point in a stream's work, to wait for, or to measure the time from.

    Args:
        enable_timing: whether elapsed_time() may be asked for, which gives milliseconds.
        blocking: as torch.cuda.Event has it; waits are the same with it and without.
        interprocess: must be False, else RuntimeError is raised.
        external: as torch.cuda.Event has it, for captures; it makes no difference.

    Makes a plain torch.Event: some of torch's methods refuse events of a derived class.
    """

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> torch.Event:
        if interprocess:
            raise RuntimeError("events of ocl devices can't be shared between processes")
        return torch.Event("ocl", enable_timing=enable_timing, blocking=blocking)


def _wrap(ids: tuple[int, int, int]) -> Stream:
    stream_id, device_index, device_type = ids
    return Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    """The calling thread's current stream on a device (default: the current one)."""
    begin_use()
    return _wrap(_C.current_stream(existing_device_index(device)))


def default_stream(device: DeviceLike = None) -> Stream:
    """The default stream of a device (default: the current one)."""
    begin_use()
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


_SYNC_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Sets what an op does that waits for the device: nothing ("default", 0), a warning ("warn", 1)
    or a RuntimeError ("error", 2). Such are .item(), .cpu() and masks, and waits for a stream.

    Raises RuntimeError for other modes.
    """
    begin_use()
    mode = _SYNC_DEBUG_MODES.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if mode not in _SYNC_DEBUG_MODES.values():
        raise RuntimeError(
            "invalid value of debug_mode, expected one of `default`, `warn`, `error`, 0, 1, 2"
        )
    _C.set_sync_debug_mode(mode)


def get_sync_debug_mode() -> int:
    """The number that set_sync_debug_mode() set, 0 at first."""
    begin_use()
    return _C.sync_debug_mode()


__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
]
