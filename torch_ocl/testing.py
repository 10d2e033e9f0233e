"""For tests of kernels: put one in front of those an engine would choose, and see which ran.

::

    with torch_ocl.testing.force(gemm="direct"), torch_ocl.testing.dispatches() as lines:
        a @ b
    assert lines == ["gemm 1x64x64x64 f32,f32->f32: direct runs"]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import _C

__all__ = ["dispatches", "engines", "force"]


def engines() -> dict[str, list[str]]:
    """The engines that choose among kernels, each with the names of its implementations."""
    return _C.engines()


@contextmanager
def force(**implementations: str) -> Iterator[None]:
    """Has engines try one implementation before all others.

    It runs wherever it takes the problem; where it refuses, the engine chooses as ever. Holds for
    all threads, since backward passes run on threads of their own. ``TORCH_OCL_<ENGINE>=name`` does
    the same for a whole program.

    Args:
        **implementations: an engine's name, and that of one of its implementations
            (:func:`engines`); ``""`` leaves the choice to the engine.

    Raises:
        TypeError: a name is no string.
        ValueError: there is no such engine or implementation.
    """
    before: dict[str, str] = {}
    try:
        for engine, name in implementations.items():
            if not isinstance(name, str):
                raise TypeError(f"{engine}: the name of an implementation, or '', got {name!r}")
            before[engine] = _C.force_implementation(engine, name)
        yield
    finally:
        for engine, name in before.items():
            _C.force_implementation(engine, name)


@contextmanager
def dispatches() -> Iterator[list[str]]:
    """Records what ``TORCH_OCL_VERBOSE=dispatch`` prints.

    Yields a list, empty until the block ends. A line is the problem, a colon, the implementation's
    name and ``runs``, or ``refuses:`` and the reason. Blocks don't nest.
    """
    lines: list[str] = []
    _C.take_recorded_dispatch()
    _C.record_dispatch(True)
    try:
        yield lines
    finally:
        _C.record_dispatch(False)
        lines += _C.take_recorded_dispatch()
