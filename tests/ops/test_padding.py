"""Reflection, replication, constant and circular padding, against CPU torch."""

import pytest
import torch
from torch.nn import functional

from tests.ops.spatial import (
    COMPLEX,
    FLOATING,
    INTEGER,
    check,
    check_error,
    check_gradients,
    formats,
    sample,
)

MODES = ["reflect", "replicate"]
SHAPES = {1: (2, 3, 9), 2: (2, 3, 5, 7), 3: (2, 3, 4, 5, 6)}
PADS = {
    1: [(3, 2), (0, 8), (8, 0), (-2, 3), (-1, -1), (0, 0)],
    2: [(1, 2, 3, 4), (6, 0, 0, 1), (-1, 2, 1, -2), (0, 0, 0, 0)],
    3: [(1, 2, 3, 4, 2, 1), (5, 0, 0, 1, 3, 3), (-1, 2, 1, -1, 0, -2)],
}
CASES = [(axes, pad) for axes, pads in PADS.items() for pad in pads]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axes,pad", CASES)
def test_pad(mode, axes, pad):
    for name, x in formats(sample(*SHAPES[axes])):
        check(lambda t: functional.pad(t, pad, mode), x, what=name)
        check_gradients(lambda t: functional.pad(t, pad, mode), x, what=name, second=True)
    # Without a batch.
    check(lambda t: functional.pad(t, pad, mode), sample(*SHAPES[axes][1:]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", FLOATING + INTEGER + COMPLEX)
def test_dtypes(mode, dtype):
    for axes, shape in SHAPES.items():
        pad, x = PADS[axes][0], sample(*shape, dtype=dtype)
        for name, strided in formats(x):
            check(lambda t, pad=pad: functional.pad(t, pad, mode), strided, what=name)
        if dtype.is_floating_point or dtype.is_complex:
            check_gradients(lambda t, pad=pad: functional.pad(t, pad, mode), x)


@pytest.mark.parametrize("mode", [*MODES, "constant", "circular"])
def test_long_rows(mode):
    x = sample(3, 5, 4, 133)
    check(lambda t: functional.pad(t, (7, 9, 2, 1), mode), x)
    check(lambda t: functional.pad(t.transpose(2, 3), (1, 2, 9, 70), mode), x)
    check_gradients(lambda t: functional.pad(t, (7, 9, 2, 1), mode), x)
    check(lambda t: functional.pad(t, (1000, 700), mode), sample(2, 3, 5003))


@pytest.mark.parametrize("channels", [1, 2, 16, 19, 70])
def test_channels_last(channels):
    x = sample(2, channels, 5, 6).contiguous(memory_format=torch.channels_last)
    for mode in [*MODES, "constant", "circular"]:
        check(lambda t, mode=mode: functional.pad(t, (2, 1, 1, 3), mode), x)
        check_gradients(lambda t, mode=mode: functional.pad(t, (2, 1, 1, 3), mode), x)


def test_single_elements():
    for axes in (1, 2, 3):
        x = sample(2, 1, *[1] * axes)
        check(lambda t, axes=axes: functional.pad(t, (2, 1) * axes, "replicate"), x)
        check_gradients(lambda t, axes=axes: functional.pad(t, (2, 1) * axes, "replicate"), x)


@pytest.mark.parametrize("mode", MODES)
def test_empty_batch_and_out(mode):
    for axes, shape in SHAPES.items():
        x = sample(0, *shape[1:])
        check(lambda t, pad=PADS[axes][0]: functional.pad(t, pad, mode), x)
    kind = {"reflect": "reflection", "replicate": "replication"}[mode]
    for axes, shape in SHAPES.items():
        op = getattr(torch.ops.aten, f"{kind}_pad{axes}d").out
        for make in (lambda d: torch.empty(0, device=d), lambda d: torch.empty(2, 3, device=d)[:0]):
            check(
                lambda t, op=op, make=make, pad=PADS[axes][0]: op(t, pad, out=make(t.device)),
                sample(*shape),
            )
    # CPU torch ignores the strides of some of these.
    out = torch.zeros(2, 3, 7, 9, 2, device="ocl")[..., 1]
    x = sample(2, 3, 5, 7)
    getattr(torch.ops.aten, f"{kind}_pad2d").out(x.to("ocl"), (1, 1, 1, 1), out=out)
    torch.testing.assert_close(out.cpu(), functional.pad(x, (1, 1, 1, 1), mode))


def test_nan_goes_where_it_is_copied():
    x = sample(1, 1, 4, 5)
    x[0, 0, 1, 2] = float("nan")
    check(lambda t: functional.pad(t, (2, 2, 2, 2), "reflect"), x)
    check_gradients(lambda t: functional.pad(t, (2, 2, 2, 2), "replicate"), x)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: functional.pad(t, (9, 0), "reflect"),
        lambda t: functional.pad(t[0, 0], (1, 1), "reflect"),
        lambda t: functional.pad(t, (-5, -4), "replicate"),
        lambda t: functional.pad(t[:, :0], (1, 1), "reflect"),
        lambda t: functional.pad(t.bool(), (1, 1), "reflect"),
        lambda t: functional.pad(t.bool(), (1, 1), "replicate"),
        lambda t: torch.ops.aten.reflection_pad2d(t[None], (9, 0, 0, 0)),
        lambda t: torch.ops.aten.reflection_pad2d(t[None], (0, 0, 0, 3)),
        lambda t: torch.ops.aten.reflection_pad2d(t[None], (0, 0, 0)),
        lambda t: torch.ops.aten.reflection_pad2d(t[None, None], (1, 1, 1, 1)),
        lambda t: torch.ops.aten.reflection_pad2d_backward(t, t, (1, 1, 1, 1)),
        lambda t: torch.ops.aten.replication_pad2d_backward(t, t, (1, 1, 1, 1)),
        lambda t: torch.ops.aten.replication_pad3d_backward(t[None], t[None], (1, 1) * 3),
    ],
)
def test_bad_arguments(call):
    check_error(call, sample(2, 3, 9))
