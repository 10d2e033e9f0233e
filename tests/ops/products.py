"""Helpers of the tests of matrix products."""

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
    """A kind of matrix in the layouts that take different paths."""
    yield "row_major", make(*batch, rows, columns, dtype=dtype)
    yield "column_major", make(*batch, columns, rows, dtype=dtype).mT
    yield "padded", make(*batch, rows, columns + 5, dtype=dtype)[..., :columns]
    yield "every_other", make(*batch, 2 * rows, 3 * columns, dtype=dtype)[..., ::2, ::3]
    yield "expanded", make(*batch, rows, 1, dtype=dtype).expand(*batch, rows, columns)


def named(dtypes):
    """The dtypes of a list such as 'float32,int8'."""
    return [getattr(torch, name) for name in dtypes.split(",")]


def check_every_shape(dtypes):
    """Every shape of SHAPES, batches and expanded operands, of each of the dtypes named."""
    for dtype in named(dtypes):
        for m, n, k in SHAPES:
            a, b, c = make(m, k, dtype=dtype), make(k, n, dtype=dtype), make(n, dtype=dtype)
            check(torch.addmm, c, a, b, alpha=2, beta=3)
            check(torch.mm, b.mT.clone(), a.mT)
        a, b = make(29, 307, dtype=dtype), make(50, 307, dtype=dtype)
        check(torch.addmm, make(50, dtype=dtype), a, b.mT, alpha=2)
        check(torch.bmm, b[:9].expand(3, 9, 307), a.mT.expand(3, 307, 29))
        a, b = make(3, 20, 30, dtype=dtype), make(3, 40, 30, dtype=dtype)
        check(torch.baddbmm, make(3, 20, 1, dtype=dtype), a, b.mT)
        check(torch.bmm, a, b[0].mT.expand(3, 30, 40))
        check(torch.mm, a[0].conj(), b[0].mT)


def check_every_layout(dtypes):
    """Parts of a tile, several tiles, operands that can and can't be read in vectors."""
    for dtype in named(dtypes):
        for m, n, k in [(136, 264, 72), (131, 270, 69)]:
            for a in (make(m, k, dtype=dtype), make(k, m, dtype=dtype).mT):
                for b in (make(k, n, dtype=dtype), make(n, k, dtype=dtype).mT):
                    check(torch.mm, a, b)
                    check(torch.mm, a[:5], b[:, :24])
            c = make(m, n, dtype=dtype)
            check(torch.addmm, c, a, b, alpha=2, beta=3)
            check(torch.addmm, c[0], a, b, beta=-1)
            check(torch.addmm, c.mT.clone().mT, a, b)
            if dtype.is_floating_point:
                check(torch._addmm_activation, c[0], a, b)
        a, b = make(3, 40, 1000, dtype=dtype, low=-1, high=1), make(3, 1000, 24, dtype=dtype)
        check(torch.bmm, a, b)
        check(torch.baddbmm, make(3, 40, 24, dtype=dtype), a, b, beta=2)
        check(torch.bmm, a, b[0].expand(3, 1000, 24))
        check(torch.mm, a[0], b[0])
        row = make(40, 64, dtype=dtype)
        check(torch.mm, row[:, 1:33], b[0, :32])


def check_many_tiles(dtypes):
    """Tiles along k, so that the place of each comes to hold several; and k in parts."""
    for dtype in named(dtypes):
        for m, n, k in [(136, 264, 1100), (72, 80, 5003)]:
            for a in (make(m, k, dtype=dtype), make(k, m, dtype=dtype).mT):
                for b in (make(k, n, dtype=dtype), make(n, k, dtype=dtype).mT):
                    check(torch.mm, a, b)
            check(torch.bmm, a.expand(3, m, k), make(3, k, n, dtype=dtype))
            check(torch.bmm, make(3, m, k, dtype=dtype), b.expand(3, k, n))


def check_few_long_sums(dtypes):
    """Few results, and many parts of k."""
    for dtype in named(dtypes):
        check(torch.dot, make(70001, dtype=dtype), make(70001, dtype=dtype))
        a, b = make(2, 1, 70000, dtype=dtype), make(2, 70000, 1, dtype=dtype)
        check(torch.baddbmm, make(2, 1, 1, dtype=dtype), a, b, alpha=2, beta=3)


def check_one_product(dtypes):
    """One product, of each of the dtypes named."""
    for dtype in named(dtypes):
        check(torch.mm, make(40, 64, dtype=dtype), make(64, 48, dtype=dtype))
