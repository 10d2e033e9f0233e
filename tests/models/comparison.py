"""Runs a network on both devices: results, gradients and some steps of training."""

import copy

import torch
from torch import nn
from torch.utils._pytree import tree_map_only


def assert_same_network(model, inputs, call, steps=3, memory_format=torch.preserve_format):
    """`call(model, inputs)` gives (outputs, loss) on the device as it does on the CPU.

    In double precision results, gradients and the losses of some SGD steps agree to 1e-6 of their
    size (parts of some networks compute in single precision whatever they are given). In single
    precision results agree to 1e-4 of their size; the kink of a ReLU or a tie in a pooling window
    can turn a rounding error into a step, so gradients are held to 4 times CPU torch's own error,
    or 1e-4, as one vector, and batch norms, which magnify it over a few images, use their running
    statistics. On the device, parameters and images have the memory format.
    """
    exact = _run(model, inputs, call, "cpu", torch.float64, steps)
    got = _run(model, inputs, call, "ocl", torch.float64, steps, memory_format=memory_format)
    _compare(exact, got, 1e-6)
    want = _run(model, inputs, call, "cpu", torch.float32, 0, settled=True)
    got = _run(
        model, inputs, call, "ocl", torch.float32, 0, settled=True, memory_format=memory_format
    )
    _close("outputs", got["outputs"], want["outputs"], 1e-4)
    exact = _run(model, inputs, call, "cpu", torch.float64, 0, settled=True)
    error = _distance(got, exact)
    allowed = max(4 * _distance(want, exact), 1e-4)
    assert error <= allowed, f"gradients: {error:.2e} off, {allowed:.2e} allowed"


def assert_close_in(dtype, model, inputs, call, tolerance, steps=3):
    """Results, gradients and the losses of some SGD steps in a half type are near float32's."""
    want = _run(model, inputs, call, "cpu", torch.float32, steps, settled=True)
    got = _run(model, inputs, call, "ocl", dtype, steps, settled=True)
    error = _distance(got, want, "outputs")
    assert error < tolerance, f"outputs: {error:.2e} off"
    error = _distance(got, want)
    assert error < 4 * tolerance, f"gradients: {error:.2e} off"
    # The first is a result; those after the steps come from the gradients.
    _close("loss", got["losses"][:1], want["losses"][:1], tolerance)
    _close("losses", got["losses"], want["losses"], 4 * tolerance)


def distances(model, inputs, call):
    """Relative differences from CPU torch, of all elements together: of single precision results,
    training; of gradients, on either device, from double precision, with settled batch norms; of
    losses over three steps in double precision; of float16 and of bfloat16 results."""
    exact = _run(model, inputs, call, "cpu", torch.float64, 0, settled=True)
    gradients = [
        _distance(_run(model, inputs, call, device, torch.float32, 0, settled=True), exact)
        for device in ("ocl", "cpu")
    ]
    want = _run(model, inputs, call, "cpu", torch.float64, 3)["losses"]
    losses = _run(model, inputs, call, "ocl", torch.float64, 3)["losses"]
    training = _run(model, inputs, call, "cpu", torch.float32, 0)
    outputs = [
        _distance(_run(model, inputs, call, "ocl", dtype, 0), training, "outputs")
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    ]
    return [outputs[0], *gradients, float((losses - want).norm() / want.norm()), *outputs[1:]]


def _run(
    model, inputs, call, device, dtype, steps, settled=False, memory_format=torch.preserve_format
):
    def convert(t):
        t = t.to(device, dtype if t.is_floating_point() else t.dtype)
        return t.to(memory_format=memory_format) if t.dim() == 4 else t

    model = copy.deepcopy(model).to(device, dtype).to(memory_format=memory_format)
    for module in model.modules():
        if settled and isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    inputs = tree_map_only(torch.Tensor, convert, inputs)
    outputs, loss = call(model, inputs)
    loss.backward()
    for name, p in model.named_parameters():
        if p.grad is not None:
            assert _strides(p.grad) == _strides(p), f"{name}: the gradient lies otherwise"
    result = {
        "outputs": outputs.detach().cpu().double(),
        "gradients": {
            name: p.grad.cpu().double()
            for name, p in model.named_parameters()
            if p.grad is not None
        },
    }
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    losses = [loss.item()]
    for _ in range(steps):
        optimiser.step()
        optimiser.zero_grad()
        loss = call(model, inputs)[1]
        loss.backward()
        losses.append(loss.item())
    result["losses"] = torch.tensor(losses, dtype=torch.float64)
    return result


def _strides(tensor):
    """Those that say where an element lies."""
    return [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def _compare(want, got, tolerance):
    _close("outputs", got["outputs"], want["outputs"], tolerance)
    _close("losses", got["losses"], want["losses"], tolerance)
    assert got["gradients"].keys() == want["gradients"].keys()
    largest = max(g.abs().max() for g in want["gradients"].values())
    for name, gradient in want["gradients"].items():
        _close(name, got["gradients"][name], gradient, tolerance, largest * 1e-3)


def _close(what, got, want, tolerance, least=0.0):
    """Differences are small beside the largest element (or `least`)."""
    size = max(float(want.abs().max()), float(least), 1e-30)
    error = float((got - want).abs().max()) / size
    assert error <= tolerance, f"{what}: {error:.2e} off, {tolerance:.2e} allowed"


def _distance(got, want, part="gradients"):
    """The relative error of all elements together."""
    if part == "outputs":
        return float((got[part] - want[part]).norm() / want[part].norm())
    difference = sum(float((got[part][n] - g).square().sum()) for n, g in want[part].items())
    size = sum(float(g.square().sum()) for g in want[part].values())
    return (difference / size) ** 0.5
