"""A function of torch is replaced wherever it was imported by name."""

from __future__ import annotations

import sys
from typing import Any


def replace(name: str, upstream: Any, ours: Any) -> None:
    """A function of inductor's, in all modules that have imported it by name."""
    for module in list(sys.modules.values()):
        if module.__name__.startswith("torch._inductor") and vars(module).get(name) is upstream:
            setattr(module, name, ours)
