"""The status that functions at exit aren't told. This is a change of Python, for programs that are
given `ocl`."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any


def listen(hear: Callable[[Any], None]) -> None:
    """Has a function hear the status before the program ends: functions at exit aren't told."""
    with contextlib.suppress(ImportError):  # a native part that can't be loaded
        from torch_ocl import _C

        _C.listen_for_exits(hear)
    if sys.version_info >= (3, 12):
        return
    # Before, Python makes no object of what sys.exit is given.
    upstream = sys.exit

    @functools.wraps(upstream)
    def exit(status: Any = None, /) -> None:
        hear(status)
        upstream(status)

    sys.exit = exit
