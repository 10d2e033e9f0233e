"""Functions that capture themselves, where what they read changes: globals, modules, modes, and
memory. All is as with the function alone."""

import functools

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.python.auto_calls import auto, both, net_and_step, ones, plain

SCALE = 1.0


def helper_of_step(x):
    return x * SCALE


def test_what_helpers_configurations_and_partials_read():
    global SCALE

    class Config:
        def __init__(self):
            self.scale, self.inner = 1.0, {"bias": 0.0}

    config = Config()

    def step(scale, x):
        return helper_of_step(x) * config.scale + config.inner["bias"] + scale * x

    call = auto(functools.partial(step, 2.0))
    numbers = [(1.0, 1.0, 0.0), (2.0, 1.0, 0.0), (2.0, 3.0, 0.0), (2.0, 3.0, 4.0)]
    for SCALE, config.scale, config.inner["bias"] in numbers:
        for _ in range(6):
            assert torch.equal(call(ones()), step(2.0, ones()))
    assert call.graphs == 4 and call.replays == 12


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_and_nan(zero):
    call = auto(lambda x, v: torch.copysign(x, v))
    for v in (zero, -zero, float("nan"), zero):
        for _ in range(5):
            assert torch.equal(call(ones(), v).signbit(), torch.copysign(ones(), v).signbit())
    assert call.graphs == 3


@pytest.mark.parametrize("change", [
    lambda net: setattr(net[1], "p", 0.25),
    lambda net: setattr(net[2], "eps", 0.5),
    lambda net: net.eval(),
    lambda net: net[1].eval(),
    lambda net: setattr(net[2], "weight", nn.Parameter(torch.full((8,), 3.0, device="ocl"))),
    lambda net: setattr(net[3], "bias", None),
    lambda net: net.__setitem__(2, nn.Identity()),
    lambda net: net[0].register_forward_hook(lambda m, x, y: y * 3),
    lambda net: net[0].register_forward_pre_hook(lambda m, x: (x[0] * 3,)),
    lambda net: net.append(nn.ReLU()),
    lambda net: setattr(net[0], "forward", lambda x: nn.functional.linear(x, net[0].weight) * 5),
])  # fmt: skip
def test_modules_that_change(change):
    found = []
    for wrap in (lambda f: f, auto):
        net, step = net_and_step()
        call = wrap(step)
        with torch.no_grad():
            torch.manual_seed(1)
            results = [call(ones(2, 4)) for _ in range(6)]
            change(net)
            results += [call(ones(2, 4)) for _ in range(6)]
        found.append(plain(results))
    assert found[0] == found[1] and call.replays >= 2


class Settings:
    scale, deep = 1.0, {"a": [{"b": {"c": {"d": {"e": 1.0}}}}]}

    def factor(self):
        return self.scale

    def __getitem__(self, name):
        return self.scale

    @property
    def asked(self):
        return self.scale


class Nested:
    def __init__(self, depth):
        self.inner = Nested(depth - 1) if depth else {"scale": 1.0}


class Layer(nn.Module):
    scale = 1.0

    def __init__(self):
        super().__init__()
        self.settings = Settings()

    def forward(self, x):
        return scaled(x) * self.scale * self.settings.factor()


def scaled(x):
    return x * 1.0


def scaled_otherwise(x):
    return x * 5.0


for i in range(1, 6):
    exec(f"def chain_{i}(x):\n    return chain_{i + 1}(x)")


def chain_6(x, kept={"scale": 1.0}):  # noqa: B006
    return x * kept["scale"]


def replaced(owner, name, value):
    return lambda patch: patch.setattr(owner, name, value)


settings, nested = Settings(), Nested(9)
layers = nn.Sequential(Layer(), nn.Sequential(Layer()))  # PyTorch's own, which hold the program's
innermost = Settings.deep["a"][0]["b"]["c"]


@pytest.mark.parametrize("step, change", [
    (lambda x: x * settings.deep["a"][0]["b"]["c"]["d"]["e"],
     lambda patch: patch.setitem(innermost["d"], "e", 5.0)),
    (lambda x: x * nested.inner.inner.inner.inner.inner.inner.inner.inner.inner.inner["scale"],
     lambda patch: patch.setitem(functools.reduce(lambda n, _: n.inner, range(10), nested),
                                 "scale", 5.0)),
    (lambda x: chain_1(x),  # noqa: F821
     lambda patch: patch.setitem(chain_6.__defaults__[0], "scale", 5.0)),
    (lambda x: layers(x), replaced(Layer, "forward", lambda self, x: x * 5.0)),
    (lambda x: layers(x), replaced(Layer, "scale", 5.0)),
    (lambda x: layers(x), replaced(Settings, "scale", 5.0)),
    (lambda x: layers(x), replaced(Settings, "factor", lambda self: 5.0)),
    (lambda x: layers(x), lambda patch: patch.setitem(globals(), "scaled", scaled_otherwise)),
    (lambda x: layers(x), replaced(layers[1][0].settings, "scale", 5.0)),
    (lambda x: x * settings.factor(), replaced(Settings, "factor", lambda self: 5.0)),
    (lambda x: x * settings["a"], replaced(Settings, "__getitem__", lambda self, name: 5.0)),
    (lambda x: x * settings.asked, replaced(Settings, "asked", property(lambda self: 5.0))),
])  # fmt: skip
def test_what_lies_deep_and_what_is_replaced(step, change):
    call, x = auto(step), ones()
    with torch.no_grad():
        before = plain(step(x))
        for _ in range(7):
            assert plain(call(x)) == before
        assert call.replays >= 2, call.reason
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            assert plain(step(x)) != before
            for _ in range(7):
                assert plain(call(x)) == plain(step(x))
        assert plain(call(x)) == before


def test_what_is_nested_too_deep_runs_as_it_is():
    chain = functools.reduce(lambda inner, _: [inner], range(60), {"scale": 1.0})

    def step(x):
        return x * functools.reduce(lambda outer, _: outer[0], range(60), chain)["scale"]

    call = auto(step)
    for _ in range(6):
        assert torch.equal(call(ones()), ones())
    assert call.replays == 0 and "nested more than" in call.reason


def test_values_that_hold_themselves():
    circle = {"scale": 1.0}
    circle["again"] = [circle]
    call = auto(lambda x: x * circle["again"][0]["again"][0]["scale"])
    for circle["scale"] in (1.0, 2.0, 1.0):
        for _ in range(5):
            assert torch.equal(call(ones()), ones() * circle["scale"])
    assert call.graphs == 2, call.reason


def test_hooks_run_in_every_call():
    net, step = net_and_step()
    seen = []
    net[0].register_forward_hook(lambda m, x, y: seen.append(1))
    call = auto(step)
    with torch.no_grad():
        for _ in range(8):
            call(ones(2, 4))
    assert len(seen) == 8 and "hooks" in call.reason


@pytest.mark.parametrize("mode", [
    torch.inference_mode, torch.no_grad, torch.enable_grad,
    lambda: torch.autocast("ocl", torch.bfloat16, cache_enabled=False),
    lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    lambda: torch.device("cpu"),
    lambda: FlopCounterMode(display=False),
    lambda: torch.autograd.graph.save_on_cpu(),
    lambda: torch.autograd.detect_anomaly(check_nan=False),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Anomaly")
def test_modes_that_change(mode):
    def step(x):
        made = torch.zeros(1).device.type
        return (x @ x).float(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), made

    call = auto(step)
    x = torch.full((4, 4), 1.001, device="ocl")
    for _ in range(2):
        for _ in range(5):
            assert plain(call(x)) == plain(step(x))
        with mode():
            for _ in range(5):
                assert plain(call(x)) == plain(step(x))
    assert call.replays > 0


def test_inference_mode_is_captured():
    net, step = net_and_step()
    net.eval()
    call = auto(step)
    with torch.inference_mode():
        for i in range(8):
            x = ones(2, 4) * i
            assert torch.equal(call(x), step(x))
    assert call.replays == 4, call.reason


def test_flops_are_counted_in_every_call():
    call = auto(lambda x: x @ x)
    for _ in range(6):
        call(ones(4, 4))
    with FlopCounterMode(display=False) as counter:
        for _ in range(3):
            call(ones(4, 4))
    assert counter.get_total_flops() == 3 * 2 * 4**3


def test_schedulers_with_numbers():
    def make(wrap):
        net = nn.Linear(4, 2).to("ocl")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 6, 0.5)

        def step(x):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()

        call = wrap(step)

        def run(i):
            found = call(ones(3, 4) * i / 9)
            schedule.step()
            return found, net.weight, schedule.get_last_lr()

        return run

    both(make, calls=20)


def test_gradients_of_plain_leaves():
    def make(wrap):
        weight = ones().requires_grad_()

        def step(x):
            (weight * x).sum().backward()

        call = wrap(step)

        def run(i):
            if i % 3 == 0:
                weight.grad = None
            call(ones() * i)
            return weight.grad

        return run

    both(make, calls=20)


def test_in_place_on_parameters_and_views_of_what_is_read():
    def make(wrap):
        net = nn.Linear(3, 3).to("ocl")
        table = torch.zeros(4, 3, device="ocl")

        def step(row, x):
            with torch.no_grad():
                net.weight.mul_(0.5)
                row.add_(x)
                return net(x), table.sum(0)

        call = wrap(step)
        return lambda i: (call(table[i % 4], ones() * i), net.weight, table)

    both(make, calls=20)


def test_layouts_that_python_looks_at():
    def make(wrap):
        def step(x):
            return x + (1 if x.is_contiguous() else 2), x.stride(), x.is_contiguous()

        call = wrap(step)
        made = (lambda: ones(4, 6), lambda: ones(6, 4).t(), lambda: ones(4, 8)[:, :6],
                lambda: ones(4, 1).expand(4, 6), lambda: ones(0, 6))  # fmt: skip
        return lambda i: call(made[i // 6]())

    both(make, calls=30)
