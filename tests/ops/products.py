"""What the tests of matrix products share."""

import torch
from torch.testing import assert_close, make_tensor

DEVICE = "ocl"
REAL = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
LOW_PRECISION = [torch.float16, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128]
INTEGER = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
DTYPES = REAL + COMPLEX + INTEGER
FEW = [torch.float32, torch.bfloat16, torch.complex64, torch.int32]

# m, n, k: tiles and their remainders, few rows or columns, more depth than one block, tiny ones.
SHAPES = [
    (1, 1, 1),
    (2, 3, 5),
    (12, 32, 64),
    (13, 33, 65),
    (61, 70, 100),
    (1, 100, 67),
    (100, 1, 67),
    (7, 130, 40),
    (130, 3, 40),
    (5, 5, 3000),
    (40, 36, 1100),
]


def make(*shape, dtype, low=-3, high=3):
    """Quarters: sums of their products are exact in float, whatever the order of summation."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return make_tensor(
            shape, dtype=dtype, device="cpu", low=max(low, torch.iinfo(dtype).min), high=high
        )
    parts = torch.randint(4 * low, 4 * high + 1, (*shape, 2)).div(4)
    return (
        torch.view_as_complex(parts).to(dtype)
        if dtype.is_complex
        else parts[..., 0].to(dtype).contiguous()
    )


def on_device(value):
    """A copy on the device with the same sizes and strides."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_conj():
        return on_device(value.conj()).conj()
    flat = torch.as_strided(
        value, (value.untyped_storage().nbytes() // value.element_size(),), (1,), 0
    )
    return flat.to(DEVICE).as_strided(value.shape, value.stride(), value.storage_offset())


def in_float(value):
    low_precision = isinstance(value, torch.Tensor) and value.dtype in LOW_PRECISION
    return value.float() if low_precision else value


def check(function, *args, **kwargs):
    """The CPU's result; in half and bfloat16 its float result, because it rounds in between."""
    expected = function(*map(in_float, args), **{k: in_float(v) for k, v in kwargs.items()})
    actual = function(*map(on_device, args), **{k: on_device(v) for k, v in kwargs.items()})
    assert actual.device.type == DEVICE
    if args[0].dtype in LOW_PRECISION:
        expected = expected.to(args[0].dtype)
    assert_close(actual.cpu(), expected, equal_nan=True)
    return actual


def layouts(rows, columns, dtype, batch=()):
    """The same kind of matrix in the layouts that take different paths."""
    yield "row_major", make(*batch, rows, columns, dtype=dtype)
    yield "column_major", make(*batch, columns, rows, dtype=dtype).mT
    yield "padded", make(*batch, rows, columns + 5, dtype=dtype)[..., :columns]
    yield "every_other", make(*batch, 2 * rows, 3 * columns, dtype=dtype)[..., ::2, ::3]
    yield "expanded", make(*batch, rows, 1, dtype=dtype).expand(*batch, rows, columns)


def dtype_of(name):
    return getattr(torch, name)
