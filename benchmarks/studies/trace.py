"""Which kernels a training step of ResNet-18 takes, and why not the ones before them in the list.

    python -m benchmarks.studies.trace [--last]

It prints what `TORCH_OCL_VERBOSE=dispatch` does, each problem once, with how often it occurs.
"""

import argparse

import torch
from torch.nn import functional

from benchmarks.cases.models import resnet18
from torch_ocl import testing


def training_step(last=False):
    """The lines of a step's dispatch, in order; `last` is for channels last."""
    torch.manual_seed(0)
    layout = {"memory_format": torch.channels_last} if last else {}
    model = resnet18().to("ocl", **layout)
    images = torch.randn(8, 3, 64, 64).to("ocl", **layout)
    labels = torch.arange(8).to("ocl")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with testing.dispatches() as lines:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return lines


def problems(lines):
    """{what is said of one problem, from the first refusal to who runs: how often}, in order."""
    found, refusals = {}, {}
    for line in lines:
        # One engine may ask another in between.
        said = refusals.setdefault(line.partition(": ")[0], [])
        said.append(line)
        if line.endswith(" runs"):
            found[tuple(said)] = found.get(tuple(said), 0) + 1
            said.clear()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--last", action="store_true", help="with channels last")
    options = parser.parse_args()
    for said, times in problems(training_step(options.last)).items():
        print("\n".join(said) + (f"  ({times} times)" if times > 1 else ""))


if __name__ == "__main__":
    main()
