"""A program is compiled to the same code each time, whatever was compiled before."""

import re

import pytest
import torch
from torch._inductor.utils import run_and_get_code


@torch.library.custom_op("ocl_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


def through_a_dtype_view(x):
    y = x + x
    halves = y.view(torch.bfloat16).view(torch.float16)
    halves[2:3] = 3
    return y, halves


def into_the_result_of_an_op(x):
    y = doubled(x)
    y[1:2] = 5
    return doubled(y)


PROGRAMS = [through_a_dtype_view, into_the_result_of_an_op]


def codes(program, device, times=3):
    """How many different codes a program is compiled to."""
    x = torch.arange(1, 33, dtype=torch.int32).reshape(4, 8)
    expected, found = program(x), set()
    for _ in range(times):
        torch._dynamo.reset()
        results, (code, *_) = run_and_get_code(torch.compile(program), x.to(device))
        found.add(re.sub("AOT ID: .*", "", code))
        if device == "ocl":
            assert torch.equal(results[0].cpu(), expected[0])
    return len(found)


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize("program", PROGRAMS)
def test_compiled_again(program):
    """The CPU's graphs leave ops on the same list."""
    codes(program, "cpu", times=1)
    assert codes(program, "ocl") == 1
