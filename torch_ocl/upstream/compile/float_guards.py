"""Graphs from AOTAutograd's cache are only taken for the floats that they were compiled for.

Dynamo hands a changing Python float to the graph as a tensor, whose item is a symbol. Where an op
can't take the symbol, its value becomes a constant, with a guard on the symbol. The key of
AOTAutogradCache is made before that. Its guards are those on sizes: get_pruned_guards() in
torch/fx/experimental/symbolic_shapes.py drops what names another symbol. So the next float finds
the graph of the last one. PyTorch 2.14 has Dynamo start over for some of these ops
(torch/fx/passes/_tensorify_python_scalars.py), but not where the guard comes from a fake tensor.
Here the symbols of floats are among those that the cache guards.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch

# Whether the graph that the cache is asked for has tensors on ocl.
_on_ocl: ContextVar[bool] = ContextVar("on_ocl", default=False)


def install() -> None:
    """Adds floats to the symbols that AOTAutogradCache guards, of graphs on ocl alone."""
    from torch._functorch._aot_autograd import autograd_cache
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache

    # PyTorch 2.11 has another name.
    hint = "guarding_hint_or_throw"
    hint = hint if hasattr(autograd_cache, hint) else "size_hint"
    value_of_integer = getattr(autograd_cache, hint)
    upstream = AOTAutogradCache.try_load
    symints = AOTAutogradCache._filter_backed_symints.__func__

    @functools.wraps(upstream)
    def try_load(mod: Any, args: Sequence[Any], *rest: Any, **kwargs: Any) -> Any:
        with _graph(mod, args):
            return upstream(mod, args, *rest, **kwargs)

    @functools.wraps(symints)
    def _filter_backed_symints(cls: Any, inputs: Sequence[Any]) -> list[Any]:
        found = symints(cls, inputs)
        return found + floats(inputs) if _on_ocl.get() else found

    @functools.wraps(value_of_integer)
    def value_of(symbol: Any) -> Any:
        is_float = isinstance(symbol, torch.SymFloat)
        return symbol.node.hint if is_float else value_of_integer(symbol)

    setattr(autograd_cache, hint, value_of)
    AOTAutogradCache.try_load = staticmethod(try_load)
    AOTAutogradCache._filter_backed_symints = classmethod(_filter_backed_symints)


@contextlib.contextmanager
def _graph(mod: Any, args: Sequence[Any]) -> Iterator[None]:
    token = _on_ocl.set(is_on_ocl(mod, args))
    try:
        yield
    finally:
        _on_ocl.reset(token)


def is_on_ocl(mod: Any, args: Sequence[Any]) -> bool:
    """Whether a graph takes, makes or returns a tensor on ocl."""
    modules = mod.modules() if isinstance(mod, torch.nn.Module) else ()
    graphs = [m.graph for m in modules if isinstance(m, torch.fx.GraphModule)]
    metas = [node.meta for graph in graphs for node in graph.nodes]
    values = (meta.get(key) for meta in metas for key in ("example_value", "val"))
    leaves = torch.utils._pytree.arg_tree_leaves(*args, *values)
    return any(isinstance(t, torch.Tensor) and t.device.type == "ocl" for t in leaves)


def floats(inputs: Sequence[Any]) -> list[torch.SymFloat]:
    """The symbols of a graph's floats, which come as tensors."""
    from torch._subclasses import FakeTensor

    items = (t.item_memo for t in inputs if isinstance(t, FakeTensor))
    return [i for i in items if isinstance(i, torch.SymFloat) and i.node.has_hint()]
