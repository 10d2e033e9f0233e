"""The status that functions at exit aren't told. This is a change of Python, for programs that are
given `ocl`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any


def listen(hear: Callable[[Any], None]) -> None:
    """Has a function hear the status before the program ends: functions at exit aren't told."""
    upstream = sys.exit

    @functools.wraps(upstream)
    def exit(status: Any = None, /) -> None:
        hear(status)
        upstream(status)

    sys.exit = exit
