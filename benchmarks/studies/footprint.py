"""Training's costs besides a step's time: peak memory beside CPU torch's, what attention over
long sequences needs beyond its tensors, kernel launches of an optimiser's step, a process's start.

python -m benchmarks.studies.footprint [--only memory|attention|launches|first] [--document]
"""

import argparse

import torch
from torch.autograd import DeviceType
from torch.nn import functional

from benchmarks.cases.models import RESNETS, LanguageModel, parameter_shapes, resnet18
from benchmarks.cases.networks import transformer
from benchmarks.harness.report import MEASUREMENTS, write_section
from benchmarks.studies import first_use

MIB = 2**20
#: Steps before the one that is looked at: optimisers make their state in the first.
WARM = 2


def images(device):
    return torch.randn(8, 3, 64, 64).to(device), torch.arange(8).to(device)


def classify(model, inputs):
    return functional.cross_entropy(model(inputs[0]), inputs[1])


def sequences(device):
    return (torch.randn(4, 128, 256).to(device),)


def mean_square(model, inputs):
    return model(inputs[0]).square().mean()


def words(device):
    return (torch.randint(0, LanguageModel.WORDS, (2, 257)).to(device),)


def next_word(model, inputs):
    scores = model(inputs[0][:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1), inputs[0][:, 1:].flatten())


#: name -> (network, inputs on a device, loss, optimiser)
STEPS = {
    "ResNet-18, 8x3x64x64, SGD with momentum": (
        resnet18,
        images,
        classify,
        lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
    ),
    "transformer, 4 layers d=256, 4x128, AdamW": (
        transformer,
        sequences,
        mean_square,
        torch.optim.AdamW,
    ),
    "GPT-2 small, 2x256, AdamW": (LanguageModel, words, next_word, torch.optim.AdamW),
}


class Training:
    """A network with what a step needs, all of it on one device."""

    def __init__(self, name, device):
        torch.manual_seed(0)
        make_model, make_inputs, self.loss, optimiser = STEPS[name]
        self.model = make_model().to(device)
        self.inputs = make_inputs(device)
        self.optimiser = optimiser(self.model.parameters())

    def step(self):
        self.optimiser.zero_grad()
        self.loss(self.model, self.inputs).backward()
        self.optimiser.step()


def peak_of_device(name):
    """Bytes on `ocl` at the worst moment of a step, the model's and the optimiser's included."""
    before = torch.ocl.memory_allocated()
    training = Training(name, "ocl")
    for _ in range(WARM):
        training.step()
    torch.ocl.synchronize()
    torch.ocl.reset_peak_memory_stats()
    training.step()
    torch.ocl.synchronize()
    return torch.ocl.max_memory_allocated() - before


def peak_of_host(name):
    """Peak memory of CPU torch: what its allocator was asked for, as the profiler records it."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        training = Training(name, "cpu")
        for _ in range(WARM):
            training.step()
        with torch.profiler.record_function("the step"):
            training.step()
        del training
    events = profile.profiler.kineto_results.events()
    step = next(e for e in events if e.name() == "the step")
    begin, end = step.start_ns(), step.start_ns() + step.duration_ns()
    changes = sorted(
        (e.start_ns(), e.nbytes())
        for e in events
        if e.name() == "[memory]" and e.device_type() == DeviceType.CPU
    )
    live = peak = 0
    for time, change in changes:
        live += change
        if begin <= time <= end:
            peak = max(peak, live)
    return peak


def attention_extra(tokens, heads=8, width=64):
    """Bytes beyond inputs, result and gradients that attention's forward and backward pass take."""
    shape = (1, heads, tokens, width)
    inputs = [torch.randn(shape, device="ocl", requires_grad=True) for _ in "qkv"]
    cotangent = torch.randn(shape, device="ocl")
    torch.ocl.synchronize()
    torch.ocl.reset_peak_memory_stats()
    before = torch.ocl.memory_allocated()
    out = functional.scaled_dot_product_attention(*inputs)
    grads = torch.autograd.grad(out, inputs, cotangent)
    torch.ocl.synchronize()
    kept = sum(t.nbytes for t in (out, *grads))
    return torch.ocl.max_memory_allocated() - before - kept


OPTIMISERS = {
    "SGD": (torch.optim.SGD, {"lr": 1e-3}),
    "SGD, momentum": (torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
    "Adam": (torch.optim.Adam, {"lr": 1e-3}),
    "AdamW": (torch.optim.AdamW, {"lr": 1e-3}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 1e-3}),
}
FORMS = ("foreach", "fused")


def launches(shapes, optimisers=tuple(OPTIMISERS), forms=FORMS):
    """{(optimiser, form): kernels that a warm step over parameters of these shapes launches}."""
    parameters = [torch.zeros(shape, device="ocl", requires_grad=True) for shape in shapes]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    counts = {}
    for name in optimisers:
        for form in forms:
            kind, arguments = OPTIMISERS[name]
            optimiser = kind(parameters, **arguments, **{form: True})
            for _ in range(3):
                torch.ocl.reset_launch_count()
                optimiser.step()
                counts[name, form] = torch.ocl.launch_count()
    return counts


def memory_table():
    yield "| a training step | ocl | CPU torch | ratio |\n| --- | --- | --- | --- |"
    for name in STEPS:
        ocl, cpu = peak_of_device(name), peak_of_host(name)
        yield f"| {name} | {ocl / MIB:.1f} MiB | {cpu / MIB:.1f} MiB | {ocl / cpu:.3f} |"


def attention_table():
    yield "| attention, 8 heads of 64, float32 | beyond its tensors |\n| --- | --- |"
    for tokens in (8192, 16384):
        yield f"| {tokens} tokens, forward and backward | {attention_extra(tokens) / MIB:.1f} MiB |"


def launches_table():
    counts = {name: launches(parameter_shapes(name)) for name in RESNETS}
    heads = [f"{form}, {name}" for form in FORMS for name in counts]
    yield f"| launches of a step | {' | '.join(heads)} |\n|{' --- |' * (1 + len(heads))}"
    for name in OPTIMISERS:
        found = [counts[network][name, form] for form in FORMS for network in counts]
        yield f"| {name} | {' | '.join(map(str, found))} |"


TABLES = {
    "memory": memory_table,
    "attention": attention_table,
    "launches": launches_table,
    "first": first_use.table,
}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    parser.add_argument(
        "--document", action="store_true", help="write docs/measurements/footprint.md"
    )
    chosen = parser.parse_args(arguments)
    if chosen.only and chosen.document:
        parser.error("--document is for all tables")
    lines = []
    for name, table in TABLES.items():
        if chosen.only not in (None, name):
            continue
        for line in table():
            print(line, flush=True)
            lines.append(line)
        lines.append("")
    if chosen.document:
        write_section(MEASUREMENTS / "footprint.md", "footprint", lines[:-1])


if __name__ == "__main__":
    main()
