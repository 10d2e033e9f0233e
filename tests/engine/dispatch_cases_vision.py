"""Cases of torchvision's gradients, which choose (test_dispatch.py)."""

import torch

from tests.ops import vision_reference as reference


def boxed(device):
    """roi_align's gradient; the CPU's is that of the reference."""
    from torchvision import ops

    g = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 12, 15, generator=g).to(device).requires_grad_()
    corner = torch.rand(6, 2, generator=g) * 8
    sizes = 1 + torch.rand(6, 2, generator=g) * 5
    boxes = torch.cat([torch.arange(6)[:, None] % 2, corner, corner + sizes], 1).to(device)
    if device == "ocl":
        out = ops.roi_align(images, boxes, (3, 2), 0.9, 2)
    else:
        out = reference.roi_align(images, boxes, 0.9, (3, 2), 2)
    return torch.autograd.grad(out, images, torch.ones_like(out))[0]


def deformed(device):
    """deform_conv2d's gradients of the input and the offset."""
    from torchvision import ops

    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, 9, 8, generator=g).to(device).requires_grad_()
    offset = torch.randn(2, 2 * 9, 9, 8, generator=g).to(device).requires_grad_()
    weight, bias = torch.randn(5, 4, 3, 3, generator=g).to(device), torch.zeros(5, device=device)
    mask = torch.rand(2, 9, 9, 8, generator=g).to(device)
    if device == "ocl":
        out = ops.deform_conv2d(x, offset, weight, bias, padding=1, mask=mask)
    else:
        one = (1, 1)
        out = reference.deform_conv2d(x, offset, weight, bias, one, one, one, mask)
    return torch.autograd.grad(out, (x, offset), torch.ones_like(out))


CASES = {
    "backward_vision": [boxed, deformed],
}
