"""What makes softmax, norms, reductions, scans and random numbers choose (test_dispatch.py)."""

import torch


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def softmax(shape, dim, log=False):
    """Forward and backward."""

    def call(device):
        x = normal(*shape).to(device).requires_grad_()
        y = x.log_softmax(dim) if log else x.softmax(dim)
        (gradient,) = torch.autograd.grad(y, x, normal(*shape).cos().to(device))
        return y.detach(), gradient

    return call


CASES = {
    "softmax": [
        softmax((70, 64), 1),
        softmax((5, 33), 1, log=True),
        softmax((6, 9000), -1),
        softmax((3, 20, 37), 1),
        softmax((2048, 256), 1),
        softmax((4, 18, 5), 0, log=True),
    ],
}
