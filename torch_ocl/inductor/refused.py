"""Kernels that a driver does not build: what the error says, and how their ops run all the same."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

# How often which op was left to eager kernels, by its name.
_fallbacks: Counter[str] = Counter()


class RefusedKernel(RuntimeError):
    """A kernel that does not build; `ops` are those of the graph that it computes."""

    def __init__(self, message: str, ops: Iterable[Any]) -> None:
        super().__init__(message)
        self.ops = tuple(ops)


def runs_eagerly() -> bool:
    """Whether the ops of refused kernels run eagerly: TORCH_OCL_INDUCTOR_FALLBACK=1."""
    return os.environ.get("TORCH_OCL_INDUCTOR_FALLBACK") == "1"


def fallback_counts() -> dict[str, int]:
    """How often an op of a compiled graph was left to its eager kernel, since the driver refused a
    generated one."""
    return dict(_fallbacks)


def count_fallback(op: Any) -> None:
    """An op of a graph is left to its eager kernel."""
    _fallbacks[str(op)] += 1


def origins(node_schedule: Iterable[Any]) -> list[torch.fx.Node]:
    """The graph's nodes that a kernel computes, in order."""
    found: dict[torch.fx.Node, None] = {}
    for scheduled in node_schedule:
        node = getattr(scheduled, "node", None)
        if node is not None:
            found.update(dict.fromkeys(node.get_origins()))
    return [n for n in found if n.op == "call_function"]


def describe(nodes: Iterable[torch.fx.Node]) -> str:
    """The nodes' ops, each with the line of the model that it comes from."""
    lines = []
    for node in nodes:
        trace = [t.strip() for t in (node.meta.get("stack_trace") or "").splitlines()]
        calls = [i for i, text in enumerate(trace[:-1]) if text.startswith("File ")]
        place = f": {trace[calls[-1]]}: {trace[calls[-1] + 1]}" if calls else ""
        lines.append(f"{node.target}{place}")
    return "\n".join(dict.fromkeys(lines))


def explain(name: str, origin: str, source: str, error: Exception) -> str:
    """The text that is raised in the place of the driver's error. Keeps the source in a file."""
    from torch._inductor.runtime.runtime_utils import cache_dir

    folder = Path(cache_dir()) / "ocl_refused"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.cl"
    file.write_text(source)
    return (
        f"torch.compile: the driver refuses the generated kernel {name}, which computes\n"
        f"{origin}\nIts source is kept in {file}. TORCH_OCL_INDUCTOR_FALLBACK=1 runs these ops "
        f"eagerly.\n{error}"
    )
