"""TORCH_OCL_<ENGINE>: the kernel that is asked for by name runs, and the one that is left out does
not."""

import os

import pytest

from tests import fresh

#: Each engine has a problem here, and implementations that take it on CPUs and on GPUs.
PROBLEMS = {
    "gemm": ("ones(64, 80) @ ones(80, 72)", ("packed", "direct")),
    "convolution": (
        "functional.conv2d(ones(2, 16, 20, 20), ones(16, 1, 3, 3), groups=16)",
        ("contract",),
    ),
    "attention": (
        "functional.scaled_dot_product_attention(ones(1, 2, 4, 32), *[ones(1, 2, 512, 32)] * 2)",
        ("lanes",),
    ),
}
#: It defines the problems' functions.
BEFORE = """
import torch
from torch.nn import functional
def ones(*sizes):
    return torch.ones(sizes).to("ocl")
"""
KINDS = ("cpu", "gpu")


def choice(engine, kind, value, problem=None):
    """The verdicts on the engine's outermost lines, and all lines: inner choices are indented."""
    code = f"{BEFORE}({problem or PROBLEMS[engine][0]}).cpu()"
    settings = {"TORCH_OCL_VERBOSE": "dispatch", "TORCH_OCL_TUNE_AS": kind}
    settings["TORCH_OCL_QUARANTINE"] = "0"  # a check on this machine may have left kernels out
    settings[f"TORCH_OCL_{engine.upper()}"] = value
    done = fresh.run_script(code, environment=os.environ | settings)
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("torch_ocl: ") for line in done.stderr.splitlines()]
    return [line.partition(": ")[2] for line in lines if line.startswith(f"{engine} ")], lines


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("engine", "name"), [(e, name) for e, (_, names) in PROBLEMS.items() for name in names]
)
def test_the_one_that_is_asked_for_runs(engine, kind, name):
    verdicts, lines = choice(engine, kind, name)
    assert verdicts == [f"{name} runs"], lines


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", PROBLEMS)
def test_the_one_that_is_left_out_does_not_run(engine, kind):
    """The first one of the list that takes the problem is refused then, and says why."""
    usual, _ = choice(engine, kind, "")
    name = usual[-1].removesuffix(" runs")
    verdicts, lines = choice(engine, kind, f"-{name}")
    assert verdicts[-1].endswith(" runs") and verdicts[-1] != f"{name} runs", lines
    assert f"{name} refuses: the environment leaves it out" in verdicts, lines


def test_an_implementation_of_contractions_is_asked_for_and_left_out_likewise():
    """Those have a list of their own, within that of convolutions."""
    problem = "functional.conv2d(ones(2, 16, 20, 20).double(), ones(8, 16, 3, 3).double())"

    def runs(value):
        verdicts, lines = choice("convolution", "cpu", value, problem)
        assert verdicts[-1] == "contract runs", lines
        own = [line.strip() for line in lines if line.strip().startswith("convolution ")]
        return [line.rpartition(": ")[2] for line in own if line.endswith(" runs")]

    usual = runs("")
    assert runs("packed") == ["contract runs", "packed runs"] != usual
    other = runs(f"-{usual[1].removesuffix(' runs')}")
    assert other[0] == usual[0] and other[1] != usual[1]
