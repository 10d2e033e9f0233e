"""For tests of kernels: put one in front of those an engine would choose, and see which ran.

::

    with torch_ocl.testing.force(gemm="direct"), torch_ocl.testing.dispatches() as lines:
        a @ b
    assert lines == ["gemm 1x64x64x64 f32,f32->f32: direct runs"]
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from . import _C

__all__ = ["dispatches", "engines", "force"]

_lock = threading.Lock()
# By engine: what was forced before all blocks, and what blocks under way force, in their order.
_before: dict[str, str] = {}
_forced: dict[str, list[tuple[object, str]]] = {}
# The lists of the blocks that record.
_recording: list[list[str]] = []


def engines() -> dict[str, list[str]]:
    """The engines that choose among kernels, each with the names of its implementations."""
    return _C.engines()


@contextmanager
def force(**implementations: str) -> Iterator[None]:
    """Has engines try one implementation before all others.

    It runs wherever it takes the problem; where it refuses, the engine chooses as ever. Holds for
    all threads, since backward passes run on threads of their own. Where several
    blocks are under way, the one entered last counts. ``TORCH_OCL_<ENGINE>=name`` does the same for
    a whole program.

    Args:
        **implementations: an engine's name, and that of one of its implementations
            (:func:`engines`); ``""`` leaves the choice to the engine.

    Raises:
        TypeError: a name is no string.
        ValueError: there is no such engine or implementation.
    """
    block = object()
    try:
        for engine, name in implementations.items():
            if not isinstance(name, str):
                raise TypeError(f"{engine}: the name of an implementation, or '', got {name!r}")
            with _lock:
                before = _C.force_implementation(engine, name)
                if not _forced.setdefault(engine, []):
                    _before[engine] = before
                _forced[engine].append((block, name))
        yield
    finally:
        for engine in implementations:
            _leave(engine, block)


def _leave(engine: str, block: object) -> None:
    """Takes back what a block forces. Blocks of other threads may have begun since."""
    with _lock:
        entered = _forced.get(engine, [])
        entered[:] = [entry for entry in entered if entry[0] is not block]
        if engine in _before:
            _C.force_implementation(engine, entered[-1][1] if entered else _before[engine])
        if not entered:
            _forced.pop(engine, None)
            _before.pop(engine, None)


@contextmanager
def dispatches() -> Iterator[list[str]]:
    """Records what ``TORCH_OCL_VERBOSE=dispatch`` prints.

    Yields a list, empty until the block ends. A line is the problem, a colon, the implementation's
    name and ``runs``, or ``refuses:`` and the reason. A convolution or a product whose
    implementation chooses once more is one block: the lines of inner choices are indented, and
    those of copies follow behind it. Lines of all threads are recorded, in each of the blocks under
    way.
    """
    lines: list[str] = []
    with _lock:
        _share_recorded()
        _recording.append(lines)
        _C.record_dispatch(True)
    gathered = lines
    lines = []
    try:
        yield lines
    finally:
        with _lock:
            _share_recorded()
            # By identity: lists of the same lines are equal.
            _recording[:] = [other for other in _recording if other is not gathered]
            _C.record_dispatch(bool(_recording))
        lines += gathered


def _share_recorded() -> None:
    new = _C.take_recorded_dispatch()
    for lines in _recording:
        lines += new
