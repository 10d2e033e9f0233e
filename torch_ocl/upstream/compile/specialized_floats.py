"""Floats that a graph can't take as symbols are constants of it.

A Python float that changes is a symbol of the graph, which the joint pass makes a tensor of
(torch/fx/passes/_tensorify_python_scalars.py). Where an op needs the number itself, there is a
guard, and the number is a constant. PyTorch 2.13 forgets two cases of that, and raises.
"""

from __future__ import annotations

import functools
import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

from torch_ocl.upstream.compile import float_guards


def install() -> None:
    """Applies the changes to AOTAutograd, once."""
    from torch._functorch._aot_autograd import graph_compile

    _known_symbols(graph_compile)
    _refused_symbols(graph_compile)


def _known_symbols(graph_compile: Any) -> None:
    """The pass puts constants for nodes whose symbols are all floats. A symbol that was guarded
    while the graph was traced is a number already, and its node was left. Inductor has no
    lowering for that node. A gradient of lerp's brings it about, which compares the weight."""
    upstream = graph_compile.tensorify_python_scalars

    @functools.wraps(upstream)
    def tensorify_python_scalars(gm: torch.fx.GraphModule, *args: Any) -> None:
        on_ocl = float_guards.is_on_ocl(gm, ())
        if on_ocl:
            multiply_by_alpha(gm.graph)
        upstream(gm, *args)
        if on_ocl:
            put_constants(gm.graph)

    graph_compile.tensorify_python_scalars = tensorify_python_scalars


def multiply_by_alpha(graph: torch.fx.Graph) -> None:
    """Has sums multiply a number by `alpha` beforehand. The pass makes them anew for tensors, from
    their arguments without their keywords."""
    sums = (torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor)
    for node in graph.nodes:
        if node.target not in sums or "alpha" not in node.kwargs:
            continue
        first, second = node.args
        alpha = node.kwargs["alpha"]
        if not any(isinstance(_value(arg), torch.SymFloat) for arg in (first, second, alpha)):
            continue
        is_tensor = isinstance(_value(second), torch.Tensor)
        multiply = torch.ops.aten.mul.Tensor if is_tensor else operator.mul
        with graph.inserting_before(node):
            scaled = graph.call_function(multiply, (second, alpha))
        scaled.meta["val"] = _value(second) * _value(alpha)
        node.args, node.kwargs = (first, scaled), {}


def _value(arg: Any) -> Any:
    return arg.meta.get("val") if isinstance(arg, torch.fx.Node) else arg


def put_constants(graph: torch.fx.Graph) -> None:
    """Replaces the nodes of floats that are known, and what is computed from them."""
    known = [node for node in graph.nodes if node.op == "call_function" and _is_known(node)]
    for node in reversed(known):
        value = node.meta["val"]
        kind = {torch.SymFloat: float, torch.SymInt: int, torch.SymBool: bool}[type(value)]
        node.replace_all_uses_with(kind(value))
        graph.erase_node(node)


def _is_known(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, (torch.SymFloat, torch.SymInt, torch.SymBool)):
        return False
    return not value.node.expr.free_symbols and "unbacked_bindings" not in node.meta


def _refused_symbols(graph_compile: Any) -> None:
    """Some gradients ask for the logarithm of a number, or whether it is 0, which c10::Scalar only
    has of numbers. The graph is then compiled for the values that its floats, or integers, have."""
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis

    upstream = graph_compile.aot_dispatch_autograd_graph

    def with_numbers_for_floats(trace: Callable[[], Any], flat_args: Any) -> Any:
        names = _floats_on_ocl(flat_args)
        if not names:
            return trace()
        heard: list[warnings.WarningMessage] = []
        try:
            # Autograd's engine warns before it raises.
            with warnings.catch_warnings(record=True) as heard:
                return trace()
        except RuntimeError as error:
            if not re.match("NYI .* symbolic float", str(error)) or not _specialize(names):
                raise
            heard.clear()
            raise TensorifyScalarRestartAnalysis from None
        finally:
            for one in heard:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)

    @functools.wraps(upstream)
    def aot_dispatch_autograd_graph(flat_fn: Any, flat_args: Any, *rest: Any, **kwargs: Any) -> Any:
        trace = functools.partial(upstream, flat_fn, flat_args, *rest, **kwargs)
        try:
            return with_numbers_for_floats(trace, flat_args)
        except RuntimeError as error:
            # The gradient of a power asks whether the exponent is 0.
            if "NYI SymInt equality" not in str(error) or not _guard_integers(flat_args):
                raise
        return with_numbers_for_floats(trace, flat_args)

    graph_compile.aot_dispatch_autograd_graph = aot_dispatch_autograd_graph


def _floats_on_ocl(inputs: list[Any]) -> set[str]:
    """The names of a graph's floats; none where no input is on ocl."""
    if not float_guards.is_on_ocl(None, inputs):
        return set()
    symbols = (value.node._expr for value in float_guards.floats(inputs))
    return {symbol.name for symbol in symbols if symbol.is_Symbol}


def _guard_integers(inputs: list[Any]) -> bool:
    """Compiles for the integers that the graph is called with. False where none is on ocl."""
    if not float_guards.is_on_ocl(None, inputs):
        return False
    integers = [value for value in inputs if isinstance(value, torch.SymInt)]
    for value in integers:
        int(value)  # which guards on it
    return bool(integers)


def _specialize(names: set[str]) -> bool:
    """Has Dynamo take floats as numbers. False where it does so already."""
    from torch._dynamo.symbolic_convert import TensorifyState

    new = [name for name in names if not TensorifyState.should_specialize(name)]
    for name in new:
        TensorifyState.specialize(name)
    return bool(new)
