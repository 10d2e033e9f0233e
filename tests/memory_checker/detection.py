"""Torchvision's ops: boxes that overlap, poolings of boxes, deformable convolutions."""

import torch
from family import family


@family
def detection():
    """Results and gradients, by atomic sums and by planes."""
    from torchvision import ops

    corner = torch.rand(70, 2) * 20
    dets = torch.cat([corner, corner + 5], 1).to("ocl")
    keep = [ops.nms(dets, dets[:, 0], 0.3)]
    boxes = torch.tensor([[0.0, 1, 1, 6, 5], [1, -2, -2, 9, 3], [0, 4, 4, 4, 4]]).to("ocl")
    for fixed_order in (False, True):
        torch.use_deterministic_algorithms(fixed_order)
        leaves = [torch.randn(2, 8, 6, 7).to("ocl").requires_grad_() for _ in range(4)]
        pooled = [
            ops.roi_align(leaves[0], boxes, 2, 0.5),
            ops.roi_pool(leaves[1], boxes, 2, 0.5),
            ops.ps_roi_align(leaves[2], boxes[:2], 2, 0.5),
            ops.ps_roi_pool(leaves[3], boxes, 2, 0.5),
        ]
        image = torch.randn(1, 4, 5, 6).to("ocl").requires_grad_()
        shifts, mask = torch.randn(1, 36, 5, 6).to("ocl"), torch.rand(1, 18, 5, 6).to("ocl")
        weight = torch.randn(2, 2, 3, 3).to("ocl").requires_grad_()
        shifts.requires_grad_()
        pooled.append(ops.deform_conv2d(image, shifts, weight, None, 1, 1, 1, mask))
        sum(out.sum() for out in pooled).backward()
        keep += [*pooled, *(leaf.grad for leaf in (*leaves, image, shifts, weight))]
    torch.use_deterministic_algorithms(False)
    return keep
