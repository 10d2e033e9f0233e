"""The tensor types of old: torch.ocl.FloatTensor and so on make tensors and are asked for them."""

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


class TensorType(type):
    """Their class, since upstream's is written in C and knows a fixed list of devices."""

    dtype: torch.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        """Sizes make a tensor without values, a sequence one of its values, a tensor an alias."""
        if len(args) == 1 and isinstance(args[0], torch.Tensor):
            if not isinstance(args[0], cls):
                raise TypeError(f"expected a {cls.__name__} (got {args[0].type()})")
            return args[0].detach()
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.tensor(args[0], dtype=cls.dtype, device="ocl")
        sizes = args[0] if args and isinstance(args[0], torch.Size) else args or (0,)
        return torch.empty(sizes, dtype=cls.dtype, device="ocl")

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and cls.describes(instance)

    def describes(cls, tensor: Any) -> bool:
        """Whether it is the type of a tensor, or of what torch.compile knows of one."""
        return bool(
            tensor.device.type == "ocl"
            and tensor.dtype == cls.dtype
            and tensor.layout == torch.strided
        )


def legacy_types(module: str = "torch.ocl") -> dict[str, type]:
    """One for each dtype that has an old name. tensor.type() goes by their full names."""

    def made(name: str, dtype: torch.dtype) -> type:
        attributes = {
            "__module__": module,
            "__qualname__": name,
            "dtype": dtype,
            "layout": torch.strided,
            "is_ocl": True,
            "is_cuda": module == "torch.cuda",
        }
        return TensorType(f"{module}.{name}", (), attributes)

    return {name: made(name, dtype) for name, dtype in _DTYPES.items()}
