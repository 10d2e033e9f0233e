"""Torchvision's ops for the CPU, where its own library can't be loaded: those of
tests/ops/vision_reference.py, as far as the detection models need them."""

import torch
import torchvision  # noqa: F401

from tests.ops import vision_reference


def _roi_align(input, rois, scale, height, width, samples, aligned):
    return vision_reference.roi_align(input, rois, scale, (height, width), samples, aligned)


def _roi_align_backward(grad, rois, scale, height, width, *rest):
    *shape, samples, aligned = rest
    with torch.enable_grad():
        images = grad.new_zeros(shape).requires_grad_()
        out = _roi_align(images, rois, scale, height, width, samples, aligned)
    return torch.autograd.grad(out, images, grad)[0]


def install():
    functions = {
        "nms": vision_reference.nms,
        "roi_align": _roi_align,
        "_roi_align_backward": _roi_align_backward,
    }
    for name, function in functions.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"torchvision::{name}", "CPU"):
            torch.library.impl(f"torchvision::{name}", "CPU", function)
