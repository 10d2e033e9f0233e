"""Functions that capture themselves, where that is dangerous: all is as with the function alone.

Results are, and how often Python ran where it had to, and what is left after an error."""

import functools
import itertools
import threading

import pytest
import torch

from tests.python.auto_calls import Calls, auto, both, net_and_step, ones


class Failed(Exception):
    pass


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

        calls = Calls()

        def helper():
            calls.count += 1
            return calls.count == at + 1

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

        calls = Calls()

        def step(x):
            calls.count += 1
            noise = torch.rand(3, device="ocl")
            state.add_(x)
            found = what(state) if not late or calls.count == 4 else state * 3
            state.mul_(2)
            return state + noise + torch.rand(3, device="ocl"), found

        call = wrap(step)

        def run(i):
            result = call(ones() * i)
            return result, state, calls.count

        return run

    both(make, calls=5 if late else 9)


def test_results_that_cannot_be_replayed_are_computed_once():
    def make(wrap, result):
        weight = ones().requires_grad_()

        calls = Calls()

        def step(x):
            calls.count += 1
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
                    return found, weight.grad, calls.count
                return found, x, calls.count
            return list(found), x, calls.count

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

    calls, go, done = Calls(), threading.Lock(), threading.Lock()
    go.acquire(), done.acquire()

    def add():
        go.acquire()
        counter.add_(1)
        done.release()

    thread = threading.Thread(target=add)
    thread.start()

    def step(x):
        calls.count += 1
        if calls.count == 4:
            go.release()
            done.acquire()
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
