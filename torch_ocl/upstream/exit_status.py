"""The status that functions at exit aren't told, and ends that skip them. These are changes of
Python, for programs that are given `ocl`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn


def listen(hear: Callable[[Any], None]) -> None:
    """Has a function hear the status before the program ends: functions at exit aren't told."""
    upstream = sys.exit

    @functools.wraps(upstream)
    def exit(status: Any = None, /) -> None:
        hear(status)
        upstream(status)

    sys.exit = exit


def before_os_exit(call: Callable[[], None]) -> None:
    """Has a function be called before os._exit() ends the process, which skips those at exit."""
    upstream = os._exit

    @functools.wraps(upstream)
    def _exit(status: int) -> NoReturn:
        call()
        upstream(status)

    os._exit = _exit
