"""Graphs: work that is captured once and replayed with one call, as torch.cuda's graphs.

What is captured isn't executed. A replay enqueues the same kernels with the same arguments: they
read and write the same memory, so new inputs are copied into the tensors of the capture. Random
numbers go on from the generator at each replay.
"""

import pathlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from torch_ocl import _C
from torch_ocl.api.streams import Stream

__all__ = [
    "OclGraph",
    "auto",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

Pool = tuple[int, int]


def is_current_stream_capturing() -> bool:
    """Whether a graph is captured on the current stream. Does not initialise the device."""
    return _C.is_capturing()


def graph_pool_handle() -> Pool:
    """A pool of memory that several graphs may share: the `pool` of graph() and capture_begin().

    Graphs that share one must be replayed in the order of their captures, and not at a time.
    """
    return _C.new_memory_pool()


class OclGraph:
    """A captured graph, with the interface of torch.cuda.CUDAGraph.

    A stream that is captured can't be waited for, nor can data come from the host or go there:
    RuntimeError is raised. Run the same work once or more before, on the same shapes. Memory that
    the capture takes stays the graph's own until reset(). Tensors that existed before must live as
    long as the graph is replayed.

    Args:
        keep_graph: as torch.cuda.CUDAGraph has it; it makes no difference.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph = _C.StreamGraph()

    def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
        """Captures the current stream from now on.

        Args:
            pool: of graph_pool_handle() or another graph's pool(); default one of its own.
            capture_error_mode: makes no difference, since other streams aren't affected.
        """
        self._graph.capture_begin(pool or (0, 0))

    def capture_end(self) -> None:
        """Ends the capture, on any stream.

        Raises RuntimeError, and leaves the graph empty, if an op used random numbers in a way that
        a replay can't renew (torch.randperm).
        """
        self._graph.capture_end()

    def instantiate(self) -> None:
        """Does nothing: a captured graph can be replayed at once."""

    def replay(self) -> None:
        """Enqueues the graph's work on the current stream."""
        self._graph.replay()

    def reset(self) -> None:
        """Forgets the capture and gives its memory back; another capture may follow."""
        self._graph.reset()

    def pool(self) -> Pool:
        """The pool that its memory comes from."""
        return self._graph.pool()

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Does nothing: generators are known by being used."""

    def enable_debug_mode(self) -> None:
        """Does nothing: debug_dump() always works."""

    def debug_dump(self, debug_path: str) -> None:
        """Writes a line for each command into a file."""
        pathlib.Path(debug_path).write_text(self._graph.describe())


class graph:
    """A context manager that captures what its block enqueues, as torch.cuda.graph.

    Args:
        ocl_graph: the OclGraph to capture into.
        pool: as OclGraph.capture_begin() has it.
        stream: the stream to capture, current within the block; default one for all captures.
        capture_error_mode: makes no difference.
    """

    default_capture_stream: Stream | None = None

    def __init__(
        self,
        ocl_graph: OclGraph,
        pool: Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self._graph = ocl_graph
        self._pool = pool
        self._stream = torch.ocl.stream(stream)

    def __enter__(self) -> None:
        if is_current_stream_capturing():  # the wait below would raise for a reason less clear
            raise RuntimeError(
                "ocl: another capture is not possible while a graph is captured on this stream"
            )
        torch.ocl.synchronize()
        torch.ocl.empty_cache()
        self._stream.__enter__()
        try:
            self._graph.capture_begin(self._pool)
        except BaseException:
            self._stream.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._graph.capture_end()
            else:
                self._graph.reset()
        finally:
            self._stream.__exit__(kind, error, trace)


def auto(
    function: Callable[..., Any], after: int = 3, watch: Sequence[Any] = (), most: int = 8
) -> Any:
    """The function, which captures itself after some equal calls and is replayed from then on.

    A call is like another where what decides its work is the same: the arguments' shapes, strides,
    dtypes and plain values; what the function reads from around it, from globals and from its
    object, also by its helpers; the modules that run, their mode, numbers and parameters' memory;
    the optimisers that step, and their settings; PyTorch's modes and the stream. Anything else runs
    the function.

    Python runs once in a call that is no replay. What can't be captured has the capture given up:
    what was captured until then runs, and the function goes on as ever. So it is with an exception.

    Several threads may call it. A lock has replays take turns. While one thread warms up or
    captures a function, the others run theirs as they are: none waits for another one's Python.

    Arguments are copied into the graph's, unless they are the same tensors at all calls, and what
    the function writes into them is copied back. Results are copies, too. Gradients of parameters
    are in `.grad`, in memory of the graph.

    These aren't captured: functions that wait for the device or read numbers from it, or change
    what they read; arguments on the CPU or with gradients; results with a history of gradients or
    that are views of arguments; hooks; and optimisers that count their steps on the host. `reason`
    says why.

    Args:
        function: a step of tensors of the device and plain values, such as a training step. A
            replay runs none of its Python: it may only do what it did in the calls before.
        after: equal calls before the capture.
        watch: more that it depends on, in what it calls: values, tensors, or functions that return
            them. Where they change, so does the graph.
        most: graphs at a time. Other calls run the function.

    Returns a callable with `graphs` and `replays`, which count them, `reason` and `reset()`.
    """
    from torch_ocl.api.auto_graphs import AutoGraph

    return AutoGraph(function, after, watch, most)


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


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Pool | None = None,
) -> Any:
    """Modules or functions whose forward and backward passes are replayed graphs.

    Args:
        callables: a module or a function of tensors, or a tuple of them in the order in which they
            run. A module's forward() is replaced while its mode (train or eval) is that of now.
        sample_args: a tuple of tensors, or one for each of the callables. Tuples, lists and dicts
            of tensors may be in it. Their shapes, dtypes and requires_grad are those that the
            graphs work with.
        num_warmup_iters: calls before the capture.
        allow_unused_input: whether inputs without a gradient are allowed.
        pool: as OclGraph.capture_begin() has it. The forward passes share it, and each backward
            pass has one of its own.

    Parameters must not be part of a graph of autograd's that is still alive, since their gradients
    would be tied to that one's stream.

    Returns the callables, or what replaces them, in the same form. Results are overwritten by the
    next call, and so are gradients that torch.autograd.grad() returns. Those in .grad accumulate.
    Second derivatives aren't known.

    Raises RuntimeError where autocast caches weights. Raises AssertionError for modules with hooks
    or trainable buffers, and for samples that aren't tensors.
    """
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
