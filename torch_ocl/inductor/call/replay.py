"""mode="reduce-overhead": calls of a compiled graph are captured, and replayed.

Upstream's trees of CUDA graphs overwrite results of the call before, which a program must not use
any more. Here a capture is replayed only once nobody holds its results. While somebody does, a
second capture with memory of its own takes the call, or the graph runs as without this mode.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

from torch_ocl.api import graphs

Call = Callable[[list[Any]], Sequence[Any]]

#: Captures of the same call: one whose results are in use, and the next.
MOST_CAPTURES = 2
#: Calls that differ in sizes, or in the places of parameters.
MOST_KEYS = 8
#: Inputs that are written where a replay does not find them again: they are copied back.
MOST_WRITTEN_BYTES = 1 << 20
#: Results that are copied, since programs collect them: losses.
SMALL_BYTES = 64

#: Where results of captures lie, which stay in place: those of a forward pass that are saved for
#: the backward one. Never removed before the memory is: see _Capture.
_own_places: dict[int, int] = {}


def wrap(compiled_graph: Any, cudagraphs: Any) -> None:
    """Takes the place of output_code.cudagraph_post_compile for graphs on ocl alone."""
    from torch._inductor.utils import BoxedBool

    info = compiled_graph.cudagraph_info
    if info.cudagraph_fail_reasons:
        BoxedBool.disable(cudagraphs)
        log_cudagraph_skip_and_bump_counter(
            f"skipping cudagraphs due to {info.cudagraph_fail_reasons}"
        )
        return
    options = compiled_graph.fx_kwargs
    compiled_graph.current_callable = Replayed(
        compiled_graph.current_callable,
        next(iter(compiled_graph.device_idxs)),
        options["static_input_idxs"] or (),
        compiled_graph.mutated_input_idxs,
        bool(options["is_backward"]),
    )


class Replayed:
    """A graph's call() that is captured at its second call with the same sizes, and then replayed.

    Args:
        call: of the generated module. It takes a list of inputs, and empties it.
        device: the index of the device that the graph is on.
        static: the inputs that stay where they are, such as parameters, by number. Others are
            copied to the place of the capture. A backward pass names all that is saved, too,
            though only results of captures and parameters are found in the same place again.
        mutated: the inputs that the graph writes, by number.
        is_backward: whether the graph is a backward pass.
    """

    def __init__(
        self,
        call: Call,
        device: int,
        static: Sequence[int],
        mutated: Sequence[int],
        is_backward: bool,
    ) -> None:
        self._call, self._device, self._is_backward = call, device, is_backward
        self._static, self._mutated = tuple(static), tuple(mutated)
        self._threads = threading.local()
        self._refused = False

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        given = list(inputs)
        inputs.clear()
        if torch.ocl.current_device() == self._device:
            return self._run(given)
        with torch.ocl.device(self._device):
            return self._run(given)

    def _run(self, given: list[Any]) -> Sequence[Any]:
        if self._refused or graphs.is_current_stream_capturing():
            return self._call(given)
        # Upstream counts all that is saved, sizes too.
        places = [
            given[i].data_ptr() if isinstance(given[i], torch.Tensor) else 0 for i in self._static
        ]
        if self._is_backward:
            places = [
                place if place in _own_places or isinstance(given[i], torch.nn.Parameter) else 0
                for i, place in zip(self._static, places, strict=True)
            ]
        sizes = [value for value in given if isinstance(value, int)]
        key = (torch.ocl.current_stream().stream_id, *places, *sizes)
        known: dict[Any, list[_Capture]] = self._threads.__dict__.setdefault("captures", {})
        captures = known.get(key)
        if captures is None:
            # The first call builds kernels and finds out what is fastest.
            if len(known) < MOST_KEYS:
                known[key] = []
            return self._call(given)
        for capture in captures:
            if capture.is_free():
                return capture.run(given)
        if len(captures) == MOST_CAPTURES:
            return self._call(given)
        try:
            in_place = {i for i, place in zip(self._static, places, strict=True) if place}
            capture = _Capture(self._call, given, in_place, self._mutated)
        except (RuntimeError, _NotCaptured) as error:
            self._refused = True
            log_cudagraph_skip_and_bump_counter(f"skipping cudagraphs due to: {error}")
            return self._call(given)
        captures.append(capture)
        counters["inductor"]["ocl_graph_captures"] += 1
        return capture.run(given)


class _NotCaptured(Exception):
    """A call has inputs or results that a replay can't renew."""


class _Capture:
    """A call that was captured, with the tensors that it works on.

    Memory of the capture stays with it, and it with the compiled graph. Inputs that are read in
    place are held, so that nothing else comes to lie there.
    """

    def __init__(
        self, call: Call, given: list[Any], in_place: set[int], mutated: tuple[int, ...]
    ) -> None:
        self._inputs: dict[int, torch.Tensor] = {}
        for i, value in enumerate(given):
            if isinstance(value, torch.Tensor):
                if value.device.type != "ocl":
                    raise _NotCaptured(f"an input on {value.device}")
                self._inputs[i] = value if i in in_place else _like(value)
            elif not isinstance(value, int):
                raise _NotCaptured(f"an input of {type(value).__name__}")
        self._copied = [i for i in self._inputs if i not in in_place]
        self._written = [i for i in mutated if i not in in_place and i in self._inputs]
        if sum(self._inputs[i].nbytes for i in self._written) > MOST_WRITTEN_BYTES:
            raise _NotCaptured("mutated inputs, which are large")
        self._graph = graphs.OclGraph()
        with graphs.graph(self._graph, stream=_capture_stream()):
            results = call([self._inputs.get(i, value) for i, value in enumerate(given)])
        self._results = [self._result(value) for value in results]
        self._held = {
            held.untyped_storage()._cdata: 0 for held, again in self._results if again is _detached
        }
        for cdata in self._held:
            self._held[cdata] = torch._C._storage_Use_Count(cdata)
        for held, again in self._results:
            if again is _detached:
                _own_places[held.data_ptr()] = _own_places.get(held.data_ptr(), 0) + 1

    def __del__(self) -> None:
        for held, again in getattr(self, "_results", ()):
            if again is _detached and _own_places is not None:
                place = held.data_ptr()
                _own_places[place] -= 1
                if not _own_places[place]:
                    del _own_places[place]

    def _result(self, value: Any) -> tuple[Any, Callable[[Any, list[Any]], Any]]:
        """The part of a result that is held, and a function that makes a replay's result of it."""
        if not isinstance(value, torch.Tensor):
            return value, _same
        for i in self._copied:
            static = self._inputs[i]
            if value is static:
                return i, _input
            if _storage(value) == _storage(static):
                if value.dtype != static.dtype:
                    raise _NotCaptured("a result that is an input seen as another dtype")
                offset = value.storage_offset() - static.storage_offset()
                return (i, value.size(), value.stride(), offset), _view
        for i, tensor in self._inputs.items():
            if value is tensor:
                return i, _input
            if _storage(value) == _storage(tensor):
                return value, _alias
        return value, _copy if value.nbytes <= SMALL_BYTES else _detached

    def is_free(self) -> bool:
        """Whether nobody holds a result of the last replay."""
        count = torch._C._storage_Use_Count
        return all(count(cdata) == held for cdata, held in self._held.items())

    def run(self, given: list[Any]) -> list[Any]:
        """A replay with other inputs."""
        moved = [i for i in self._copied if given[i].data_ptr() != self._inputs[i].data_ptr()]
        if moved:
            torch._foreach_copy_([self._inputs[i] for i in moved], [given[i] for i in moved])
        self._graph.replay()
        for i in self._written:
            given[i].copy_(self._inputs[i])
        return [again(held, given) for held, again in self._results]


@functools.cache
def _stream_of(device: int) -> torch.ocl.Stream:
    return torch.ocl.Stream(device)


def _capture_stream() -> torch.ocl.Stream:
    """The current device's."""
    return _stream_of(torch.ocl.current_device())


def _like(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)


def _storage(value: torch.Tensor) -> int:
    return value.untyped_storage()._cdata


def _same(held: Any, given: list[Any]) -> Any:
    return held


def _input(held: int, given: list[Any]) -> Any:
    return given[held]


def _view(held: Any, given: list[Any]) -> torch.Tensor:
    i, size, stride, offset = held
    return given[i].as_strided(size, stride, given[i].storage_offset() + offset)


def _copy(held: torch.Tensor, given: list[Any]) -> torch.Tensor:
    return held.clone()


def _alias(held: torch.Tensor, given: list[Any]) -> torch.Tensor:
    return held.detach()


def _detached(held: torch.Tensor, given: list[Any]) -> torch.Tensor:
    return held.detach()
