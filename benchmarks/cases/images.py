"""Cases of images: paddings, poolings, resamplings, unfolding."""

import math

import torch
from torch.nn import functional

from benchmarks.harness.case import LOOSE, add, tensors

IMAGES = (16, 64, 56, 56)


def on_images(name, function, shape=IMAGES, moved=2.0, **properties):
    """A function of images, forward and with its backward pass, of planes and of channels last.

    `moved`: elements read and written, in multiples of the input's."""
    bytes_moved = 4 * math.prod(shape)
    for suffix, form in (("", torch.contiguous_format), (" NHWC", torch.channels_last)):

        def prepare(device, form=form):
            (x,) = tensors(device, shape)
            return x.contiguous(memory_format=form)

        def forward(device, prepare=prepare):
            x = prepare(device)
            return lambda: function(x)

        def backward(device, prepare=prepare):
            x = prepare(device).requires_grad_()
            out = function(x)
            gradient = torch.ones_like(out)
            return lambda: torch.autograd.grad(out, x, gradient, retain_graph=True)

        shown = "x".join(map(str, shape))
        add(f"{name} {shown}{suffix}", "spatial", forward, bytes=bytes_moved * moved, **properties)
        add(
            f"{name} {shown}{suffix} backward",
            "spatial",
            backward,
            bytes=bytes_moved * moved,
            tolerance=LOOSE,
        )


on_images("reflection pad 3", lambda x: functional.pad(x, (3, 3, 3, 3), "reflect"), moved=2.2)
on_images("max pool 3/2", lambda x: functional.max_pool2d(x, 3, 2, 1), moved=1.75)
on_images("average pool 2", lambda x: functional.avg_pool2d(x, 2), moved=1.25)
on_images("adaptive average pool 7", lambda x: functional.adaptive_avg_pool2d(x, 7), moved=1.0)
on_images("nearest x2", lambda x: functional.interpolate(x, scale_factor=2), moved=5.0)
on_images(
    "bilinear x2",
    lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    moved=5.0,
    tolerance=LOOSE,
)
on_images(
    "bicubic x2",
    lambda x: functional.interpolate(x, scale_factor=2, mode="bicubic"),
    moved=5.0,
    tolerance=LOOSE,
)
on_images(
    "antialiased bilinear to half",
    lambda x: functional.interpolate(x, size=(28, 28), mode="bilinear", antialias=True),
    moved=1.25,
    tolerance=LOOSE,
)
on_images("unfold 3", lambda x: functional.unfold(x, 3, padding=1), (4, 64, 56, 56), moved=10.0)


def make_grid_sample(device):
    (x,) = tensors(device, IMAGES)
    theta = torch.tensor([[[0.8, -0.6, 0.1], [0.6, 0.8, -0.2]]]).expand(16, 2, 3).to(device)
    grid = functional.affine_grid(theta, IMAGES, align_corners=False)
    return lambda: functional.grid_sample(x, grid, align_corners=False)


add(
    "grid sample 16x64x56x56",
    "spatial",
    make_grid_sample,
    bytes=8 * math.prod(IMAGES),
    tolerance=LOOSE,
)
