"""torch.optim.LBFGS on the device against upstream's step in float64 on the CPU: its state, its
line search, its history, and what it costs."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.testing import assert_close


def rosenbrock(p):
    return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()


def quadratic(p):
    return (torch.linspace(1, 30, p.numel(), dtype=p.dtype).to(p.device) * p * p).sum() / 2


def run(device, dtype, function, steps, elements=37, **options):
    """The parameter after each step, and the optimiser."""
    start = torch.linspace(-1.2, 1.1, elements, dtype=torch.float64)
    p = start.to(dtype).to(device).requires_grad_()
    optimiser = torch.optim.LBFGS([p], **options)

    def closure():
        optimiser.zero_grad()
        loss = function(p)
        loss.backward()
        return loss

    seen = []
    for _ in range(steps):
        optimiser.step(closure)
        seen.append(p.detach().clone().cpu().double())
    return seen, optimiser


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize("history", [1, 3, 12, 100])
@pytest.mark.parametrize("elements", [1, 7, 37, 1000])
def test_float64_is_upstreams(line_search, history, elements):
    options = {"history_size": history, "line_search_fn": line_search, "max_iter": 9}
    options |= {"elements": elements, "lr": 0.02 if line_search is None else 1}
    ours, mine = run("ocl", torch.float64, quadratic, 4, **options)
    theirs, other = run("cpu", torch.float64, quadratic, 4, **options)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-9)
    mine, other = (next(iter(o.state.values())) for o in (mine, other))
    assert mine["n_iter"] == other["n_iter"] and mine["func_evals"] == other["func_evals"]
    assert len(mine["old_dirs"]) == len(other["old_dirs"])
    assert set(mine) | {"al"} == set(other) | {"al"}


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_float32_is_no_less_exact_than_cpu_torch(line_search):
    options = {"line_search_fn": line_search, "max_iter": 12, "tolerance_change": 0}
    options["lr"] = 0.002 if line_search is None else 1
    exact, _ = run("cpu", torch.float64, rosenbrock, 1, **options)
    ours, _ = run("ocl", torch.float32, rosenbrock, 1, **options)
    theirs, _ = run("cpu", torch.float32, rosenbrock, 1, **options)
    error, allowed = ((x[-1] - exact[-1]).abs().max() for x in (ours, theirs))
    assert error <= 2 * allowed + 1e-6


def test_a_state_goes_on_after_loading():
    for history in (4, 100):
        options = {"history_size": history, "max_iter": 7, "lr": 0.02}
        whole, _ = run("ocl", torch.float64, quadratic, 4, **options)
        for device in ("ocl", "cpu"):
            seen, first = run(device, torch.float64, quadratic, 2, **options)
            stream = io.BytesIO()
            torch.save(first.state_dict(), stream)
            stream.seek(0)
            p = seen[-1].clone().to("ocl").requires_grad_()
            second = torch.optim.LBFGS([p], **options)
            second.load_state_dict(torch.load(stream))

            def closure(p=p, second=second):
                second.zero_grad()
                loss = quadratic(p)
                loss.backward()
                return loss

            for _ in range(2):
                second.step(closure)
            assert_close(p.detach().cpu(), whole[-1], rtol=1e-8, atol=1e-8)


def test_steps_of_a_wrong_curvature_are_left_out():
    """Pairs of a function that curves downwards aren't kept."""

    def hill(p):
        return -(p * p).sum() + 0.1 * p.sum()

    options = {"max_iter": 5, "lr": 0.01, "history_size": 2}
    ours, mine = run("ocl", torch.float64, hill, 2, **options)
    theirs, _ = run("cpu", torch.float64, hill, 2, **options)
    assert_close(ours[-1], theirs[-1])
    assert next(iter(mine.state.values()))["old_dirs"] == []


def test_several_parameters_and_one_without_a_gradient():
    def train(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double().to(device)
        unused = nn.Parameter(torch.ones(2, dtype=torch.float64, device=device))
        another = nn.Parameter(torch.ones(3, 4, dtype=torch.float64, device=device))
        x = torch.linspace(-1, 1, 24, dtype=torch.float64).view(8, 3).to(device)
        parameters = [*model.parameters(), unused, another]
        optimiser = torch.optim.LBFGS(parameters, line_search_fn="strong_wolfe", max_iter=6)

        def closure():
            optimiser.zero_grad()
            loss = (model(x) ** 2).mean() + ((x @ another) ** 2).mean()
            loss.backward()
            return loss

        losses = [optimiser.step(closure).item() for _ in range(3)]
        return losses, [p.detach().cpu() for p in parameters]

    assert_close(train("ocl"), train("cpu"), rtol=1e-7, atol=1e-9)


def test_a_direction_is_one_launch():
    def count(steps):
        torch.ocl.reset_launch_count()
        run("ocl", torch.float32, quadratic, 1, max_iter=steps, lr=0.01, tolerance_change=0)
        return torch.ocl.launch_count()

    count(60), count(20)
    # Most are the closure's. Upstream's step has nine for each pair of the history.
    assert (count(60) - count(20)) / 40 < 40


def test_hooks_and_subclasses_are_upstreams():
    calls = []

    class Mine(torch.optim.LBFGS):
        def _gather_flat_grad(self):
            calls.append("gather")
            return super()._gather_flat_grad()

    p = torch.ones(3, device="ocl", requires_grad=True)
    optimiser = Mine([p], max_iter=2)
    optimiser.register_step_pre_hook(lambda *_: calls.append("before"))

    def closure():
        optimiser.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    assert calls[0] == "before" and "gather" in calls
    assert calls.count("before") == 1


def test_a_copy_of_the_optimiser_has_a_history_of_its_own():
    options = {"max_iter": 5, "lr": 0.02, "history_size": 3}
    _, first = run("ocl", torch.float64, quadratic, 2, **options)
    before = copy.deepcopy(first.state_dict())
    p = first.param_groups[0]["params"][0]
    second = torch.optim.LBFGS([p.detach().clone().requires_grad_()], **options)
    second.load_state_dict(first.state_dict())
    q = second.param_groups[0]["params"][0]

    def closure():
        second.zero_grad()
        loss = quadratic(q)
        loss.backward()
        return loss

    second.step(closure)
    assert_close(first.state_dict()["state"][0]["old_dirs"], before["state"][0]["old_dirs"])


def test_what_a_line_search_is_called_is_checked():
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        run("ocl", torch.float32, quadratic, 1, line_search_fn="other")
