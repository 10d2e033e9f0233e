"""Work of a stream that is captured once and replayed with one call: OclGraph and graph()."""

import functools
import pathlib
from types import TracebackType

import torch

from torch_ocl import _C
from torch_ocl.api.streams import Stream

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
