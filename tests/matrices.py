"""Random matrices for the tests of linear algebra, and a comparison that suits its results."""

import torch
from torch.testing import assert_close


def general(*shape, dtype):
    return torch.randn(*shape, dtype=dtype)


def regular(n, batch, dtype):
    """Well conditioned, with rows that have to be swapped."""
    order = torch.randperm(n)
    return (general(*batch, n, n, dtype=dtype) + 3 * n**0.5 * torch.eye(n, dtype=dtype))[
        ..., order, :
    ]


def positive(n, batch, dtype):
    a = general(*batch, n, n, dtype=dtype)
    return a @ a.mH + (n + 1) * torch.eye(n, dtype=dtype)


def unaligned(x):
    """Copies of the matrices, none of whose strides is that of a contiguous tensor."""
    wide = torch.zeros(*x.shape[:-2], 2 * x.shape[-2] + 1, 3 * x.shape[-1] + 1, dtype=x.dtype)
    view = wide[..., 1 : 2 * x.shape[-2] + 1 : 2, 1 : 3 * x.shape[-1] + 1 : 3]
    view.copy_(x)
    return view


def close_gradients(function, a):
    """The gradient of what `function` makes of `a`, on the device against CPU torch's."""
    results = []
    for device in ("cpu", "ocl"):
        leaf = a.to(device).requires_grad_()
        out = function(leaf)
        weight = torch.linspace(1, 2, out.numel(), dtype=torch.float64).view(out.shape).to(device)
        results.append(torch.autograd.grad((out * weight).abs().sum(), leaf)[0])
    close(results[1], results[0])


def close(actual, expected, scale=10):
    """Within `scale` times the usual tolerance, relative to the largest element: elements of a
    factor are sums over a row."""
    largest = float(expected.abs().max()) if expected.numel() else 1.0
    single = expected.dtype in (torch.float32, torch.complex64)
    rtol = 1.3e-6 if single else 1e-7
    assert actual.device.type == "ocl"
    assert_close(
        actual.cpu().resolve_conj(),
        expected.resolve_conj(),
        rtol=rtol * scale,
        atol=rtol * scale * max(largest, 1e-3),
    )
