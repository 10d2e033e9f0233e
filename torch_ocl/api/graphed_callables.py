"""Modules and functions whose forward and backward passes are graphs: make_graphed_callables()."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from torch_ocl.api.stream_graphs import OclGraph, Pool, graph, graph_pool_handle
from torch_ocl.api.streams import Stream


def _differentiable(tensors: Sequence[Any]) -> list[torch.Tensor]:
    return [t for t in tensors if isinstance(t, torch.Tensor) and t.requires_grad]


def _all_gradients(
    of: Sequence[Any], found: Sequence[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """The gradients found for those that have one, None for the others."""
    left = iter(found)
    return [next(left) if t.requires_grad else None for t in of]


class _Graphed:
    """A function's forward and backward graphs, with the tensors that they work on."""

    def __init__(
        self,
        function: Callable[..., Any],
        sample_args: tuple[Any, ...],
        parameters: Sequence[torch.Tensor],
        pool: Pool,
        allow_unused: bool,
    ) -> None:
        self.arguments, self._form = tree_flatten(sample_args)
        self.parameters = tuple(parameters)
        self.inputs = (*self.arguments, *self.parameters)
        self.forward_graph, self.backward_graph = OclGraph(), OclGraph()
        self._allow_unused = allow_unused
        with graph(self.forward_graph, pool):
            results = function(*sample_args)
        self.results, self._form_of_results = tree_flatten(results)

    def capture_backward(self) -> None:
        self.cotangents = [
            torch.empty_like(t) if isinstance(t, torch.Tensor) and t.requires_grad else None
            for t in self.results
        ]
        wanted = _differentiable(self.inputs)
        self.gradients: list[torch.Tensor | None] = [None] * len(self.inputs)
        if wanted and _differentiable(self.results):
            # It has a pool of its own: no other replay then writes to a gradient that became a
            # leaf's.
            with graph(self.backward_graph, graph_pool_handle()):
                found = torch.autograd.grad(
                    _differentiable(self.results),
                    wanted,
                    [t for t in self.cotangents if t is not None],
                    allow_unused=self._allow_unused,
                )
            self.gradients = _all_gradients(self.inputs, found)
        # Autograd's graph would tie the parameters' gradients to the stream of the capture.
        self.results = [t.detach() if isinstance(t, torch.Tensor) else t for t in self.results]

    def replay_forward(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        for static, given in zip(self.arguments, inputs, strict=False):
            if static.data_ptr() != given.data_ptr():
                static.copy_(given)
        self.forward_graph.replay()
        return tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in self.results)

    def replay_backward(
        self, leaves: Sequence[torch.Tensor | None], cotangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of the inputs, `leaves` being those arguments that keep theirs."""
        for static, given in zip(self.cotangents, cotangents, strict=True):
            if static is None or given is None:
                continue
            if static.data_ptr() != given.data_ptr():
                static.copy_(given)
        for leaf, gradient in zip((*leaves, *self.parameters), self.gradients, strict=True):
            _keep_gradient(leaf, gradient)
        self.backward_graph.replay()
        return tuple(None if t is None else t.detach() for t in self.gradients)

    def function(self) -> Callable[..., Any]:
        """A function that calls the graphs as one node of autograd's."""
        held = self

        class Replay(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, *inputs: torch.Tensor) -> tuple[Any, ...]:
                given = inputs[: len(held.arguments)]
                context.leaves = [t if t.requires_grad and t.is_leaf else None for t in given]
                return held.replay_forward(given)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(context: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
                return held.replay_backward(context.leaves, cotangents)

        def call(*arguments: Any) -> Any:
            given, form = tree_flatten(arguments)
            if form != held._form:
                raise TypeError(
                    "a graphed callable takes arguments like its sample's, "
                    f"{held._form}, got {form}"
                )
            results = Replay.apply(*given, *held.parameters)
            return tree_unflatten(results, held._form_of_results)

        return call


def _keep_gradient(leaf: torch.Tensor | None, static: torch.Tensor | None) -> None:
    """Moves a sum of gradients out of the memory that a replay is about to write.

    Autograd makes the first gradient that it gets the leaf's own, without a copy. Where the leaf
    still has it (gradients are accumulated, or were set to 0 in place), the replay would overwrite
    the sum, and then add its own result to itself.
    """
    if leaf is None or static is None or leaf.grad is None or leaf.grad.layout != torch.strided:
        return
    kept = leaf.grad
    if kept.untyped_storage().data_ptr() == static.untyped_storage().data_ptr():
        kept.data = kept.clone()


def _warm_up(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    parameters: Sequence[torch.Tensor],
    iterations: int,
    allow_unused: bool,
) -> None:
    for _ in range(iterations):
        results = _differentiable(tree_leaves(function(*arguments)))
        wanted = _differentiable((*tree_leaves(arguments), *parameters))
        if results and wanted:
            cotangents = [torch.empty_like(t) for t in results]
            torch.autograd.grad(results, wanted, cotangents, allow_unused=allow_unused)


def _check_callable(function: Any, sample: Any) -> None:
    """Raises AssertionError, as torch.cuda.make_graphed_callables, for what can't be graphed."""
    if isinstance(function, torch.nn.Module):
        if function._backward_hooks or function._forward_hooks or function._forward_pre_hooks:
            raise AssertionError(
                "Modules must not have hooks when they are passed: a capture would have their "
                "effects once. Register hooks on what make_graphed_callables returns."
            )
        if any(buffer.requires_grad for buffer in function.buffers()):
            raise AssertionError(
                "Only the parameters of a module may be trainable: buffers must have "
                "requires_grad=False"
            )
    if not all(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(sample)):
        raise AssertionError("sample_args must contain only tensors")


def make(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int,
    allow_unused_input: bool,
    pool: Pool | None,
) -> Any:
    """See torch.ocl.make_graphed_callables()."""
    if torch.is_autocast_enabled("ocl") and torch.is_autocast_cache_enabled():
        raise RuntimeError("graphed callables need torch.autocast(..., cache_enabled=False)")
    alone = not isinstance(callables, tuple)
    functions = (callables,) if alone else callables
    samples = (sample_args,) if alone else sample_args
    for function, sample in zip(functions, samples, strict=True):
        _check_callable(function, sample)
    samples = [tuple(sample) for sample in samples]
    pool = pool or graph_pool_handle()
    parameters = [list(f.parameters()) if isinstance(f, torch.nn.Module) else [] for f in functions]
    torch.ocl.synchronize()
    with torch.ocl.stream(Stream()):
        for function, sample, owned in zip(functions, samples, parameters, strict=True):
            _warm_up(function, sample, owned, num_warmup_iters, allow_unused_input)
        torch.ocl.synchronize()
    graphed = [
        _Graphed(function, sample, owned, pool, allow_unused_input)
        for function, sample, owned in zip(functions, samples, parameters, strict=True)
    ]
    for held in reversed(graphed):  # the order in which backward passes run
        held.capture_backward()
    results = []
    for function, held in zip(functions, graphed, strict=True):
        call = held.function()
        if isinstance(function, torch.nn.Module):
            _replace_forward(function, call)
            results.append(function)
        else:
            results.append(call)
    return results[0] if alone else tuple(results)


def _replace_forward(module: torch.nn.Module, call: Callable[..., Any]) -> None:
    mode, eager = module.training, module.forward

    def forward(*arguments: Any, **named: Any) -> Any:
        return (call if module.training == mode else eager)(*arguments, **named)

    module.forward = forward  # type: ignore[method-assign]
