"""Graphs: work that is captured once and replayed with one call, as torch.cuda's graphs.

What is captured isn't executed. A replay enqueues the same kernels with the same arguments: they
read and write the same memory, so new inputs are copied into the tensors of the capture. Random
numbers go on from the generator at each replay.
"""

import functools
import pathlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch

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
            kind = type(self)
            if kind.default_capture_stream is None:
                kind.default_capture_stream = Stream()
            stream = kind.default_capture_stream
        self._graph = ocl_graph
        self._begin = functools.partial(ocl_graph.capture_begin, pool)
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
            self._begin()
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
    from torch_ocl.api import graphed_callables

    return graphed_callables.make(
        callables, sample_args, num_warmup_iters, allow_unused_input, pool
    )
