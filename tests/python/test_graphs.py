"""Captured graphs: replays compute what eager calls do, from their inputs' memory as it is then."""

import gc
import mmap

import pytest
import torch
from torch import nn
from torch.testing import assert_close


@pytest.fixture
def network():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 64, 32), nn.LayerNorm(32), nn.Softmax(1)).to("ocl")


def captured(function, pool=None):
    """The graph of a call, made after another one, and its result."""
    function()
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph, pool=pool):
        result = function()
    return graph, result


def test_replay(network):
    network.eval()
    x = torch.rand(4, 3, 8, 8, device="ocl")
    with torch.no_grad():
        graph, y = captured(lambda: network(x))
        for _ in range(3):
            x.copy_(torch.rand(4, 3, 8, 8))
            graph.replay()
            assert_close(y, network(x), rtol=0, atol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    """Its kernels have local memory behind more arguments than most have at all."""
    shapes = [(2, 4, 70, 16)] * 3
    q, k, v = (torch.rand(s, device="ocl", requires_grad=True) for s in shapes)
    attention = nn.functional.scaled_dot_product_attention

    def work():
        out = attention(q, k, v, is_causal=causal)
        return out.detach(), *torch.autograd.grad(out, (q, k, v), torch.ones_like(out))

    graph, results = captured(work)
    with torch.no_grad():
        q.copy_(torch.rand(q.shape))
    graph.replay()
    for replayed, eager in zip(results, work(), strict=True):
        assert_close(replayed, eager, rtol=0, atol=0)


def test_a_capture_executes_nothing():
    x = torch.zeros(5, device="ocl")
    launched = torch.ocl.launch_count()
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        assert torch.ocl.is_current_stream_capturing()
        x.add_(1)
        x.mul_(2)
    assert not torch.ocl.is_current_stream_capturing()
    assert torch.ocl.launch_count() == launched
    assert x.tolist() == [0] * 5
    for expected in (2, 6, 14):
        graph.replay()
        assert x.tolist() == [expected] * 5


def test_large_and_small_by_turns():
    small, large = torch.ones(7, device="ocl"), torch.ones(300_000, device="ocl")

    def work():
        large.add_(small.sum() / 7)
        small.mul_(2)
        small.add_(large[:7] - large.mean())

    graph, _ = captured(work)
    before = small.cpu(), large.cpu()
    for _ in range(4):
        graph.replay()
    replayed = small.cpu(), large.cpu()
    small.copy_(before[0])
    large.copy_(before[1])
    for _ in range(4):
        work()
    assert_close(replayed, (small.cpu(), large.cpu()), rtol=0, atol=0)


def test_copies_and_fills():
    x = torch.rand(1000, device="ocl")
    y = torch.empty_like(x)
    storage = torch.rand(1000, device="ocl").untyped_storage()

    def work():
        y.copy_(x)
        y[:10].zero_()
        y[10:20].fill_(3)
        return y.clone()

    graph, z = captured(work)
    x.fill_(7)
    graph.replay()
    assert z.tolist() == [0] * 10 + [3] * 10 + [7] * 980
    del storage


def test_memory_is_the_graphs_own(network):
    network.eval()
    x = torch.rand(4, 3, 8, 8, device="ocl")
    with torch.no_grad():
        graph, y = captured(lambda: network(x))
        graph.replay()
        expected = network(x)
        torch.ocl.empty_cache()
        others = [torch.full((100_000,), 5.0, device="ocl") for _ in range(20)]
        graph.replay()
        assert_close(y, expected, rtol=0, atol=0)
        assert all(bool((t == 5).all()) for t in others)


def test_memory_goes_back():
    x = torch.rand(3_000_000, device="ocl")
    gc.collect()  # graphs of other tests
    torch.ocl.empty_cache()
    before = torch.ocl.memory_reserved()
    graph, y = captured(lambda: (x + 1).exp().sqrt().sum())
    assert torch.ocl.memory_reserved() > before
    del y
    torch.ocl.empty_cache()
    assert torch.ocl.memory_reserved() > before
    graph.reset()
    gc.collect()
    torch.ocl.empty_cache()
    assert torch.ocl.memory_reserved() == before


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def test_a_graph_leaves_nothing_behind():
    x = torch.rand(1000, device="ocl")

    def capture(times):
        for _ in range(times):
            graph = torch.ocl.OclGraph()
            with torch.ocl.graph(graph):
                x + 1
            graph.replay()
            torch.ocl.synchronize()

    capture(50)
    before = resident_bytes()
    capture(500)
    assert resident_bytes() - before < 500 * 2048


def test_graphs_share_a_pool():
    pool = torch.ocl.graph_pool_handle()
    x = torch.rand(200_000, device="ocl")
    first, y = captured(lambda: x * 2, pool)
    second, z = captured(lambda: y + 1, pool)
    assert first.pool() == second.pool() == pool
    assert captured(lambda: x * 2)[0].pool() != pool
    x.fill_(4)
    first.replay()
    second.replay()
    assert z.unique().tolist() == [9]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(1000, device="ocl"),
        lambda: torch.randn(999, device="ocl"),
        lambda: torch.randint(0, 100, (500,), device="ocl"),
        lambda: torch.bernoulli(torch.full((1000,), 0.3, device="ocl")),
        lambda: nn.functional.dropout(torch.ones(1000, device="ocl"), 0.5),
        lambda: torch.multinomial(torch.ones(50, device="ocl"), 10, replacement=True),
        lambda: torch.empty(300, device="ocl").exponential_(),
        lambda: (torch.rand(10, device="ocl"), torch.rand(10, device="ocl")),
    ],
    ids=["rand", "randn", "randint", "bernoulli", "dropout", "multinomial", "exponential", "two"],
)
def test_random_numbers_go_on(draw):
    graph, result = captured(draw)
    torch.ocl.manual_seed(5)
    replayed = []
    for _ in range(3):
        graph.replay()
        replayed.append(torch.cat(result).cpu() if isinstance(result, tuple) else result.cpu())
    end = torch.ocl.get_rng_state()
    torch.ocl.manual_seed(5)
    for numbers in replayed:
        eager = draw()
        eager = torch.cat(eager) if isinstance(eager, tuple) else eager
        assert_close(numbers, eager.cpu(), rtol=0, atol=0)
    assert torch.equal(end, torch.ocl.get_rng_state())
    assert not torch.equal(replayed[0], replayed[1])


def test_own_generators():
    generator = torch.Generator("ocl").manual_seed(3)
    graph, x = captured(lambda: torch.rand(100, device="ocl", generator=generator))
    generator.manual_seed(4)
    graph.replay()
    generator.manual_seed(4)
    assert_close(x, torch.rand(100, device="ocl", generator=generator), rtol=0, atol=0)


@pytest.mark.parametrize(
    "act",
    [
        lambda state: torch.ocl.manual_seed(99),
        lambda state: torch.manual_seed(99),
        lambda state: torch.ocl.seed(),
        lambda state: torch.ocl.set_rng_state(state),
        lambda state: torch.ocl.default_generators[0].set_offset(8),
    ],
    ids="manual_seed of_all seed state offset".split(),
)
def test_generators_keep_their_state_while_captured(act):
    torch.manual_seed(5)
    state = torch.ocl.get_rng_state()
    with pytest.raises(RuntimeError, match="while a graph is captured|While a graph is captured"):
        with torch.ocl.graph(torch.ocl.OclGraph()):
            act(state)
    assert torch.ocl.initial_seed() == 5 and torch.equal(torch.ocl.get_rng_state(), state)
    graph, x = captured(lambda: (torch.ocl.manual_seed(5), torch.rand(9, device="ocl"))[1])
    torch.ocl.manual_seed(7)
    graph.replay()
    torch.ocl.manual_seed(7)
    assert_close(x, torch.rand(9, device="ocl"), rtol=0, atol=0)
    act(state)


def test_random_permutations_are_refused():
    torch.randperm(5000, device="ocl")
    graph = torch.ocl.OclGraph()
    with pytest.raises(RuntimeError, match="randperm"), torch.ocl.graph(graph):
        torch.randperm(5000, device="ocl")
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):  # it is free for another capture
        torch.ones(3, device="ocl")


@pytest.mark.parametrize(
    "act",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0.5],
        lambda x: torch.ocl.synchronize(),
        lambda x: torch.ocl.current_stream().synchronize(),
        lambda x: torch.ocl.current_stream().query(),
        lambda x: torch.tensor([1.0, 2.0]).to("ocl"),
        lambda x: torch.ocl.empty_cache(),
    ],
    ids="item cpu nonzero mask synchronize stream query host empty_cache".split(),
)
def test_what_waits_is_refused(act):
    x = torch.rand(1000, device="ocl")
    graph = torch.ocl.OclGraph()
    with pytest.raises(RuntimeError, match="while a graph is captured"), torch.ocl.graph(graph):
        act(x + 1)
    assert not torch.ocl.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="without a finished capture"):
        graph.replay()
    act(x + 1)


def forked(x, stream, times=1):
    """Work that is spread over the current stream and another one."""
    main = torch.ocl.current_stream()
    y = x * 2
    for _ in range(times):
        stream.wait_stream(main)
        with torch.ocl.stream(stream):
            z = y + 1
            noise = torch.rand_like(z)
        w = y * 3
        main.wait_stream(stream)
        y = w + z + 0 * noise
    return y, noise


@pytest.mark.parametrize("times", [1, 3])
def test_streams_fork_and_join(times):
    x = torch.rand(1000, device="ocl")
    stream = torch.ocl.Stream()
    expected = forked(x.clone(), stream, times)[0]
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        y, noise = forked(x, stream, times)
        with torch.ocl.stream(stream):
            assert torch.ocl.is_current_stream_capturing()
    with torch.ocl.stream(stream):
        assert not torch.ocl.is_current_stream_capturing()
    graph.replay()
    assert_close(y, expected)
    before = noise.clone()
    x.fill_(1)
    graph.replay()
    assert_close(y, forked(torch.ones(1000, device="ocl"), stream, times)[0])
    assert not torch.equal(noise, before)  # random numbers of the other stream go on, too


def test_events_within_a_capture():
    x = torch.rand(100, device="ocl")
    first, second = torch.ocl.Stream(), torch.ocl.Stream()
    graph, event, last = torch.ocl.OclGraph(), torch.ocl.Event(), torch.ocl.Event()
    with torch.ocl.graph(graph):
        event.record()
        first.wait_event(event)
        with torch.ocl.stream(first):
            y = x + 1
            event.record()
        second.wait_event(event)  # and so it waits for the capturing stream
        with torch.ocl.stream(second):
            z = y * 2
            last.record()
        torch.ocl.current_stream().wait_event(last)  # which joins both
        for ask in (event.query, event.synchronize):
            with pytest.raises(RuntimeError, match="the host can't wait for an event"):
                ask()
    graph.replay()
    assert_close(z, (x + 1) * 2)
    with pytest.raises(RuntimeError, match="in a capture that has ended"):
        first.wait_event(event)
    event.record()
    event.synchronize()
    assert event.query()


def test_a_stream_that_nobody_waits_for():
    x = torch.rand(100, device="ocl")
    stream = torch.ocl.Stream()
    graph = torch.ocl.OclGraph()
    with (
        pytest.raises(RuntimeError, match="did not wait for its last work"),
        torch.ocl.graph(graph),
    ):
        stream.wait_stream(torch.ocl.current_stream())
        with torch.ocl.stream(stream):
            x + 1
    with torch.ocl.stream(stream):
        assert not torch.ocl.is_current_stream_capturing()
        assert_close(x + 1, x.cpu().add(1).to("ocl"))
    # One that did nothing need not be waited for.
    with torch.ocl.graph(graph):
        stream.wait_stream(torch.ocl.current_stream())
        y = x + 1
    graph.replay()
    assert_close(y, x + 1)


def test_events_from_before_a_capture_are_refused():
    stream = torch.ocl.Stream()
    event = stream.record_event()
    graph = torch.ocl.OclGraph()
    with (
        pytest.raises(RuntimeError, match="a wait for another stream is not possible"),
        torch.ocl.graph(graph),
    ):
        torch.ocl.current_stream().wait_event(event)


def test_other_streams_go_on():
    x = torch.rand(1000, device="ocl")
    expected = x.cpu()
    stream = torch.ocl.Stream()
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        y = x + 1
        with torch.ocl.stream(stream):
            assert not torch.ocl.is_current_stream_capturing()
            assert_close((x * 2).cpu(), expected * 2)
            stream.synchronize()
    graph.replay()
    assert_close(y.cpu(), expected + 1)


def test_failed_checks_are_raised():
    table = torch.rand(10, 3, device="ocl")
    index = torch.tensor([1, 2, 3], device="ocl")
    graph, rows = captured(lambda: nn.functional.embedding(index, table))
    index.fill_(9)
    graph.replay()
    assert_close(rows.cpu(), table.cpu()[[9, 9, 9]])
    index.fill_(10)
    graph.replay()
    with pytest.raises(IndexError):
        torch.ocl.synchronize()


def test_wrong_use():
    graph = torch.ocl.OclGraph()
    for call in (graph.replay, graph.capture_end, graph.pool):
        with pytest.raises(RuntimeError):
            call()
    with torch.ocl.graph(graph):
        torch.ones(3, device="ocl")
        with pytest.raises(RuntimeError, match="another capture"):
            torch.ocl.OclGraph().capture_begin()
    with pytest.raises(RuntimeError, match="reset"), torch.ocl.graph(graph):
        pass
    graph.reset()
    with torch.ocl.graph(graph):
        pass
    graph.replay()


def test_kernels_of_the_users_own():
    kernel = torch.ocl.compile_kernel(
        "kernel void twice(global float* x, uint n)"
        "{ const uint i = get_global_id(0); if (i < n) x[i] *= 2; }",
        "twice",
    )
    x = torch.ones(100, device="ocl")
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        kernel(x[50:], 50, global_size=64)
    gc.collect()
    graph.replay()
    graph.replay()
    assert x.tolist() == [1] * 50 + [4] * 50


def test_fourier_tables_must_exist():
    x = torch.rand(2 * 3 * 5 * 7 * 11, device="ocl")
    graph = torch.ocl.OclGraph()
    with pytest.raises(RuntimeError, match="Fourier"), torch.ocl.graph(graph):
        torch.fft.fft(x)
    graph, y = captured(lambda: torch.fft.fft(x))
    x.copy_(torch.rand(x.shape))
    graph.replay()
    assert_close(y.cpu(), torch.fft.fft(x.cpu()), rtol=1e-4, atol=1e-3)


ADAMS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam)


@pytest.mark.parametrize("kind", [*ADAMS, torch.optim.Adamax, torch.optim.RMSprop])
def test_steps_whose_number_is_on_the_host_are_refused(kind):
    """As by CUDA; captured, they would be the same step again and again."""
    x = torch.ones(3, device="ocl", requires_grad=True)
    x.grad = torch.ones_like(x)
    optimiser = kind([x], lr=0.1)
    optimiser.step()
    graph = torch.ocl.OclGraph()
    with pytest.raises(RuntimeError, match="capturable is False"), torch.ocl.graph(graph):
        optimiser.step()


@pytest.mark.parametrize("option", ["capturable", "fused"])
@pytest.mark.parametrize("kind", ADAMS[:2])
def test_captured_steps_count(kind, option):
    x, e = (torch.ones(3, device="ocl", requires_grad=True) for _ in range(2))
    x.grad, e.grad = (torch.arange(1.0, 4.0, device="ocl") for _ in range(2))
    optimiser, eager = kind([x], lr=0.1, **{option: True}), kind([e], lr=0.1)
    optimiser.step()
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        optimiser.step()
    for _ in range(3):
        graph.replay()
    for _ in range(4):
        eager.step()
    assert_close(x, e, rtol=1e-5, atol=1e-6)


def test_training_step_with_the_backward_pass_in_its_thread():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5)).to("ocl")
    reference = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5))
    reference.load_state_dict(model.state_dict())
    x, y = torch.rand(16, 20, device="ocl"), torch.randint(0, 5, (16,)).to("ocl")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for _ in range(2):
        step()
    graph = torch.ocl.OclGraph()
    optimiser.zero_grad(set_to_none=True)
    with torch.ocl.graph(graph):
        loss = step()
        optimiser.step()
    expected = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(5):
        data, classes = torch.rand(16, 20), torch.randint(0, 5, (16,))
        x.copy_(data)
        y.copy_(classes)
        graph.replay()
        expected.zero_grad()
        cpu_loss = nn.functional.cross_entropy(reference(data), classes)
        cpu_loss.backward()
        expected.step()
        assert_close(loss.cpu(), cpu_loss.detach(), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert_close(ours.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-5)


def test_make_graphed_callables(network):
    reference = [p.detach().clone() for p in network.parameters()]
    sample = torch.rand(4, 3, 8, 8, device="ocl")
    x = torch.rand(4, 3, 8, 8, device="ocl")
    network.eval()
    expected = network(x)
    gradients = torch.autograd.grad(expected.square().sum(), list(network.parameters()))
    expected = expected.detach()  # its graph would tie the parameters' gradients to this stream
    graphed = torch.ocl.make_graphed_callables(network, (sample,))
    assert graphed is network
    for _ in range(2):
        network.zero_grad()
        launched = network(x)
        launched.square().sum().backward()
        assert_close(launched, expected)
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            assert_close(parameter.grad, gradient)
    for parameter, before in zip(network.parameters(), reference, strict=True):
        assert torch.equal(parameter, before)


def test_several_graphed_callables():
    first, second = nn.Linear(10, 10, device="ocl"), nn.Linear(10, 3, device="ocl")
    x = torch.rand(6, 10, device="ocl", requires_grad=True)
    (expected,) = torch.autograd.grad(second(torch.tanh(first(x))).sum(), x)
    graphed = torch.ocl.make_graphed_callables(
        (first, torch.tanh, second),
        tuple((torch.rand(6, 10, device="ocl", requires_grad=True),) for _ in range(3)),
    )
    y = x
    for function in graphed:
        y = function(y)
    (found,) = torch.autograd.grad(y.sum(), x)
    assert_close(found, expected)


def test_profiles_show_a_graphs_kernels():
    x = torch.rand(1000, device="ocl")
    graph, _ = captured(lambda: torch.relu(x) + 1)
    with torch.ocl.profiler(rows=0, roofline=False) as profiled:
        graph.replay()
        graph.replay()
    assert sum(k.calls for k in profiled.kernels if "pointwise" in k.name) == 4


def test_debug_dump(tmp_path):
    x = torch.rand(1000, device="ocl")
    graph, _ = captured(lambda: torch.relu(x))
    graph.debug_dump(str(tmp_path / "graph.txt"))
    assert (tmp_path / "graph.txt").read_text().startswith("pointwise_contiguous<clamp_min")


def test_of_torch_accelerator():
    if not hasattr(torch.accelerator, "Graph"):  # before torch 2.13
        return
    x = torch.zeros(10, device="ocl")
    graph = torch.accelerator.Graph()
    with torch.ocl.stream(torch.ocl.Stream()), graph:
        x.add_(1)
    graph.replay()
    graph.replay()
    assert x.tolist() == [2] * 10
