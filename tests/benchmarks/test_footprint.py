"""Memory of a training step, beside CPU torch."""

import math

import pytest
import torch

from benchmarks.studies import first_use, footprint


@pytest.mark.parametrize("name", [name for name in footprint.STEPS if "GPT" not in name])
def test_peak_of_a_step(name):
    assert footprint.peak_of_device(name) <= 1.15 * footprint.peak_of_host(name)


def test_peak_of_the_host():
    """An element-wise step holds the parameter, its gradient and momentum, and what is computed."""
    footprint.STEPS["scale"] = (
        lambda: torch.nn.Linear(1, 2**20, bias=False),
        lambda device: (torch.ones(1, 1, device=device),),
        lambda model, inputs: model(inputs[0]).sum(),
        lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
    )
    try:
        peaks = footprint.peak_of_host("scale"), footprint.peak_of_device("scale")
    finally:
        del footprint.STEPS["scale"]
    assert all(3 * 2**22 < peak < 5.1 * 2**22 for peak in peaks), peaks


def test_shapes_of_the_resnets():
    counts = {"ResNet-18": (62, 11_689_512), "ResNet-50": (161, 25_557_032)}
    for name, (tensors, elements) in counts.items():
        shapes = footprint.parameter_shapes(name)
        assert (len(shapes), sum(math.prod(shape) for shape in shapes)) == (tensors, elements)


def test_first_use(tmp_path):
    """The second process compiles nothing."""
    name = "MLP 300-300-300-1, batch 100, SGD"
    cold, warm = (first_use.first_step(name, str(tmp_path)) for _ in range(2))
    assert cold["built"] > 0 and cold["loaded"] == 0
    assert warm["built"] == 0 and warm["loaded"] == cold["built"]
    assert 0 < warm["import"] < warm["whole"]
