"""The default steps of Adam, AdamW and SGD, which are one launch: CPU torch's results and state."""

import pytest
import torch

SHAPES = [(5, 7), (3,), (4, 3, 2), (1,), (40, 30)]
CASES = [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    (torch.optim.Adam, {"maximize": True, "betas": (0.5, 0.7), "eps": 1e-3}),
    (torch.optim.AdamW, {}),
    (torch.optim.AdamW, {"amsgrad": True, "maximize": True}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    (torch.optim.SGD, {"momentum": 0.8, "nesterov": True, "maximize": True}),
    (torch.optim.SGD, {"momentum": 0.8, "dampening": 0.5}),
]


def parameters(device, dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.randn(s, dtype=torch.float64).to(device, dtype).requires_grad_() for s in SHAPES]


def train(device, kind, options, dtype=torch.float64, gradients=lambda step, p: True, steps=4):
    """The parameters and the state after some steps."""
    owned = parameters(device, dtype)
    optimizer = kind(owned, lr=0.05, **options)
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] *= 0.9
        for i, p in enumerate(owned):
            gradient = torch.randn(p.shape, dtype=torch.float64, generator=generator)
            p.grad = gradient.to(device, dtype) if gradients(step, i) else None
        optimizer.step()
    return [p.detach().cpu() for p in owned], optimizer.state_dict()["state"]


def check(kind, options, dtype=torch.float64, **more):
    want, state = train("cpu", kind, options, dtype, **more)
    got, ours = train("ocl", kind, options, dtype, **more)
    torch.testing.assert_close(got, want)
    assert state.keys() == ours.keys()
    for i, values in state.items():
        assert values.keys() == ours[i].keys()
        for name, value in values.items():
            if not isinstance(value, torch.Tensor):
                assert ours[i][name] == value
                continue
            assert (ours[i][name].device.type == "cpu") == (name == "step")
            torch.testing.assert_close(ours[i][name].cpu(), value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("kind, options", CASES)
def test_results(kind, options, dtype):
    check(kind, options, dtype)


@pytest.mark.parametrize("kind, options", CASES)
def test_parameters_without_gradients_now_and_then(kind, options):
    check(kind, options, gradients=lambda step, i: (step + i) % 3 != 0)


@pytest.mark.parametrize("kind, options", CASES)
def test_launches(kind, options):
    owned = parameters("ocl", torch.float32)
    optimizer = kind(owned, lr=0.05, **options)
    for p in owned:
        p.grad = torch.ones_like(p)
    for _ in range(2):
        optimizer.step()
    torch.ocl.reset_launch_count()
    optimizer.step()
    # Adam's takes one more, for the number of steps.
    assert torch.ocl.launch_count() == (1 if kind is torch.optim.SGD else 2)


def test_what_goes_upstreams_way():
    check(torch.optim.Adam, {"foreach": False})
    for dtype in (torch.bfloat16, torch.float16):
        got, _ = train("ocl", torch.optim.Adam, {}, dtype, steps=1)
        want, _ = train("cpu", torch.optim.Adam, {}, dtype, steps=1)
        torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)
    leaf = torch.ones(3, device="ocl", requires_grad=True)
    leaf.grad = torch.ones_like(leaf)
    with pytest.raises((RuntimeError, ValueError), match="lr as a Tensor"):
        torch.optim.Adam([leaf], lr=torch.tensor(0.1, device="ocl"), foreach=True).step()


def test_sparse_and_complex_gradients():
    results = []
    for device in ("cpu", "ocl"):
        torch.manual_seed(0)
        table = torch.nn.Embedding(10, 4, sparse=True).to(device)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            table(torch.tensor([1, 3, 3], device=device)).sum().backward()
            optimizer.step()
        number = torch.full((3,), 1 + 2j, device=device, requires_grad=True)
        optimizer = torch.optim.Adam([number], lr=0.1)
        number.grad = torch.full_like(number, 0.5 - 1j)
        optimizer.step()
        results.append([table.weight.detach().cpu(), number.detach().cpu()])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_a_step_counts_as_a_write(kind, options):
    """A gradient through what the parameters were before is refused, as on the CPU."""
    w = torch.ones(3, device="ocl", requires_grad=True)
    loss, optimizer = (w * w).sum(), kind([w], lr=0.1, **options)
    for _ in range(2):
        w.grad = torch.ones_like(w)
        optimizer.step()
    assert w._version >= 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}])
def test_a_differentiable_step_of_sgd(options):
    def gradient(device):
        w = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
        parameter = (w * 2).clone()
        given = [torch.zeros(2, device=device, requires_grad=True)]
        optimizer = torch.optim.SGD(given, lr=0.1, differentiable=True, **options)
        optimizer.param_groups[0]["params"] = [parameter]
        parameter.grad = w * 3
        optimizer.step()
        parameter.sum().backward()
        return w.grad.cpu()

    torch.testing.assert_close(gradient("ocl"), gradient("cpu"))
