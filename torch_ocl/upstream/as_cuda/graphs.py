"""torch.cuda.CUDAGraph and torch.cuda.graph, where "cuda" is `ocl`: with CUDA's arguments."""

import functools
from typing import Any, NoReturn

import torch

from torch_ocl.api import graphs


class CUDAGraph(graphs.OclGraph):
    """torch.ocl.OclGraph, which can look whether the tensors that it reads are alive."""

    _inputs: Any = None

    def capture_begin(
        self,
        pool: graphs.Pool | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """As OclGraph's. With `check_input_liveness` replay() raises RuntimeError where a tensor is
        gone that existed before the capture, and says where that was made."""
        self._forget_inputs()
        super().capture_begin(pool, capture_error_mode)
        if check_input_liveness:
            from torch.utils._cuda_debug import _CUDAGraphInputLivenessTracker

            self._inputs = _CUDAGraphInputLivenessTracker()
            self._inputs.start()

    def capture_end(self) -> None:
        """As OclGraph's."""
        if self._inputs is not None:
            self._inputs.stop()
        super().capture_end()

    def replay(self) -> None:
        """As OclGraph's."""
        if self._inputs is not None:
            self._inputs.check_alive(self.pool())
        super().replay()

    def reset(self) -> None:
        """As OclGraph's."""
        self._forget_inputs()
        super().reset()

    def _forget_inputs(self) -> None:
        if self._inputs is not None:
            self._inputs.stop()
            self._inputs = None

    def raw_cuda_graph(self) -> NoReturn:
        """Raises NotImplementedError."""
        _refuse("raw_cuda_graph")

    def raw_cuda_graph_exec(self) -> NoReturn:
        """Raises NotImplementedError."""
        _refuse("raw_cuda_graph_exec")

    def get_graph_data(self) -> NoReturn:
        """Raises NotImplementedError."""
        _refuse("get_graph_data")


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"torch.cuda.CUDAGraph.{name} has no counterpart on ocl. A captured graph has no handle of "
        "CUDA's. debug_dump() writes its commands into a file."
    )


class graph(graphs.graph):
    """torch.ocl.graph with torch.cuda.graph's arguments.

    Args:
        cuda_graph: the graph to capture into.
        pool, stream, capture_error_mode: as torch.ocl.graph has them.
        enable_annotations: makes no difference, as on CUDA without its package cuda.bindings.
        check_input_liveness: as CUDAGraph.capture_begin() has it.
    """

    def __init__(
        self,
        cuda_graph: graphs.OclGraph,
        pool: graphs.Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        super().__init__(cuda_graph, pool, stream, capture_error_mode)
        self.cuda_graph = cuda_graph
        if check_input_liveness:
            self._begin = functools.partial(self._begin, check_input_liveness=True)
