"""Passes over a graph before it is lowered: what is right on ocl, or takes fewer launches or less
memory."""

from __future__ import annotations

import torch

from torch_ocl.inductor.passes import bool_bytes, grouped_heads, shared_input


def run(graph: torch.fx.Graph) -> None:
    """Runs all of them on a functional graph of ATen's ops, in place."""
    bool_bytes.run(graph)
    grouped_heads.run(graph)
    shared_input.run(graph)
    graph.lint()
