"""torch.ocl.make_graphed_callables: what torch.cuda's takes, and gradients that accumulate."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close


def steps(network, call, inputs, clear):
    """The parameters' gradients after each of the inputs, `clear(network)` being called before."""
    found = []
    for x in inputs:
        clear(network)
        call(x).square().sum().backward()
        found.append([p.grad.detach().cpu().clone() for p in network.parameters()])
    return found


@pytest.mark.parametrize(
    "clear",
    [
        lambda network: None,
        lambda network: network.zero_grad(set_to_none=False),
        lambda network: network.zero_grad(set_to_none=True),
    ],
    ids=["accumulated", "zeroed", "none"],
)
def test_gradients_accumulate(clear):
    torch.manual_seed(0)
    theirs = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    ours = copy.deepcopy(theirs).to("ocl")
    inputs = [torch.rand(4, 5) for _ in range(4)]
    sample = torch.rand(4, 5, device="ocl")
    graphed = torch.ocl.make_graphed_callables(ours, (sample,))
    expected = steps(theirs, theirs, inputs, clear)
    found = steps(ours, lambda x: graphed(x.to("ocl")), inputs, clear)
    assert_close(found, expected)


def test_a_held_gradient_is_the_same_tensor_throughout():
    layer = nn.Linear(3, 2, device="ocl")
    x = torch.ones(1, 3, device="ocl")
    torch.ocl.make_graphed_callables(layer, (torch.ones(1, 3, device="ocl"),))
    layer(x).sum().backward()
    held = layer.bias.grad
    layer(x).sum().backward()
    layer(x).sum().backward()
    assert layer.bias.grad is held
    assert held.tolist() == [3, 3]


def test_gradients_of_leaf_inputs_accumulate():
    graphed = torch.ocl.make_graphed_callables(
        torch.square, (torch.ones(3, device="ocl", requires_grad=True),)
    )
    x = torch.tensor([1.0, 2.0, 3.0], device="ocl", requires_grad=True)
    for _ in range(3):
        graphed(x).sum().backward()
    assert x.grad.tolist() == [6, 12, 18]


def test_training_with_accumulated_steps_follows_the_cpu():
    torch.manual_seed(1)
    theirs = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2))
    ours = copy.deepcopy(theirs).to("ocl")
    sample = torch.rand(4, 6, device="ocl")
    graphed = torch.ocl.make_graphed_callables(ours, (sample,))
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9) for n in (theirs, ours)]
    for step in range(6):
        x = torch.rand(4, 6)
        theirs(x).square().mean().backward()
        graphed(x.to("ocl")).square().mean().backward()
        if step % 2:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(a.detach().cpu(), b.detach(), rtol=1e-4, atol=1e-5)


def test_states_of_an_lstm():
    torch.manual_seed(2)
    theirs = nn.LSTM(4, 6)
    ours = copy.deepcopy(theirs).to("ocl")

    def arguments(device):
        def state():
            return torch.rand(1, 2, 6).to(device).requires_grad_()

        return torch.rand(3, 2, 4).to(device), (state(), state())

    torch.ocl.make_graphed_callables(ours, arguments("ocl"))
    for _ in range(2):
        x, (h, c) = arguments("cpu")
        y, (hn, cn) = theirs(x, (h, c))
        (y.sum() + (hn * cn).sum()).backward()
        h2, c2 = (t.detach().to("ocl").requires_grad_() for t in (h, c))
        y2, (hn2, cn2) = ours(x.to("ocl"), (h2, c2))
        (y2.sum() + (hn2 * cn2).sum()).backward()
        found = [t.detach().cpu() for t in (y2, hn2, cn2, h2.grad, c2.grad)]
        assert_close(found, [t.detach() for t in (y, hn, cn, h.grad, c.grad)])
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-5)


def test_dicts_and_lists():
    def function(batch, more):
        return {"sum": batch["a"] + more[0], "rest": [batch["b"] * more[1], (batch["a"],)]}

    def arguments():
        a, b, c, d = (torch.rand(4, device="ocl") for _ in range(4))
        return {"a": a, "b": b}, [c, d]

    graphed = torch.ocl.make_graphed_callables(function, arguments())
    given = arguments()
    assert_close(graphed(*given), function(*given))
    with pytest.raises(TypeError, match="arguments like its sample's"):
        graphed(given[0], given[1][:1])


@pytest.mark.parametrize(
    "register",
    ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"],
)
def test_modules_with_hooks_are_refused(register):
    layer = nn.Linear(3, 2, device="ocl")
    getattr(layer, register)(lambda *_: None)
    with pytest.raises(AssertionError, match="hooks"):
        torch.ocl.make_graphed_callables(layer, (torch.rand(1, 3, device="ocl"),))


def test_hooks_registered_later_run():
    layer = torch.ocl.make_graphed_callables(
        nn.Linear(3, 2, device="ocl"), (torch.rand(1, 3, device="ocl"),)
    )
    seen = []
    layer.register_forward_hook(lambda *_: seen.append(1))
    layer(torch.rand(1, 3, device="ocl"))
    assert seen == [1]


def test_trainable_buffers_and_other_samples_are_refused():
    layer = nn.Linear(3, 2, device="ocl")
    with pytest.raises(AssertionError, match="tensors"):
        torch.ocl.make_graphed_callables(layer, (torch.rand(1, 3, device="ocl"), [1]))
    layer.register_buffer("scale", torch.ones(1, device="ocl", requires_grad=True))
    with pytest.raises(AssertionError, match="buffers"):
        torch.ocl.make_graphed_callables(layer, (torch.rand(1, 3, device="ocl"),))


def test_the_other_mode_runs_eagerly_with_keywords():
    layer = nn.Linear(3, 2, device="ocl")
    torch.ocl.make_graphed_callables(layer, (torch.rand(1, 3, device="ocl"),))
    layer.eval()
    x = torch.rand(5, 3, device="ocl")
    assert_close(layer(input=x), nn.functional.linear(x, layer.weight, layer.bias))


def test_a_capture_within_a_capture_says_so():
    with (
        pytest.raises(RuntimeError, match="another capture is not possible while a graph"),
        torch.ocl.graph(torch.ocl.OclGraph()),
        torch.ocl.graph(torch.ocl.OclGraph()),
    ):
        pass
    assert not torch.ocl.is_current_stream_capturing()


def test_the_first_fourier_transform_of_a_size_is_refused():
    x = torch.rand(7919, device="ocl")
    graph = torch.ocl.OclGraph()
    with (
        pytest.raises(RuntimeError, match="the first Fourier transform of a size"),
        torch.ocl.graph(graph),
    ):
        torch.fft.fft(x)
    torch.fft.fft(x)
    with torch.ocl.graph(graph):
        y = torch.fft.fft(x)
    graph.replay()
    assert_close(y.cpu(), torch.fft.fft(x.cpu()), rtol=1e-3, atol=1e-3)


def test_short_permutations_are_captured():
    torch.randperm(1024, device="ocl")
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        order = torch.randperm(1024, device="ocl")
    seen = []
    for _ in range(2):
        graph.replay()
        seen.append(order.cpu())
        assert torch.equal(seen[-1].sort().values, torch.arange(1024))
    assert not torch.equal(*seen)
