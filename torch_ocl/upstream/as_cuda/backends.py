"""torch.backends.cuda, where "cuda" is `ocl`."""

import functools
import sys
from typing import Any

from torch.backends import cuda

from torch_ocl.upstream.as_cuda.converting import is_of_torch


def install() -> None:
    """Changes what programs ask of the build, and the cache of Fourier transforms' plans."""
    built = cuda.is_built

    @functools.wraps(built)
    def is_built() -> bool:
        # torch's own code asks in order to call CUDA's functions.
        return built() or not is_of_torch(sys._getframe(1).f_globals.get("__name__", ""))

    cuda.is_built = is_built
    kind: Any = cuda.cuFFTPlanCache
    kind.size = property(lambda self: 0)  # transforms have no plans here
    kind.max_size = _Size()
    kind.clear = lambda self: None


class _Size:
    """An attribute that is kept and has no effect: 4096 at first, as CUDA's."""

    def __get__(self, cache: Any, kind: type | None = None) -> Any:
        return self if cache is None else vars(cache).get("max_size", 4096)

    def __set__(self, cache: Any, value: int) -> None:
        if value < 0:
            raise RuntimeError(f"cuFFT planCache max size must be non-negative, but got {value}")
        vars(cache)["max_size"] = value
