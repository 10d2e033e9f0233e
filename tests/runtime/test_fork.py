"""After a fork in a process that used OpenCL, the child gets errors, never a hang."""

import os
import subprocess
import sys
import textwrap

import pytest


def run(code, timeout=120):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


IN_CHILD = """
import os, sys, torch
{before}
child = os.fork()
if child == 0:
    try:
        {inside}
    except BaseException as error:
        print(type(error).__name__, error, flush=True)
        os._exit(7)
    os._exit(0)
_, status = os.waitpid(child, 0)
print("status", os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize(
    "use",
    [
        "torch.ones(2, device='ocl')",
        "x + 1",
        "x.cpu()",
        "torch.ocl.synchronize()",
        "torch.ocl.current_stream()",
        "torch.ocl.set_device(0); torch.ocl.mem_get_info()",
    ],
)
def test_using_the_device_in_a_forked_child_raises(use):
    out = run(IN_CHILD.format(before="x = torch.ones(3, device='ocl'); x.cpu()", inside=use))
    assert "RuntimeError" in out and "spawn" in out
    assert "status 7" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    "question",
    [
        "torch.ocl.is_available()",
        "torch.ocl.device_count()",
        "torch.accelerator.is_available()",
        "torch.accelerator.device_count()",
        "torch.ocl.manual_seed(3)",
        "torch.ocl.manual_seed_all(3)",
        "torch.ocl.seed()",
        "__import__('torch_ocl')._C.device_types()",
    ],
)
def test_a_forked_child_hears_what_its_parent_would(question):
    out = run(
        f"""
        import os, torch
        x = torch.ones(3, device="ocl")
        x.cpu()
        print({question}, flush=True)
        if os.fork() == 0:
            print({question}, flush=True)
            os._exit(0)
        os.wait()
        """
    )
    parent, child = out.splitlines()
    assert parent == child


QUESTIONS = """
torch.ocl.is_available() and torch.ocl.device_count()
torch.accelerator.is_available() and torch.accelerator.current_stream()
torch._C._get_accelerator().type == "ocl"
torch.ocl.memory_allocated() == 0 and torch.ocl.empty_cache() is None
torch.ocl.manual_seed(3) is None and torch.ocl.seed() is None
torch.optim.Adam([torch.ones(1, requires_grad=True)]).step() is None
"""


def test_asking_for_devices_is_not_using_them():
    out = run(
        f"""
        import os, torch
        for question in {QUESTIONS.strip().splitlines()}:
            assert eval(question), question
            if os.fork() == 0:
                print(torch.ones(3, device="ocl").sum().item(), flush=True)
                os._exit(0)
            os.wait()
        """
    )
    assert out.split() == ["3.0"] * len(QUESTIONS.strip().splitlines())


def test_without_the_program_that_counts_opencl_is_started():
    out = run(
        """
        import torch
        from torch_ocl import _C
        _C.configure_device_count(["/nonexistent/device_count"])
        print(torch.ocl.device_count(), torch.ocl.is_initialized())
        """
    )
    count, initialized = out.split()
    assert int(count) > 0 and initialized == "True"


def test_the_child_knows_it_and_may_use_the_cpu():
    inside = (
        "assert torch.ocl._is_in_bad_fork() and not torch.ocl.is_initialized(); "
        "del x; torch.manual_seed(0); torch.ocl.empty_cache(); "
        "assert torch.ocl.memory_allocated() == 0; "
        "y = torch.ones(3, requires_grad=True); (y * 2).sum().backward(); "
        "assert y.grad.eq(2).all()"
    )
    out = run(IN_CHILD.format(before="x = torch.ones(3, device='ocl'); x.cpu()", inside=inside))
    assert "status 0" in out, out


def test_a_fork_before_the_first_use_is_harmless():
    inside = "assert torch.ones(3, device='ocl').cpu().sum() == 3"
    out = run(IN_CHILD.format(before="torch.manual_seed(3)", inside=inside))
    assert "status 0" in out, out


def test_the_process_ends_with_live_tensors():
    run(
        """
        import torch
        torch.kept = [torch.ones(1000, device="ocl") for _ in range(10)]
        torch.kept_pinned = torch.ones(1000).pin_memory()
        stream = torch.ocl.Stream()
        torch.kept[0].record_stream(stream)
        with torch.ocl.stream(stream):
            torch.kept[0].add_(1)
        """
    )


def test_importing_torch_does_not_initialise_opencl():
    out = run(
        """
        import torch
        torch.manual_seed(0)
        torch.ocl.memory_stats()
        torch.ocl.empty_cache()
        torch.ones(3).is_pinned()
        print(torch.ocl.is_initialized())
        torch.ocl.init()
        print(torch.ocl.is_initialized())
        """
    )
    assert out.split() == ["False", "True"]
