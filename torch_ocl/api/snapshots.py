"""Snapshots of memory: what the allocator holds, what it did, and which code asked for it.

They have torch.cuda's format: https://pytorch.org/memory_viz shows a file of _dump_snapshot(), and
torch.cuda._memory_viz has tools for the terminal. The names with an underscore are torch.cuda's.
"""

import pickle
import sys
from collections.abc import Callable
from typing import Any

from torch_ocl import _C
from torch_ocl.api.device_arguments import DeviceLike

__all__ = ["memory_snapshot"]

_CONTEXTS = {None: 0, "state": 1, "alloc": 2, "all": 3}


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """The segments of all devices, each with its blocks, in torch.cuda.memory_snapshot()'s format.

    Args:
        mempool_id: of a MemPool: only its segments.
        include_traces: makes no difference to segments.
    """
    segments = _C.memory_snapshot(with_traces=False)["segments"]
    if mempool_id is None or tuple(mempool_id) == (0, 0):
        return segments
    return [each for each in segments if each["segment_pool_id"] == tuple(mempool_id)]


def _record_memory_history(
    enabled: str | bool | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """Records who allocates and frees memory, on all devices, for _snapshot().

    Args:
        enabled: "all" keeps a history of allocations and frees, "state" who allocated the memory
            that is in use. None ends it, and drops what was kept.
        context: which stacks of calls are kept: None, "state" (of memory in use), "alloc" (of past
            allocations, too) or "all" (of frees, too).
        stacks: "python", or "all" with C++ frames, which name the op. Those take longer.
        max_entries: how many events a device's history has; the oldest go.
        device: makes no difference.
        clear_history: whether to forget earlier events.
        compile_context: makes no difference.
        global_record_annotations: makes no difference.
        skip_actions: events that aren't kept: "alloc", "free_requested", "free_completed",
            "segment_alloc", "segment_free", "oom", "snapshot".

    Raises ValueError for other words.
    """
    if isinstance(enabled, bool):  # torch.cuda's old form
        enabled = "all" if enabled else None
    for name, value, allowed in (
        ("enabled", enabled, (None, "state", "all")),
        ("context", context, tuple(_CONTEXTS)),
        ("stacks", stacks, ("python", "all")),
    ):
        if value not in allowed:
            words = ", ".join(map(repr, allowed))
            raise ValueError(f"expected {name} to be one of {words}, got {value!r}")
    _C.record_memory_history(
        enabled is not None,
        _CONTEXTS[context],
        stacks == "all",
        max_entries if enabled == "all" else 0,
        clear_history,
        list(skip_actions or ()),
    )


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Segments and, while _record_memory_history() is on, the events of all devices.

    Args:
        device: makes no difference.
        augment_with_fx_traces: whether frames of code that torch.fx generated name the source.
    """
    snapshot = _C.memory_snapshot(with_traces=True)
    if augment_with_fx_traces:
        from torch._utils import _augment_memory_snapshot_stack_traces

        snapshot = _augment_memory_snapshot_stack_traces(snapshot)
    return snapshot


def _dump_snapshot(
    filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Writes _snapshot() into a file, for https://pytorch.org/memory_viz."""
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _set_memory_metadata(metadata: str) -> None:
    """A string that the events from now on carry, as "user_metadata"; empty for none."""
    _C.set_memory_metadata(metadata)


def _get_memory_metadata() -> str:
    """The string that _set_memory_metadata() was given last."""
    return _C.memory_metadata()


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """The frames that allocated the memory which begins at an address, None if they aren't known.

    The address is that of tensor.untyped_storage().data_ptr().
    """
    return _C.allocation_traceback(data_ptr)


def _attach_out_of_memory_observer(observer: Callable[[int, int, int, int], Any]) -> None:
    """Calls observer(device, bytes asked for, bytes of the device, bytes that are free) before each
    torch.OutOfMemoryError, as long as the process lives. Its own errors are printed."""
    _C.attach_out_of_memory_observer(observer)


def _save_segment_usage(filename: str = "output.svg", snapshot: dict | None = None) -> None:
    """A flame graph of the segments, by torch.cuda._memory_viz, which downloads a script for it."""
    from torch.cuda import _memory_viz

    with open(filename, "w") as file:
        file.write(_memory_viz.segments(snapshot or _snapshot()))


def _save_memory_usage(filename: str = "output.svg", snapshot: dict | None = None) -> None:
    """A flame graph of what is in use, by torch.cuda._memory_viz, which downloads a script for
    it."""
    from torch.cuda import _memory_viz

    with open(filename, "w") as file:
        file.write(_memory_viz.memory(snapshot or _snapshot()))
