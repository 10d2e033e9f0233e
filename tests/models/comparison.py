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


def distances(model, inputs, call, steps=3):
    """{(what, dtype): [the device's distance, CPU torch's own]} from CPU torch in double precision.

    "outputs" are those in training, "gradients" those of batch norms on their running statistics,
    "parameters" what some steps of SGD make of them, as do "losses" in double precision, where
    batch norms train and nothing of CPU torch's own is left. Differences are relative, of all
    elements together; "largest output" and "largest gradient" are absolute ones of an element.
    """

    def run(device, dtype, steps=0, settled=False):
        return _run(model, inputs, call, device, dtype, steps, settled)

    exact, settled = (run("cpu", torch.float64, steps, settled=s) for s in (False, True))
    got = run("ocl", torch.float64, steps)
    found = {
        ("losses", torch.float64): [_relative(got["losses"], exact["losses"])],
        ("parameters", torch.float64): [_of_parameters(got, exact)],
    }
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for device in ("ocl", "cpu"):
            training = run(device, dtype)
            calm = run(device, dtype, steps if dtype == torch.float32 else 0, settled=True)
            difference = training["outputs"] - exact["outputs"]
            for what, distance in {
                "outputs": _distance(training, exact, "outputs"),
                "largest output": float(difference.abs().max()),
                "gradients": _distance(calm, settled),
                "largest gradient": _largest(calm["gradients"], settled["gradients"]),
                "parameters": _of_parameters(calm, settled),
            }.items():
                found.setdefault((what, dtype), []).append(distance)
    return found


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
    result["parameters"] = {n: p.detach().cpu().double() for n, p in model.named_parameters()}
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
        return _relative(got[part], want[part])
    difference = sum(float((got[part][n] - g).square().sum()) for n, g in want[part].items())
    size = sum(float(g.square().sum()) for g in want[part].values())
    return (difference / size) ** 0.5


def _relative(got, want):
    return float((got - want).norm() / want.norm())


def _largest(got, want):
    """The largest difference of an element of tensors by name."""
    return max(float((got[name] - t).abs().max()) for name, t in want.items())


def _of_parameters(got, want):
    """The largest difference beside its tensor's largest element; where that is nearly nothing, as
    of biases that started as zeros and that a norm takes away again, a thousandth of the largest
    of all tensors counts."""
    got, want = got["parameters"], want["parameters"]
    least = max(float(p.abs().max()) for p in want.values()) * 1e-3
    return max(
        float((got[name] - p).abs().max()) / max(float(p.abs().max()), least)
        for name, p in want.items()
    )
