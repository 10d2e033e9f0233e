"""A training whose shapes change with each step: eager, checkpointed, compiled and captured ones by
turns. It can be disturbed, which may change nothing."""

import io
import itertools
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

CLASSES = 10
#: (batch, height, width) of the steps.
SHAPES = [(b, h, w) for b in (2, 3, 5, 8) for h in (5, 8, 11) for w in (6, 8, 9)]
#: Captured steps have few shapes, and fewer graphs are kept: they are captured again and again.
CAPTURED_SHAPES, GRAPHS = 6, 4
STEPS_OF_A_LOADER = 250


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, images, saves=False):
        x = self.norm(self.stem(images)).relu().flatten(2).transpose(1, 2)
        x = checkpoint(self.layer, x, use_reentrant=False) if saves else self.layer(x)
        return self.head(x.mean(1))


class Batches(Dataset):
    """The batch of a step, which its number alone decides."""

    def __getitem__(self, step):
        draw = torch.Generator().manual_seed(step)
        captured = step % 4 == 3
        at = step // 4 if captured else int(torch.randint(len(SHAPES), (), generator=draw))
        at %= CAPTURED_SHAPES if captured else len(SHAPES)
        batch, height, width = SHAPES[at]
        images = torch.randn(batch, 3, height, width, generator=draw)
        return images, torch.randint(CLASSES, (batch,), generator=draw)


class Captured:
    """Gradients by graphs, a graph for each shape; those used last are kept."""

    def __init__(self, network):
        self.network = network
        self.graphs = OrderedDict()

    def _capture(self, images, labels):
        def gradients():
            loss = functional.cross_entropy(self.network(images), labels)
            loss.backward()
            return loss

        state = torch.ocl.get_rng_state()
        side = torch.ocl.Stream()
        side.wait_stream(torch.ocl.current_stream())
        with torch.ocl.stream(side):
            gradients()
        torch.ocl.current_stream().wait_stream(side)
        self.network.zero_grad(set_to_none=True)
        torch.ocl.set_rng_state(state)
        graph = torch.ocl.OclGraph()
        with torch.ocl.graph(graph):
            loss = gradients()
        found = [p.grad for p in self.network.parameters()]
        return graph, images, labels, loss, found

    def __call__(self, images, labels):
        if images.shape not in self.graphs:
            self.graphs[images.shape] = self._capture(images.clone(), labels.clone())
            while len(self.graphs) > GRAPHS:
                self.graphs.popitem(last=False)
        self.graphs.move_to_end(images.shape)
        graph, own_images, own_labels, loss, found = self.graphs[images.shape]
        own_images.copy_(images)
        own_labels.copy_(labels)
        graph.replay()
        for parameter, gradient in zip(self.network.parameters(), found, strict=True):
            parameter.grad = gradient
        return loss


class Training:
    def __init__(self, disturbed):
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True)
        self.network = Network().to("ocl")
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-3)
        self.compiled = torch.compile(self.network, dynamic=True)
        self.captured = Captured(self.network)
        self.disturbed = disturbed
        self.loader = iter(())

    def batch(self, step):
        if step % STEPS_OF_A_LOADER == 0:
            steps = range(step, step + STEPS_OF_A_LOADER)
            workers = 2 if self.disturbed else 0
            self.loader = iter(
                DataLoader(Batches(), batch_size=None, sampler=steps, num_workers=workers)
            )
        return (x.to("ocl") for x in next(self.loader))

    def step(self, number):
        """The loss of a step."""
        images, labels = self.batch(number)
        self.optimizer.zero_grad(set_to_none=True)
        if number % 4 == 3:
            loss = self.captured(images, labels)
        else:
            run = self.compiled if number % 4 == 2 else self.network
            out = run(images, saves=True) if number % 4 == 1 else run(images)
            loss = functional.cross_entropy(out, labels)
            loss.backward()
        self.optimizer.step()
        if self.disturbed:
            self.disturb(number)
        return loss.item()

    def disturb(self, number):
        for every, disturbance in DISTURBANCES:
            if number % every == every - 1:
                state = torch.ocl.get_rng_state()
                disturbance(self)
                torch.ocl.set_rng_state(state)

    # ---- Disturbances -------------------------------------------------------------------------

    def out_of_memory(self):
        """An allocation that can't be, by itself and within a backward pass."""
        size = torch.ocl.mem_get_info()[1] * 4
        for _ in range(2):
            try:
                torch.empty(size, dtype=torch.uint8, device="ocl")
                raise AssertionError("four times the memory was there")
            except torch.OutOfMemoryError:
                pass
        hidden = self.network.stem(torch.ones(2, 3, 8, 8, device="ocl"))
        hidden.register_hook(lambda _: torch.empty(size, dtype=torch.uint8, device="ocl"))
        try:
            self.network.head(self.network.norm(hidden).flatten(2).mT).sum().backward()
            raise AssertionError("four times the memory was there")
        except torch.OutOfMemoryError:
            self.network.zero_grad(set_to_none=True)

    def other_streams(self):
        stream, x = torch.ocl.Stream(), torch.arange(100.0).pin_memory()  # exact sums
        with torch.ocl.stream(stream):
            y = x.to("ocl", non_blocking=True).square()
        torch.ocl.current_stream().wait_stream(stream)
        y.record_stream(torch.ocl.current_stream())
        assert y.sum().item() == (x * x).sum().item()

    def empty_cache(self):
        torch.ocl.empty_cache()

    def saved_and_loaded(self):
        file = io.BytesIO()
        torch.save([self.network.state_dict(), self.optimizer.state_dict()], file)
        file.seek(0)
        network, optimizer = torch.load(file)
        self.network.load_state_dict(network)
        self.optimizer.load_state_dict(optimizer)

    def an_error_in_a_kernel(self):
        """A kernel that does not build."""
        try:
            torch.ocl.compile_kernel("kernel void f(global float* x) { nothing; }")
            raise AssertionError("it was built")
        except RuntimeError:
            pass


DISTURBANCES = (
    (500, Training.out_of_memory),
    (170, Training.other_streams),
    (230, Training.empty_cache),
    (900, Training.saved_and_loaded),
    (290, Training.an_error_in_a_kernel),
)


def losses(training, steps):
    """Each step's loss, one after the other."""
    return map(training.step, itertools.islice(itertools.count(), steps))
