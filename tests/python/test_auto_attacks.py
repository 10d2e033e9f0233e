"""Functions that capture themselves, where that is dangerous: all is as with the function alone.

Results are, and how often Python ran where it had to, and what is left after an error."""

import functools
import itertools
import threading

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

auto = torch.ocl.graphs.auto


class Failed(Exception):
    pass


def ones(*shape):
    return torch.ones(shape or (3,), device="ocl")


def both(make, calls=9):
    """Compares the function alone with the captured one.

    `make(wrap)` returns a function of a call's number, which returns what is to be equal."""
    found = []
    for wrap in (lambda f: f, auto):
        torch.manual_seed(3)
        call = make(wrap)
        found.append([plain(call(i)) for i in range(calls)])
    assert found[0] == found[1]


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


@pytest.mark.parametrize("at", range(8))
def test_an_exception_leaves_what_was_written(at):
    def make(wrap):
        total, fail = ones(), [False]

        def step(x, y):
            total.add_(x)
            y.mul_(2)
            if helper():
                raise Failed
            total.mul_(2)
            return total + y

        # Not seen: it is inside an object with slots.
        class Box:
            __slots__ = ("count",)

        box = Box()
        box.count = 0

        def helper():
            box.count += 1
            return box.count == at + 1

        call = wrap(step)

        def run(i):
            x, y = ones() * i, ones() * (i + 1)
            try:
                result = call(x, y)
            except Failed:
                result = "failed"
            return result, total, x, y, fail

        return run

    # The count goes on only where Python runs, so it fails in the calls before replays, or never.
    if at < 4:
        both(make)


@pytest.mark.parametrize(
    "what",
    [
        lambda x: x.sum().item(),
        lambda x: torch.tensor([1.0, 2.0, 4.0]).to("ocl") * x,
        lambda x: torch.ocl.synchronize(),
        lambda x: (torch.manual_seed(5), torch.rand(3, device="ocl"))[1],
        lambda x: (torch.manual_seed(3), torch.rand(3, device="ocl"))[1],
        lambda x: torch.randperm(3000, device="ocl")[:3] + torch.randperm(5, device="ocl")[0],
        lambda x: torch.ocl.get_rng_state().sum().item(),
        lambda x: x.cpu() + 1,
        lambda x: torch.nonzero(x),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_python_runs_once_where_something_cannot_be_captured(what, late):
    """`late`: only in the call that is captured, so that no call before has shown it."""

    def make(wrap):
        state = torch.zeros(3, device="ocl")

        class Box:
            __slots__ = ("count",)

        box = Box()
        box.count = 0

        def step(x):
            box.count += 1
            noise = torch.rand(3, device="ocl")
            state.add_(x)
            found = what(state) if not late or box.count == 4 else state * 3
            state.mul_(2)
            return state + noise + torch.rand(3, device="ocl"), found

        call = wrap(step)

        def run(i):
            result = call(ones() * i)
            return result, state, box.count

        return run

    both(make, calls=5 if late else 9)


def test_results_that_cannot_be_replayed_are_computed_once():
    def make(wrap, result):
        weight = ones().requires_grad_()

        class Box:
            __slots__ = ("count",)

        box = Box()
        box.count = 0

        def step(x):
            box.count += 1
            return result(x, weight)

        call = wrap(step)

        def run(i):
            x = ones() * i
            found = call(x)
            if isinstance(found, torch.Tensor):
                with torch.no_grad():
                    found[0] += 5
                if found.requires_grad:
                    found.sum().backward()
                    return found, weight.grad, box.count
                return found, x, box.count
            return list(found), x, box.count

        return run

    for result in (
        lambda x, w: w * x,
        lambda x, w: x[1:],
        lambda x, w: x.view(1, 3).t(),
        lambda x, w: (y for y in (x * 2, x)),
        lambda x, w: map(float, (1, 2)),
        lambda x, w: x.cpu(),
    ):
        both(functools.partial(make, result=result))


def test_what_is_returned_again_and_again():
    table = torch.zeros(4, device="ocl")

    def step(x):
        table.add_(x)
        return table, None, x, 3

    call = auto(step)
    for i in range(8):
        x = ones(4)
        found = call(x)
        assert found[0] is table and found[1] is None and found[2] is x and found[3] == 3
        assert table.tolist() == [i + 1.0] * 4
    assert call.replays == 5


def test_state_that_python_passes_on():
    """A recurrent state, a toggle, a counter, a list: a replay would not pass them on."""

    def recurrent(wrap):
        state = {"h": torch.zeros(3, device="ocl")}

        def step(x):
            state["h"] = torch.tanh(state["h"] + x)
            return state["h"] * 2

        call = wrap(step)
        return lambda i: call(ones() * i)

    def toggle(wrap):
        state = [True]

        def step(x):
            state[0] = not state[0]
            return x * 2 if state[0] else x * 3

        call = wrap(step)
        return lambda i: call(ones() * i)

    def appended(wrap):
        kept = []

        def step(x):
            kept.append(x * 2)
            return x + 1

        call = wrap(step)
        return lambda i: (call(ones() * i), list(kept))

    def counted(wrap):
        class Model:
            calls = 0

            def step(self, x):
                self.calls += 1
                return x * self.calls

        model = Model()
        call = wrap(model.step)
        return lambda i: (call(ones() * i), model.calls)

    for make in (recurrent, toggle, appended, counted):
        both(make, calls=14)


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


def net_and_step():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.LayerNorm(8), nn.Linear(8, 2)).to(
        "ocl"
    )
    return net, lambda x: net(x) * 2


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


def test_functions_of_auto_in_each_other():
    factor = [1.0]
    inner = auto(lambda x: x * factor[0])
    outer = auto(lambda x: inner(x) + 1)
    for factor[0] in (1.0, 2.0):
        for i in range(7):
            assert outer(ones() * i).tolist() == [i * factor[0] + 1] * 3
    assert outer.replays == 8 and inner.replays == 0


def test_streams():
    side = torch.ocl.Stream()

    def step(x):
        side.wait_stream(torch.ocl.current_stream())
        with torch.ocl.stream(side):
            y = x * 2
        torch.ocl.current_stream().wait_stream(side)
        return y + 1

    def unjoined(x):
        side.wait_stream(torch.ocl.current_stream())
        with torch.ocl.stream(side):
            y = x * 2
        return y

    for function, replays in ((step, 5), (unjoined, 0)):
        call = auto(function)
        for i in range(8):
            found, expected = call(ones() * i), function(ones() * i)
            torch.ocl.synchronize()
            assert found.tolist() == expected.tolist()
        assert call.replays == replays, call.reason
    other = torch.ocl.Stream()
    call = auto(lambda x: (x * 2).exp().log() + 1)
    for i in range(12):
        x = ones(1000) * i
        other.wait_stream(torch.ocl.current_stream())
        with torch.ocl.stream(other if i % 2 else torch.ocl.current_stream()):
            found = call(x)
        torch.ocl.synchronize()
        torch.testing.assert_close(found, x * 2 + 1)
    assert call.graphs == 2


@pytest.mark.parametrize("same_stream", [True, False])
def test_threads(same_stream):
    net, _ = net_and_step()
    net.eval()
    bias = ones(2)
    call = auto(lambda x: (net(x) + bias).exp().sum(0))
    wrong, started = [], threading.Barrier(4)

    def work(number):
        started.wait()
        stream = torch.ocl.current_stream() if same_stream else torch.ocl.Stream()
        with torch.no_grad(), torch.ocl.stream(stream):
            for i in range(40):
                x = torch.full((2, 4), number + i / 64, device="ocl")
                found, expected = call(x), (net(x) + bias).exp().sum(0)
                if not torch.equal(found, expected):
                    wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and call.replays > 0


def test_a_thread_works_beside_a_capture():
    """Its ops go to the stream that the call came from, and are no part of the graph."""
    counter = torch.zeros(1, device="ocl")

    class Box:
        __slots__ = ("calls", "done", "go")

    box = Box()
    box.calls, box.go, box.done = 0, threading.Event(), threading.Event()

    def add():
        box.go.wait()
        counter.add_(1)
        box.done.set()

    thread = threading.Thread(target=add)
    thread.start()

    def step(x):
        box.calls += 1
        if box.calls == 4:
            box.go.set()
            box.done.wait()
        return x + 1

    call = auto(step)
    for _ in range(8):
        call(ones())
    thread.join()
    assert call.replays == 5 and counter.item() == 1


@pytest.mark.parametrize(
    "make", [itertools.count, lambda: iter(range(99)), lambda: (i for i in range(99))]
)
def test_iterators(make):
    def of(wrap):
        steps = make()
        return wrap(lambda x: x + next(steps))

    plain_call, call = of(lambda f: f), of(auto)
    for _ in range(8):
        assert torch.equal(plain_call(ones()), call(ones()))
    assert call.replays == 0 and "iterator" in call.reason
