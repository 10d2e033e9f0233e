"""torch.cuda.FloatTensor and the other tensor types of old, where "cuda" is `ocl`."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_ocl.api import tensor_types

_PREFIX = "torch.cuda."


@functools.cache
def types() -> dict[str, type]:
    """Those of `ocl`, each by its name in torch.cuda."""
    return tensor_types.legacy_types(_PREFIX[:-1])


class SparseTensorType(tensor_types.TensorType):
    """The class of torch.cuda.sparse.FloatTensor and the others there."""

    def __call__(cls, *args: Any) -> torch.Tensor:
        """Sizes make a tensor of zeros, indices and values one with these."""
        if args and isinstance(args[0], torch.Tensor):
            return torch.sparse_coo_tensor(*args, dtype=cls.dtype, device="ocl")
        sizes = args[0] if args and isinstance(args[0], torch.Size) else args or (0,)
        return torch.sparse_coo_tensor(sizes, dtype=cls.dtype, device="ocl")

    def describes(cls, tensor: Any) -> bool:
        """Whether it is the type of a tensor."""
        return bool(
            tensor.device.type == "ocl"
            and tensor.dtype == cls.dtype
            and tensor.layout == torch.sparse_coo
        )


@functools.cache
def sparse_types() -> dict[str, type]:
    """One for each of upstream's, by its name in torch.cuda.sparse."""
    module = torch.cuda.sparse.__name__
    attributes = {"__module__": module, "layout": torch.sparse_coo, "is_ocl": True, "is_cuda": True}
    return {
        name: SparseTensorType(
            f"{module}.{name}", (), {**attributes, "__qualname__": name, "dtype": dense.dtype}
        )
        for name, dense in types().items()
        if hasattr(torch.cuda.sparse, name)
    }


def _named(kind: Any) -> Any:
    """The type that "torch.cuda.FloatTensor" names; others as they came."""
    if isinstance(kind, str) and kind.startswith(_PREFIX):
        module, _, name = kind.removeprefix(_PREFIX).rpartition(".")
        return (sparse_types() if module == "sparse" else types()).get(name, kind)
    return kind


def cudas(kind: Any) -> Any:
    """CUDA's name for the type that "torch.ocl.FloatTensor" names; others as they came."""
    return kind.replace("torch.ocl.", _PREFIX) if isinstance(kind, str) else kind


def converting(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """Tensor.type, which takes them as well, and names them."""

    @functools.wraps(upstream)
    def type_(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        kind = _named(dtype)
        if isinstance(kind, tensor_types.TensorType):
            return self.to("ocl", kind.dtype, *args, **kwargs)
        return cudas(upstream(self, dtype, *args, **kwargs))

    return type_


def set_default_tensor_type(upstream: Callable[[Any], None]) -> Callable[[Any], None]:
    """torch.set_default_tensor_type, for which such a type means the device, too.

    Upstream keeps the default type for the whole process, and every function looks there.
    """
    from torch_ocl import _C

    @functools.wraps(upstream)
    def set_default_tensor_type(t: Any) -> None:
        kind = _named(t)
        if kind in types().values():
            t = _upstreams()[kind.__qualname__]
            _C.make_tensor_type_ours(t)
        upstream(t)

    return set_default_tensor_type


def _upstreams() -> dict[str, Any]:
    """The types whose places in torch.cuda have ours."""
    return {
        kind.__name__: kind for kind in torch._tensor_classes if kind.__module__ == _PREFIX[:-1]
    }
