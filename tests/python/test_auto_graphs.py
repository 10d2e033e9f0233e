"""Functions that capture themselves: results are those without, whatever changes between calls."""

import contextlib

import pytest
import torch
from torch import nn
from torch.testing import assert_close

auto = torch.ocl.graphs.auto


def network():
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 4)]
    return nn.Sequential(*layers).to("ocl")


def batches(count, rows=6):
    generator = torch.Generator().manual_seed(1)
    sizes = [rows] * count if isinstance(rows, int) else rows
    return [torch.randn(n, 8, generator=generator).to("ocl") for n in sizes]


def losses(wrap, prepare=lambda i, net, optimizer: None, rows=6, kind=torch.optim.Adam, **options):
    """The losses of 14 steps, the weights after them, and the step's callable."""
    net = network()
    optimizer = kind(net.parameters(), lr=1e-2, **options)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    call, found = wrap(step), []
    for i, x in enumerate(batches(14, rows)):
        prepare(i, net, optimizer)
        found.append(call(x))
    weights = [t.clone() for t in net.state_dict().values()]
    gradients = [p.grad.clone() for p in net.parameters()]
    return torch.stack(found), weights, gradients, call


def check(**arguments):
    """Bit for bit what the function alone does, random numbers included."""
    *want, _ = losses(lambda f: f, **arguments)
    *got, step = losses(auto, **arguments)
    for one, other in zip(got, want, strict=True):
        assert_close(one, other, rtol=0, atol=0)
    return step


@pytest.mark.parametrize(
    "kind, options",
    [(torch.optim.Adam, {"fused": True}), (torch.optim.AdamW, {"capturable": True}),
     (torch.optim.SGD, {"momentum": 0.9}), (torch.optim.SGD, {})],
)  # fmt: skip
def test_training(kind, options):
    step = check(kind=kind, **options)
    assert step.graphs == 1 and step.replays >= 8 and step.reason is None


def test_other_shapes_have_graphs_of_their_own():
    step = check(rows=[6, 5] * 7, fused=True)
    assert step.graphs == 2 and step.replays >= 2


def test_a_learning_rate_that_changes():
    def prepare(i, net, optimizer):
        optimizer.param_groups[0]["lr"] = 1e-2 if i < 7 else 1e-3

    step = check(prepare=prepare, fused=True)
    assert step.graphs == 2

    def every(i, net, optimizer):
        optimizer.param_groups[0]["lr"] = 1e-2 / (i + 1)

    step = check(prepare=every, fused=True)
    assert step.graphs == 0


def test_a_learning_rate_on_the_device():
    rate = torch.tensor(1e-2, device="ocl")

    def prepare(i, net, optimizer):
        optimizer.param_groups[0]["lr"] = rate.fill_(1e-2 / (i + 1))

    step = check(prepare=prepare, fused=True)
    assert step.graphs == 1


def test_modes_of_modules():
    def prepare(i, net, optimizer):
        net.train(i % 7 < 6)

    assert check(prepare=prepare, fused=True).replays > 0


def test_parameters_and_states_that_are_replaced():
    def prepare(i, net, optimizer):
        if i == 7:
            for p in net.parameters():
                p.data = p.data.clone() * 0.5
        if i == 10:
            optimizer.load_state_dict(optimizer.state_dict())

    assert check(prepare=prepare, fused=True).graphs >= 1


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("every", [1, 2])
def test_gradients_that_are_dropped_outside(to_none, every):
    def run(wrap):
        net = network()
        found = []

        def backward(x):
            net(x).square().sum().backward()

        call = wrap(backward)
        for i, x in enumerate(batches(12)):
            if i % every == 0:
                net.zero_grad(set_to_none=to_none)
            call(x)
            found += [p.grad.clone() for p in net.parameters()]
        return found, call

    want, _ = run(lambda f: f)
    got, call = run(auto)
    assert_close(got, want, rtol=0, atol=0)
    assert call.replays > 0


def test_arguments_that_are_written_and_returned():
    def step(total, x, scale=1):
        total.add_(x, alpha=scale)
        return total, x, x * 2, "a word"

    call = auto(step)
    for i in range(9):
        total, x = torch.zeros(5, device="ocl"), torch.full((5,), float(i), device="ocl")
        same, given, twice, word = call(total, x, scale=2)
        assert same is total and given is x and word == "a word"
        assert total.tolist() == [2.0 * i] * 5 and twice.tolist() == [2.0 * i] * 5
    assert call.replays == 6
    call = auto(step)
    pairs = torch.zeros(2, 5, device="ocl")
    for i in range(6):  # both lie in one memory, and one is written
        pairs = torch.full((2, 5), float(i), device="ocl")
        *_, twice, _ = call(pairs[0], pairs[0])
        assert pairs.tolist() == [[2.0 * i] * 5, [1.0 * i] * 5] and twice.tolist() == [4.0 * i] * 5
    assert call.replays == 3


def test_results_outlive_later_calls():
    call = auto(lambda x: x + 1)
    kept = [call(torch.full((3,), float(i), device="ocl")) for i in range(8)]
    assert [k[0].item() for k in kept] == [i + 1.0 for i in range(8)] and call.replays == 5


def test_the_same_tensors_are_not_copied():
    x = torch.zeros(4, device="ocl")
    call = auto(lambda x: x.add_(1))
    for _ in range(6):
        assert call(x) is x
    torch.ocl.reset_launch_count()
    call(x)
    assert torch.ocl.launch_count() == 1 and x.tolist() == [7.0] * 4
    other = torch.zeros(4, device="ocl")
    for i in range(3):  # the graph is captured once more, with a copy
        call(other)
        assert other.tolist() == [i + 1.0] * 4
    assert x.tolist() == [7.0] * 4


FACTOR = 1.0
TABLE = None


def test_what_a_function_reads():
    global FACTOR, TABLE
    TABLE = torch.ones(3, device="ocl")
    FACTOR = 1.0
    local, owned = 1.0, [torch.ones(3, device="ocl")]

    class Holder:
        number = 1.0

        def __init__(self):
            self.factor = 1.0

        def step(self, x):
            return x * FACTOR + TABLE * local + owned[0] * self.factor

    holder = Holder()
    call = auto(holder.step)
    x = torch.ones(3, device="ocl")

    def run():
        for _ in range(5):
            assert_close(call(x), holder.step(x), rtol=0, atol=0)

    run()
    FACTOR = 2.0
    run()
    TABLE = torch.full((3,), 3.0, device="ocl")
    run()
    local = 4.0
    run()
    owned[0] = torch.full((3,), 5.0, device="ocl")
    run()
    holder.factor = 6.0
    run()
    assert call.graphs == 6 and call.replays == 12


def test_watched_values():
    state = {"factor": 1.0}

    def inner(x):
        return x * state["factor"]

    def outer(x, inner=inner):
        return inner(x)

    x = torch.ones(3, device="ocl")
    call = auto(outer, watch=[lambda: state["factor"]])
    for factor in (1.0, 2.0, 1.0):
        state["factor"] = factor
        for _ in range(5):
            assert call(x).tolist() == [factor] * 3
    assert call.graphs == 2


def test_reading_from_the_device_is_refused():
    def step(x):
        return x * x.sum().item()

    call = auto(step)
    x = torch.arange(3.0, device="ocl")
    for _ in range(6):
        assert call(x).tolist() == [0.0, 3.0, 6.0]
    assert call.graphs == 0 and call.replays == 0 and "reads from it" in call.reason


def test_refused_arguments():
    call = auto(lambda x: x.to("ocl") * 2)
    for _ in range(5):
        assert call(torch.ones(2)).tolist() == [2.0, 2.0]
    assert "isn't a dense tensor of the device" in call.reason
    leaf = torch.ones(2, device="ocl", requires_grad=True)
    for _ in range(5):
        call(leaf).sum().backward()
    assert "make_graphed_callables" in call.reason and leaf.grad.tolist() == [10.0, 10.0]
    with torch.no_grad():
        for _ in range(5):
            call(leaf)
    assert call.graphs == 1


def test_steps_counted_on_the_host_are_refused():
    step = check()
    assert step.graphs == 0 and "capturable=True or fused=True" in step.reason


def test_a_failed_capture_leaves_gradients_alone():
    net = network()

    def step(x):
        net.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss  # with its history

    call = auto(step)
    for x in batches(6):
        call(x)
        assert all(bool(p.grad.isfinite().all()) for p in net.parameters())
    assert call.graphs == 0 and "history" in call.reason


def test_modes_and_failed_checks():
    index = torch.tensor([0, 2], device="ocl")
    call = auto(lambda x, i: x[i] * 2)
    x = torch.arange(3.0, device="ocl")
    for mode in (torch.no_grad, torch.enable_grad, contextlib.nullcontext):
        with mode():
            for _ in range(5):
                assert call(x, index).tolist() == [0.0, 4.0]
    assert call.graphs == 2
    index.fill_(7)
    with pytest.raises(IndexError):
        call(x, index).tolist()


def test_within_another_capture_and_reset():
    call = auto(lambda x: x + 1)
    x = torch.ones(3, device="ocl")
    for _ in range(5):
        call(x)
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        y = call(x)
    graph.replay()
    assert y.tolist() == [2.0] * 3
    call.reset()
    assert call.graphs == 0 and call(x).tolist() == [2.0] * 3
    with pytest.raises(ValueError, match="positive"):
        auto(lambda x: x, after=0)


def test_not_more_graphs_than_asked_for():
    call = auto(lambda x, n: x * n, after=1, most=2)
    x = torch.ones(2, device="ocl")
    for n in range(5):
        for _ in range(3):
            assert call(x, n).tolist() == [float(n)] * 2
    assert call.graphs == 2


def test_arguments_that_share_memory_are_another_form():
    def function(a, b):
        a.add_(1)
        return b * 2

    auto = torch.ocl.graphs.auto(function)

    def apart():
        return torch.zeros(2, device="ocl"), torch.zeros(2, device="ocl")

    def same():
        return (torch.zeros(2, device="ocl"),) * 2

    def overlapping():
        x = torch.zeros(3, device="ocl")
        return x[:2], x[1:]

    for make in (apart, same, overlapping):
        for _ in range(6):
            given, expected = make(), make()
            assert torch.equal(auto(*given), function(*expected))
            assert all(map(torch.equal, given, expected))
    assert auto.replays > 0


def test_a_number_in_a_tensor_of_the_cpu_is_compared():
    number = torch.tensor(0.0)
    auto = torch.ocl.graphs.auto(lambda x: x + number)
    for i in range(8):
        number.fill_(i)
        assert auto(torch.zeros(1, device="ocl")).item() == i


def test_the_precision_of_products_is_compared():
    auto = torch.ocl.graphs.auto(lambda x: x @ x)
    x = torch.randn(64, 64, device="ocl")
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "medium", "highest"):
            torch.set_float32_matmul_precision(precision)
            for _ in range(5):
                assert torch.equal(auto(x), x @ x), precision
    finally:
        torch.set_float32_matmul_precision(before)
