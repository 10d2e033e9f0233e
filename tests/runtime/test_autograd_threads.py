"""Autograd's threads start with the first backward pass on the device, whatever came before."""

import textwrap

import pytest

from tests.fresh import run_script

ON_BOTH = """
import os, threading, torch

def backward(device):
    x = torch.ones(3, device=device, requires_grad=True)
    (x * x).cpu().sum().backward()
    return x.grad.tolist() == [2, 2, 2]

"""


def check(code):
    done = run_script(ON_BOTH + textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fake_tensors_before_the_first_use():
    code = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    model = torch.nn.Linear(3, 2, device="ocl")
    model(torch.randn(4, 3, device="ocl")).sum().backward()
    assert model.weight.grad.device == torch.device("ocl:0")
assert not torch.ocl.is_initialized()
x = torch.ones(3, device="ocl", requires_grad=True)
(x * 2).sum().backward()
assert x.grad.tolist() == [2.0, 2.0, 2.0]
"""
    done = run_script(code)
    assert done.returncode == 0, done.stderr


def test_the_cpu_first_and_several_threads_after_it():
    out = check(
        """
        assert backward("cpu")
        right = []
        workers = [
            threading.Thread(target=lambda: right.append(backward("ocl"))) for _ in range(4)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        print(right, backward("cpu"), backward("ocl"))
        """
    )
    assert out.split() == "[True, True, True, True] True True".split()


def test_the_device_first_used_within_a_backward_pass():
    out = check(
        """
        class Nested(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                with torch.enable_grad():
                    return gradient * 2 * backward("ocl")

        x = torch.ones(3, requires_grad=True)
        Nested.apply(x).sum().backward()
        print(x.grad.tolist(), backward("ocl"))
        """
    )
    assert out.strip() == "[2.0, 2.0, 2.0] True"


@pytest.mark.parametrize("before", ["cpu", "ocl"])
def test_a_child_after_a_backward_pass(before):
    """On the CPU it works as if the device weren't there; on the device autograd refuses, as after
    one on other devices."""
    out = check(
        f"""
        assert backward({before!r})
        if os.fork() == 0:
            try:
                print(backward("cpu"), flush=True)
            except RuntimeError as error:
                print("fork" in str(error), flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert out.strip() == "True"
