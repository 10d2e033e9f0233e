"""unfold and fold (im2col and col2im) against CPU torch."""

import pytest
import torch
from torch.nn import functional

from tests.layouts import on_device
from tests.ops.spatial import (
    COMPLEX,
    FLOATING,
    check,
    check_error,
    check_gradients,
    formats,
    sample,
)

WINDOWS = [
    {"kernel_size": 3},
    {"kernel_size": (2, 3), "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": (1, 0)},
    {"kernel_size": 2, "dilation": (2, 3), "stride": (1, 2)},
    {"kernel_size": 1},
    {"kernel_size": (9, 11)},
    {"kernel_size": 5, "padding": 4},
]


@pytest.mark.parametrize("window", WINDOWS)
def test_unfold_and_fold(window):
    x = sample(2, 3, 9, 11)
    unfold = lambda t: functional.unfold(t, **window)  # noqa: E731
    fold = lambda t: functional.fold(t, (9, 11), **window)  # noqa: E731
    for name, strided in formats(x):
        check(unfold, strided, what=name)
        check_gradients(unfold, strided, name, second=True)
    columns = unfold(x)
    check(fold, columns)
    check(fold, columns.transpose(1, 2).contiguous().transpose(1, 2))
    check_gradients(fold, columns, second=True)
    check(unfold, x[0])
    check(fold, columns[0])
    check(unfold, x[:0])
    check(fold, columns[:0])


@pytest.mark.parametrize("dtype", [*FLOATING, *COMPLEX, torch.bool])
@pytest.mark.parametrize("window", WINDOWS[1:4])
def test_dtypes(dtype, window):
    x = sample(2, 3, 9, 11, dtype=dtype)
    check(lambda t: functional.unfold(t, **window), x)
    check(lambda t: functional.fold(t, (9, 11), **window), functional.unfold(x, **window))


def test_long_rows():
    x = sample(1, 2, 5, 200)
    for window in ({"kernel_size": 3, "padding": 1}, {"kernel_size": (1, 40), "dilation": 3}):
        check(lambda t, window=window: functional.unfold(t, **window), x)
        check_gradients(lambda t, window=window: functional.unfold(t, **window), x)


def test_many_bools_add_to_true():
    columns = torch.ones(1, 256, 1, dtype=torch.bool)
    check(lambda t: functional.fold(t, (16, 16), 16), columns)
    overlapping = torch.ones(1, 400, 289, dtype=torch.bool)
    check(lambda t: functional.fold(t, (36, 36), 20), overlapping)


def test_out():
    x = sample(2, 3, 6, 7)
    arguments = ([2, 2], [1, 1], [0, 0], [1, 1])
    im2col = torch.ops.aten.im2col.out
    check(lambda t: im2col(t, *arguments, out=torch.empty(0, device=t.device)), x)
    # CPU torch ignores the strides of these.
    out = torch.zeros(2, 12, 30, 2, device="ocl")[..., 1]
    im2col(x.to("ocl"), *arguments, out=out)
    torch.testing.assert_close(out.cpu(), functional.unfold(x, 2))
    columns = on_device(functional.unfold(x, 2))
    out = torch.zeros(2, 3, 6, 7, 2, device="ocl")[..., 1]
    torch.ops.aten.col2im.out(columns, [6, 7], *arguments, out=out)
    torch.testing.assert_close(out.cpu(), functional.fold(columns.cpu(), (6, 7), 2))


@pytest.mark.parametrize(
    "call",
    [
        lambda t: functional.unfold(t, 9),
        lambda t: functional.unfold(t, 0),
        lambda t: functional.unfold(t, 2, stride=0),
        lambda t: functional.unfold(t, 2, padding=-1),
        lambda t: functional.unfold(t, 2, dilation=0),
        lambda t: functional.unfold(t.long(), 2),
        lambda t: functional.unfold(t[:, :0], 2),
        lambda t: functional.unfold(t[0, 0], 2),
        lambda t: functional.fold(t, (4, 4), 2),
        lambda t: functional.fold(t[0], (4, 5), 2),
        lambda t: functional.fold(t[0, :, :4].long(), (4, 3), 2),
        lambda t: torch.ops.aten.im2col(t, [2], [1, 1], [0, 0], [1, 1]),
        lambda t: torch.ops.aten.im2col(t, [2, 2], [1], [0, 0], [1, 1]),
    ],
)
def test_bad_arguments(call):
    check_error(call, sample(2, 3, 6, 7))
