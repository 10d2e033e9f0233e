"""Programs whose calls fail: each scenario is a step that begins from nothing, so that the
one after a fault has the same results as the first."""

import dataclasses
import itertools
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

#: Scenarios by name.
ALL: dict = {}


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A step of a program.

    Attributes:
        prepare: Makes the step, a function of the device, which returns tensors.
        environment: The process's variables.
        starts: The step is the first of its process: there is one process for each fault.
    """

    prepare: Callable
    environment: dict
    starts: bool = False


def scenario(name=None, starts=False, **environment):
    def add(prepare):
        ALL[name or prepare.__name__] = Scenario(prepare, environment, starts)
        return prepare

    return add


def _trained(net, batches, targets, device):
    """The parameters after a step for each batch, of a copy of the network."""
    with torch.random.fork_rng(devices=[]):
        copy = net(device)
    optimizer = torch.optim.SGD(copy.parameters(), lr=0.1, momentum=0.9)
    for batch, target in zip(batches, targets, strict=True):
        optimizer.zero_grad()
        loss = functional.cross_entropy(copy(batch.to(device)), target.to(device))
        loss.backward()
        optimizer.step()
    return [loss.detach(), *(value.detach() for value in copy.parameters())]


def _network(make):
    """A function that makes the same network on a device."""
    state = make().state_dict()

    def of(device):
        net = make()
        net.load_state_dict(state)
        return net.to(device)

    return of


def _mlp():
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 5))


@scenario("start-up", starts=True)
def start_up():
    return _first_use()


@scenario("start-up without a cache", starts=True, TORCH_OCL_CACHE="0")
def start_up_without_a_cache():
    def step(device):
        return [torch.arange(12.0, device=device).view(3, 4).sum(1)]

    return step


def _first_use():
    x, weight = torch.randn(8, 16), torch.randn(16, 4)

    def step(device):
        if device != "cpu":
            assert torch.ocl.is_available(), torch.ocl.unavailable_reason()
            torch.ocl.get_device_properties(0)
            torch.ocl.mem_get_info()
        leaf = weight.detach().clone().to(device).requires_grad_()
        loss = (x.to(device) @ leaf).softmax(-1).square().sum()
        loss.backward()
        return [loss.detach(), leaf.grad]

    return step


@scenario()
def mlp():
    net = _network(_mlp)
    batches, targets = torch.randn(2, 16, 20), torch.randint(5, (2, 16))
    return lambda device: _trained(net, batches, targets, device)


@scenario()
def convolution():
    def make():
        layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(8 * 5 * 5, 5))

    net = _network(make)
    batches, targets = torch.randn(1, 4, 3, 12, 12), torch.randint(5, (1, 4))
    return lambda device: _trained(net, batches, targets, device)


def _copies(length):
    source = torch.randn(length)
    square = torch.randn(64, 64)

    def step(device):
        if device == "cpu":
            return [source * 2, square.t()[::2] + 1, source[:100] * 3]
        host = source.pin_memory()
        side = torch.ocl.Stream()
        begin, end = (torch.ocl.Event(enable_timing=True) for _ in range(2))
        copy = host.to(device, non_blocking=True)
        begin.record()
        side.wait_stream(torch.ocl.current_stream())
        with torch.ocl.stream(side):
            double = copy * 2
            copy.record_stream(side)
            end.record()
        del copy
        back = torch.empty_like(host).pin_memory()
        end.wait()
        back.copy_(double, non_blocking=True)
        transposed = torch.empty(64, 64, device=device).t()
        transposed.copy_(square.t())
        pageable = source[:100].to(device)
        torch.ocl.current_stream().query()
        begin.synchronize(), end.synchronize()
        assert begin.elapsed_time(end) >= 0
        torch.ocl.synchronize()
        results = [back.clone(), (transposed[::2] + 1).cpu(), (pageable * 3).cpu()]
        del double, transposed, pageable, host, back
        torch.ocl.empty_cache()
        torch.ocl.empty_host_cache()
        return results

    return step


@scenario()
def copies():
    return _copies(70_000)


# As on a GPU with memory of its own, where large copies go in pieces.
@scenario(
    "copies in pieces", TORCH_OCL_WITHOUT="unified_memory,system_svm", TORCH_OCL_TUNE_AS="gpu"
)
def copies_in_pieces():
    return _copies(5_000_000)


def _capture(function):
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        result = function()
    return graph, result


def _chain(x):
    for i in range(6):
        x = (x * 3).sub_(i)
    return x


@scenario("a graph's capture")
def capture():
    net, values = _network(_mlp), torch.randn(16, 20)

    def step(device):
        if device == "cpu":
            return [net("cpu")(values + 1).detach(), _chain(values + 1)]
        copy, x = net(device), values.to(device)
        run = torch.no_grad()(lambda: (copy(x), _chain(x)))
        run()
        graph, results = _capture(run)
        x.copy_(values + 1)
        for _ in range(3):
            graph.replay()
        return results

    return step


def _replays():
    values = torch.randn(16, 20)

    def step(device):
        if device == "cpu":
            return [functional.embedding(torch.tensor([1, 3]), values), _chain(values)]
        if not made:
            x = torch.zeros(16, 20, device=device)
            indices = torch.tensor([1, 3], device=device)
            run = lambda: (functional.embedding(indices, x), _chain(x))  # noqa: E731
            run()
            made.extend((x, indices, *_capture(run)))  # a graph keeps no inputs
        x, _, graph, results = made
        x.zero_()
        graph.replay()
        x.copy_(values)
        for _ in range(3):
            graph.replay()
        return [result.clone() for result in results]

    made = []
    return step


@scenario("a graph's replay")
def replay():
    return _replays()


@scenario("a command buffer", TORCH_OCL_COMMAND_BUFFERS="1")
def command_buffer():
    return capture()


@scenario("a command buffer's replay", TORCH_OCL_COMMAND_BUFFERS="1")
def command_buffer_replay():
    return _replays()


@scenario("a compiled graph")
def compiled():
    net = _network(lambda: nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 5)))
    batches = torch.randn(16, 20)
    weights = []

    def step(device):
        if device == "cpu":
            leaf = batches.clone().requires_grad_()
            net("cpu")(leaf).softmax(-1).square().sum().backward()
            return [leaf.grad]
        if not weights:
            function = net(device)
            weights.append(torch.compile(lambda x: function(x).softmax(-1).square().sum()))
        leaf = batches.to(device).requires_grad_()
        weights[0](leaf).backward()
        return [leaf.grad]

    return step


@scenario("two devices", TORCH_OCL_PARTITION="2", TORCH_OCL_WITHOUT="unified_memory")
def two_devices():
    values = torch.randn(100, 100)

    def step(device):
        if device == "cpu":
            return [(values * 2 + 1) * 3, values[0] * 2]
        x = values.to("ocl:0") * 2
        y = x.to("ocl:1", non_blocking=True) + 1
        small = x[0].to("ocl:1")
        z = y.to("ocl:0") * 3
        torch.ocl.synchronize("ocl:1")
        torch.ocl.synchronize("ocl:0")
        return [z, small]

    return step


@scenario("a program")
def program():
    """Programs that no cache has, which build workers may build."""
    source = "kernel void k%d(global float* x) { x[get_global_id(0)] *= 3 + %d; }"
    numbers = itertools.count()

    def step(device):
        if device == "cpu":
            return [torch.full((8,), 3.0)]
        number = next(numbers)
        x = torch.ones(8, device=device)
        kernel = torch.ocl.compile_kernel(source % (number, number), f"k{number}")
        kernel(x, global_size=8)
        return [x - number]

    return step


@scenario("a profile")
def profile():
    values = torch.randn(16, 20)

    def step(device):
        if device == "cpu":
            return [values * 2 + values.sum()]
        with torch.profiler.profile() as recorded:
            x = values.to(device)
            y = x * 2 + x.sum()
        recorded.events()
        return [y]

    return step


def _group():
    from tests.faults.peer import Peer

    peer = Peer()
    values = torch.arange(30_000.0)

    def step(device):
        if device == "cpu":
            return [values * 3, torch.cat([values[:5], values[:5] * 2])]
        return peer.meet(device, values)

    return step


@scenario("a collective")
def collective():
    return _group()


@scenario("a collective of copies", TORCH_OCL_WITHOUT="unified_memory")
def collective_of_copies():
    return _group()
