"""torch.cuda.FloatTensor and the other tensor types of old, where "cuda" is `ocl`."""

import functools
from collections.abc import Callable
from typing import Any

import torch

_DTYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


class _TensorType(type):
    """Makes tensors of its dtype on `ocl`, of sizes or from data, as upstream's do."""

    dtype: torch.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        of_sizes = all(isinstance(size, int) for size in args)
        if len(args) == 1 and isinstance(args[0], torch.Size):
            args, of_sizes = tuple(args[0]), True
        if of_sizes:
            return torch.empty(args or (0,), dtype=cls.dtype, device="ocl")
        return torch.tensor(*args, dtype=cls.dtype, device="ocl")

    def __instancecheck__(cls, instance: Any) -> bool:
        of_ocl = isinstance(instance, torch.Tensor) and instance.is_ocl
        return of_ocl and instance.dtype == cls.dtype


@functools.cache
def types() -> dict[str, type]:
    """Each by its name in torch.cuda."""
    return {
        name: _TensorType(name, (), {"__module__": "torch.cuda", "dtype": dtype})
        for name, dtype in _DTYPES.items()
    }


def _named(kind: Any) -> Any:
    """The type that "torch.cuda.FloatTensor" names; others as they came."""
    prefix = "torch.cuda."
    if isinstance(kind, str) and kind.startswith(prefix):
        return types().get(kind.removeprefix(prefix), kind)
    return kind


def converting(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """Tensor.type, which takes them as well."""

    @functools.wraps(upstream)
    def type_(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        kind = _named(dtype)
        if isinstance(kind, _TensorType):
            return self.to("ocl", kind.dtype, *args, **kwargs)
        return upstream(self, dtype, *args, **kwargs)

    return type_


def set_default_tensor_type(upstream: Callable[[Any], None]) -> Callable[[Any], None]:
    """torch.set_default_tensor_type, for which such a type means the device, too."""

    @functools.wraps(upstream)
    def set_default_tensor_type(t: Any) -> None:
        kind = _named(t)
        if isinstance(kind, _TensorType):
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("ocl")
        else:
            upstream(t)

    return set_default_tensor_type
