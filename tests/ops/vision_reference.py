"""Torchvision's ops written with PyTorch's, sample by sample, for the CPU: slow, and differentiable
by autograd. They serve as what to compare with, since torchvision's own library need not load."""

import math

import torch


def nms(boxes, scores, threshold):
    """Positions of the boxes that stay. Computed in the boxes' dtype."""
    order = scores.sort(stable=True, descending=True)[1]
    x1, y1, x2, y2 = boxes[order].unbind(1)
    area = (x2 - x1) * (y2 - y1)
    zero = torch.zeros((), dtype=boxes.dtype)
    out, keep = torch.zeros(len(order), dtype=torch.bool), []
    for i in range(len(order)):
        if out[i]:
            continue
        keep.append(i)
        # As std::max and std::min: the first one, unless the second is larger or smaller.
        width = larger(zero, smaller(x2[i], x2) - larger(x1[i], x1))
        height = larger(zero, smaller(y2[i], y2) - larger(y1[i], y1))
        both = width * height
        over = (both / (area[i] + area - both)).double() > threshold
        over[: i + 1] = False
        out |= over
    return order[keep]


def larger(a, b):
    return torch.where(a < b, b, a)


def smaller(a, b):
    return torch.where(b < a, b, a)


def sample(plane, y, x):
    """Bilinear samples of [channels, height, width] at all pairs of coordinates y and x; 0 further
    than a pixel outside. As RoIAlign has them: coordinates are moved into the image."""
    height, width = plane.shape[1:]
    inside_y, inside_x = (y >= -1) & (y <= height), (x >= -1) & (x <= width)
    inside = inside_y[:, None] & inside_x[None]
    (y0, y1, dy), (x0, x1, dx) = pixels(y, inside_y, height), pixels(x, inside_x, width)
    dy, dx = dy[:, None], dx[None]
    value = (
        plane[:, y0][:, :, x0] * (1 - dy) * (1 - dx)
        + plane[:, y0][:, :, x1] * (1 - dy) * dx
        + plane[:, y1][:, :, x0] * dy * (1 - dx)
        + plane[:, y1][:, :, x1] * dy * dx
    )
    return torch.where(inside, value, 0)


def pixels(at, inside, size):
    at = torch.where(inside, at, 0).clamp(min=0)
    low = at.long().clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    return low, high, torch.where(low == size - 1, 0, at - low)


def bins_of(box, scale, shift, widen, pooled, ratio):
    """For both axes: coordinates of the samples of each bin, and their number in all."""
    axes, count = [], 1
    for low, high, bins in ((box[2], box[4], pooled[0]), (box[1], box[3], pooled[1])):
        start = low * scale - shift
        extent = high * scale - shift - start
        if widen:
            extent = larger(extent, torch.ones_like(extent))
        step = extent / bins
        samples = ratio if ratio > 0 else (math.ceil(step) if math.isfinite(step) else 0)
        count *= samples
        numbers = torch.arange(max(samples, 0), dtype=box.dtype) + 0.5
        axes.append([start + k * step + numbers * step / samples for k in range(bins)])
    return axes, count


def roi_align(images, boxes, scale, pooled, ratio=-1, aligned=False):
    results = []
    for box in boxes:
        plane = images[int(box[0])]
        (ys, xs), count = bins_of(box, scale, 0.5 if aligned else 0, not aligned, pooled, ratio)
        rows = [[sample(plane, y, x).sum((1, 2)) for x in xs] for y in ys]
        results.append(torch.stack([torch.stack(row, 1) for row in rows], 1) / max(count, 1))
    return stacked(results, images, images.shape[1], pooled)


def ps_roi_align(images, boxes, scale, pooled, ratio=-1):
    results = []
    for box in boxes:
        plane = images[int(box[0])].unflatten(0, (-1, *pooled))
        (ys, xs), count = bins_of(box, scale, 0.5, False, pooled, ratio)
        rows = [
            [sample(plane[:, i, j], y, x).sum((1, 2)) for j, x in enumerate(xs)]
            for i, y in enumerate(ys)
        ]
        results.append(torch.stack([torch.stack(row, 1) for row in rows], 1) / count)
    return stacked(results, images, images.shape[1] // (pooled[0] * pooled[1]), pooled)


def stacked(results, images, channels, pooled):
    return torch.stack(results) if results else images.new_zeros(0, channels, *pooled)


def windows(box, scale, pooled, more, limits):
    """For both axes: begin and end of each bin, in pixels. The box is `more` pixels longer. A NaN's
    bins are empty."""
    axes = []
    for low, high, bins, limit in (
        (box[2], box[4], pooled[0], limits[0]),
        (box[1], box[3], pooled[1], limits[1]),
    ):
        if low.isnan() or high.isnan():
            axes.append([(0, 0)] * bins)
            continue
        start, stop = (half_away(float(corner) * scale) for corner in (low, high))
        size = max(stop - start + more, 1) / bins
        axes.append(
            [
                tuple(
                    min(max(edge + start, 0), limit)
                    for edge in (math.floor(k * size), math.ceil((k + 1) * size))
                )
                for k in range(bins)
            ]
        )
    return axes


def half_away(number):
    """round() of C: halves go away from zero."""
    return int(math.copysign(math.floor(abs(number) + 0.5), number))


def roi_pool(images, boxes, scale, pooled):
    results = []
    for box in boxes:
        plane = images[int(box[0])]
        ys, xs = windows(box, scale, pooled, 1, plane.shape[1:])
        rows = [[largest(plane[:, a:b, c:d]) for c, d in xs] for a, b in ys]
        results.append(torch.stack([torch.stack(row, 1) for row in rows], 1))
    return stacked(results, images, images.shape[1], pooled)


def largest(values):
    return values.flatten(1).max(1)[0] if values.numel() else values.new_zeros(values.shape[0])


def ps_roi_pool(images, boxes, scale, pooled):
    results = []
    for box in boxes:
        plane = images[int(box[0])]
        # The last row and column are left out.
        ys, xs = windows(box, scale, pooled, 0, [size - 1 for size in plane.shape[1:]])
        plane = plane.unflatten(0, (-1, *pooled))
        rows = [
            [mean(plane[:, i, j, a:b, c:d]) for j, (c, d) in enumerate(xs)]
            for i, (a, b) in enumerate(ys)
        ]
        results.append(torch.stack([torch.stack(row, 1) for row in rows], 1))
    return stacked(results, images, images.shape[1] // (pooled[0] * pooled[1]), pooled)


def mean(values):
    return values.mean((1, 2)) if values.numel() else values.new_zeros(values.shape[0])


def deform_conv2d(input, offset, weight, bias, stride, padding, dilation, mask):
    """The arguments are torchvision's; sizes are pairs."""
    batch, channels, height, width = input.shape
    kernel, out = weight.shape[2:], offset.shape[2:]
    taps, groups = kernel[0] * kernel[1], channels // weight.shape[1]
    shifts = offset.unflatten(1, (-1, taps, 2))  # [batch, groups of offsets, taps, 2, *out]
    sides = []
    for axis in range(2):
        size = [1, 1, 1, 1, 1]
        size[3 + axis] = out[axis]
        positions = torch.arange(out[axis]) * stride[axis] - padding[axis]
        tap = torch.arange(taps)
        tap = (tap // kernel[1] if axis == 0 else tap % kernel[1]) * dilation[axis]
        sides.append(shifts[:, :, :, axis] + positions.view(size) + tap.view(1, 1, -1, 1, 1))
    y, x = sides
    inside = (y > -1) & (y < height) & (x > -1) & (x < width)
    y0, x0 = y.detach().floor(), x.detach().floor()
    dy, dx = y - y0, x - x0
    planes = input.unflatten(1, (shifts.shape[1], -1))  # [batch, groups, channels of one, h, w]
    value = 0
    for down in (0, 1):
        for right in (0, 1):
            row, column = y0 + down, x0 + right
            valid = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = torch.where(valid, row * width + column, 0).long().flatten(2)
            index = place[:, :, None].expand(-1, -1, planes.size(2), -1)
            corner = planes.flatten(3).gather(3, index)
            corner = corner.unflatten(3, y.shape[2:])
            share = (dy if down else 1 - dy) * (dx if right else 1 - dx)
            value = value + torch.where(valid, share, 0)[:, :, None] * corner
    if mask is not None:
        value = value * mask.unflatten(1, (-1, taps))[:, :, None]
    columns = value.flatten(1, 2).unflatten(1, (groups, -1)).flatten(2, 3)
    matrices = weight.unflatten(0, (groups, -1)).flatten(2)
    result = torch.einsum("gok,bgkyx->bgoyx", matrices, columns).flatten(1, 2)
    return result if bias is None else result + bias[:, None, None]
