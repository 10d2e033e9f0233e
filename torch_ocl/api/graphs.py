"""Graphs: work that is captured once and replayed with one call, as torch.cuda's graphs.

What is captured isn't executed. A replay enqueues the same kernels with the same arguments: they
read and write the same memory, so new inputs are copied into the tensors of the capture. Random
numbers go on from the generator at each replay.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch_ocl.api.stream_graphs import (
    OclGraph,
    Pool,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
)

__all__ = [
    "OclGraph",
    "auto",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]


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
