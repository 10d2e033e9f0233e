"""Every engine says which kernel it chose and why, and can be told which one to try first."""

import importlib
import os
import subprocess
import sys

import pytest
import torch
from torch.utils._pytree import tree_leaves

import torch_ocl.testing as testing
from benchmarks.studies.trace import problems, training_step
from tests import fresh

# For each engine: functions of a device that make it choose, and return what it computed. Most are
# those of `python -m torch_ocl check`.
CASES = {}
MODULES = [
    f"torch_ocl.cli.check.cases_{part}" for part in ("elements", "order", "products", "rows")
]
MODULES.append("tests.engine.dispatch_cases_vision")
for module in MODULES:
    for engine, calls in importlib.import_module(module).CASES.items():
        CASES.setdefault(engine, []).extend(calls)
IMPLEMENTATIONS = [(engine, name) for engine, names in testing.engines().items() for name in names]


def compare(actual, expected):
    """To rounding, relative to the largest element: kernels add in other orders than CPU torch."""
    for a, e in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        inexact = e.is_floating_point() or e.is_complex()
        largest = e[e.isfinite()].abs().max().item() if inexact and e.numel() else 0
        torch.testing.assert_close(a.cpu(), e, rtol=1.3e-6, atol=4e-6 * largest, equal_nan=True)


def choices(lines, engine):
    """The engine's lines, a list for each problem, of which the last says who runs."""
    result = [[]]
    for line in (line.lstrip() for line in lines):
        if line.startswith(f"{engine} "):
            result[-1].append(line)
            if line.endswith(" runs"):
                result.append([])
    return result[:-1]


@pytest.mark.parametrize("engine", testing.engines())
def test_every_engine_speaks(engine):
    """At each call some implementation of it runs, and each line has the form documented."""
    assert engine in CASES, f"no case makes {engine} choose a kernel"
    names = testing.engines()[engine]
    for call in CASES[engine]:
        with testing.dispatches() as lines:
            call("ocl")
        own = [line.lstrip() for line in lines if line.lstrip().startswith(f"{engine} ")]
        assert any(line.endswith(f": {name} runs") for line in own for name in names), lines
        for line in own:
            problem, _, verdict = line.partition(": ")
            name, _, rest = verdict.partition(" ")
            assert problem and name in names, line
            assert rest == "runs" or rest.startswith("refuses: ") and rest != "refuses: ", line


@pytest.mark.parametrize(("engine", "name"), IMPLEMENTATIONS)
def test_each_implementation(engine, name):
    """Where it takes the problem it runs, and computes what CPU torch does."""
    for call in CASES[engine]:
        with testing.force(**{engine: name}), testing.dispatches() as lines:
            actual = call("ocl")
        compare(actual, call("cpu"))
        for choice in choices(lines, engine):
            asked = [f": {name} " in line for line in choice]
            assert asked[0] or not any(asked), choice


#: The engines that a training step of ResNet-18 needs.
OF_RESNET18 = {"backward_max_pool", "convolution", "gemm", "max_pool", "norm", "pointwise"}
OF_RESNET18 |= {"reduce", "softmax"}


@pytest.mark.parametrize("last", [False, True])
def test_training_step_of_resnet18(last):
    """Every engine that takes part speaks, and each choice ends with who runs."""
    lines = training_step(last)
    assert OF_RESNET18 <= {line.split()[0] for line in lines}
    assert all(said[-1].endswith(" runs") for said in problems(lines))
    running = sum(line.endswith(" runs") for line in lines)
    assert sum(problems(lines).values()) == running > 100


def test_unknown_names():
    with (
        pytest.raises(ValueError, match="no engine is called 'gem'; there are:.* gemm"),
        testing.force(gem="direct"),
    ):
        pass
    with (
        pytest.raises(ValueError, match="gemm has no implementation 'fast'; there are: small"),
        testing.force(sort="bitonic", gemm="fast"),
    ):
        pass
    with (
        pytest.raises(TypeError, match="gemm: the name of an implementation"),
        testing.force(gemm=None),
    ):
        pass
    x = torch.ones(2, 40000, device="ocl")
    with testing.dispatches() as lines:
        x.sort()
    assert not lines[0].endswith("bitonic runs"), "what was forced before the error holds still"


def test_nothing_is_forced_after_the_block():
    a = torch.ones(64, 64, device="ocl")
    with testing.dispatches() as before:
        a @ a
    with testing.force(gemm="direct"):
        pass
    with testing.dispatches() as after:
        a @ a
    assert before == after != []


@pytest.fixture(scope="module")
def told():
    """Two processes say which kernels they choose: one with the last implementation of each engine
    in its variables, and one with names that are none. Attention's choice comes with fused kernels
    alone, which aren't the last of sdpa's."""
    script = """
from contextlib import nullcontext
import torch_ocl.testing as testing
from tests.engine.test_dispatch import CASES
for engine, calls in CASES.items():
    with testing.force(sdpa="fused") if engine == "attention" else nullcontext():
        for call in calls:
            call("ocl")
"""
    last = {f"TORCH_OCL_{name.upper()}": every[-1] for name, every in testing.engines().items()}
    right = fresh.run_script(
        script, environment={**os.environ, **last, "TORCH_OCL_VERBOSE": "dispatch"}
    )
    wrong = fresh.run_script(script, environment={**os.environ, **dict.fromkeys(last, "none_such")})
    assert right.returncode == wrong.returncode == 0, right.stderr[-2000:] + wrong.stderr[-2000:]
    return right.stderr, wrong.stderr


@pytest.mark.parametrize("engine", testing.engines())
def test_environment_variable(engine, told):
    """It is read at the engine's first choice. A name that is none is said once."""
    right, wrong = told
    names = testing.engines()[engine]
    variable = f"TORCH_OCL_{engine.upper()}"
    said = f"warning: {variable}=none_such names none of: {' '.join(names)}\n"
    assert wrong.count(said) == 1
    lines = [line.removeprefix("torch_ocl: ") for line in right.split("\n")]
    assert any(f": {names[-1]} " in choice[0] for choice in choices(lines, engine))


def gemm_runs(a):
    with testing.dispatches() as lines:
        a @ a
    return [line.rpartition(": ")[2] for line in lines if line.endswith("runs")]


def test_blocks_of_two_threads_overlap():
    """The second begins within the first, and ends after it."""
    a = torch.ones(64, 64, device="ocl")
    usual = gemm_runs(a)
    first, second = testing.force(gemm="direct"), testing.force(gemm="tiled")
    first.__enter__()
    assert gemm_runs(a) == ["direct runs"]
    second.__enter__()
    first.__exit__(None, None, None)
    assert gemm_runs(a) == ["tiled runs"]
    second.__exit__(None, None, None)
    assert gemm_runs(a) == usual


def test_blocks_that_record_share_lines():
    a = torch.ones(64, 64, device="ocl")
    with testing.dispatches() as outer:
        a @ a
        with testing.dispatches() as inner:
            a @ a
        a @ a
    assert len(inner) > 0 and outer == inner * 3
    with testing.dispatches() as lines:
        pass
    assert lines == []


def test_a_name_of_another_list_is_told():
    x = torch.ones(4, 8, device="ocl")
    with testing.force(norm="planes"), testing.dispatches() as lines:
        torch.nn.functional.layer_norm(x, (8,))
    assert lines[0].endswith(": planes refuses: it is for other problems of norm")


def test_the_module_needs_no_import_of_its_own():
    code = "import torch_ocl; print(sorted(torch_ocl.testing.engines())[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "attention", done.stderr
