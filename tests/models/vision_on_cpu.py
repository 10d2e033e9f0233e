"""Torchvision's ops for the CPU, where its own library can't be loaded: those of
tests/ops/vision_reference.py, as far as the detection models need them."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torchvision  # noqa: F401

from tests.ops import vision_reference


def _roi_align(input, rois, scale, height, width, samples, aligned):
    return vision_reference.roi_align(input, rois, scale, (height, width), samples, aligned)


def _roi_align_backward(grad, rois, scale, height, width, *rest):
    *shape, samples, aligned = rest
    if not len(rois):
        return grad.new_zeros(shape)

    def differentiate():
        images = grad.new_zeros(shape).requires_grad_()
        out = _roi_align(images, rois, scale, height, width, samples, aligned)
        return torch.autograd.grad(out, images, grad)[0]

    # This thread is below autograd, another one is not.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(differentiate).result()


def install():
    functions = {
        "nms": vision_reference.nms,
        "roi_align": _roi_align,
        "_roi_align_backward": _roi_align_backward,
    }
    for name, function in functions.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"torchvision::{name}", "CPU"):
            torch.library.impl(f"torchvision::{name}", "CPU", function)
