"""Warnings of what would go wrong in silence, once each."""

import os
import textwrap

import pytest

from tests.fresh import run_script

STEPS = """
import warnings, torch, torch_ocl.notices.separate_processes as separate
warnings.simplefilter("always")
separate.install()
def step(device):
    parameter = torch.ones(2, device=device, requires_grad=True)
    parameter.grad = torch.ones(2, device=device)
    torch.optim.SGD([parameter]).step()
"""


def warnings_of(code, **environment):
    done = run_script(textwrap.dedent(code), environment=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("size", "steps", "times"),
    [("2", "cpu ocl ocl", 1), ("2", "cpu", 0), ("1", "ocl", 0), ("x", "ocl", 0)],
)
def test_processes_that_train_separate_models(size, steps, times):
    code = STEPS + f"for device in {steps.split()}: step(device)"
    assert warnings_of(code, WORLD_SIZE=size).count("a model of its own") == times


def test_other_hooks_of_optimizers_are_called_too():
    code = (
        STEPS
        + """
from torch.optim.optimizer import register_optimizer_step_post_hook
called = []
register_optimizer_step_post_hook(lambda *args: called.append(args))
step("ocl"), step("ocl")
assert len(called) == 2
"""
    )
    assert warnings_of(code, WORLD_SIZE="2").count("a model of its own") == 1


@pytest.mark.parametrize(
    ("backend", "call", "times"),
    [
        ("gloo", "torch.distributed.all_reduce(torch.ones(2, device='ocl'))", 0),
        ("gloo", "", 1),  # as accelerate does it for devices that aren't on its list
        ("cpu:gloo", "", 0),  # who sends CPU tensors knows what they do
    ],
)
def test_processes_in_a_group_are_not_warned_of_where_it_is_used(backend, call, times):
    code = (
        STEPS
        + f"""
torch.distributed.init_process_group(
    "{backend}", store=torch.distributed.HashStore(), rank=0, world_size=1)
{call}
step("ocl")
step("ocl")
"""
    )
    assert warnings_of(code, WORLD_SIZE="2").count("a model of its own") == times


def test_unknown_environment_variables():
    code = "from torch_ocl import _environment; _environment.warn_of_unknown_names()"
    told = warnings_of(code, TORCH_OCL_VERBSE="all", TORCH_OCL_ZZZZ="1", TORCH_OCL_CACHE="1")
    assert "TORCH_OCL_VERBSE is unknown: did you mean TORCH_OCL_VERBOSE?" in told
    assert "TORCH_OCL_ZZZZ is unknown: there are TORCH_OCL_DEVICES" in told
    assert told.count("is unknown") == 2
    assert (
        warnings_of("import warnings; warnings.simplefilter('error'); " + code, TORCH_OCL_A="1")
        == ""
    )
