"""Helpers of the tests of reading and writing at indices."""

import torch

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip
ADDABLE = [d for d in DTYPES if d != torch.bool]


def sample(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape) + 1)
    if dtype.is_floating_point or dtype.is_complex:
        # Eighths: sums in any order are exact, in half precision too.
        return (torch.randint(-16, 16, shape) / 8).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 4, shape).to(dtype)


def moved(value, device):
    if isinstance(value, torch.Tensor):
        # An offset and a step survive the move, so that layouts are tested.
        if value.dim() and not value.is_contiguous() and value.numel():
            base = value._base if value._base is not None else value
            return base.to(device).as_strided(value.size(), value.stride(), value.storage_offset())
        return value.to(device)
    return value


def check(device, call, *args, **tolerance):
    want = call(
        *[a.clone() if isinstance(a, torch.Tensor) and a.is_contiguous() else a for a in args]
    )
    got = call(*(moved(a, device) for a in args))
    assert got.device.type == "ocl" and got.dtype == want.dtype and got.shape == want.shape
    torch.testing.assert_close(got.cpu(), want, equal_nan=True, **tolerance)
    return got
