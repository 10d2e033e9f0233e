"""A fault in a process group is an exception in good time, and nothing is left behind."""

import datetime
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.distributed import processes

# Seconds: until a group gives up, and what may come on top on a loaded machine.
PATIENCE = 3
SLACK = 1


def killed(rank):
    x = torch.ones(1000, device="ocl")
    dist.all_reduce(x)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(RuntimeError):
        for _ in range(1000):
            dist.all_reduce(x)
            time.sleep(0.001)
    return time.monotonic() - start


def test_a_killed_rank_is_noticed():
    assert processes.run(killed, dead=(1,))[0] < 1 + SLACK


def missing(rank):
    x = torch.ones(1000, device="ocl")
    torch.ocl.synchronize()
    if rank == 1:
        time.sleep(PATIENCE + 2 * SLACK)
        os._exit(0)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="[Tt]imed out"):
        dist.all_reduce(x)
    return time.monotonic() - start


def test_a_missing_rank_is_waited_for_until_the_timeout():
    took = processes.run(missing, timeout=PATIENCE, dead=(1,))[0]
    assert PATIENCE - 0.5 < took < PATIENCE + 1 + SLACK


def mismatches(rank, device):
    """Whether each call that can't work raises. Where ranks send different sizes gloo ends
    the process, on the CPU as well."""
    calls = {
        "gathered sizes": lambda: dist.all_gather(
            [torch.empty(4, device=device) for _ in range(2)], torch.ones(5, device=device)
        ),
        "dtypes in a call": lambda: dist.all_gather(
            [torch.empty(4, device=device, dtype=torch.int32) for _ in range(2)],
            torch.ones(4, device=device),
        ),
        "no such rank": lambda: dist.broadcast(torch.ones(2, device=device), 7),
        "dtype": lambda: dist.all_reduce(torch.ones(2, device=device, dtype=torch.complex128).real),
        "operation": lambda: dist.all_reduce(torch.ones(2, device=device), dist.ReduceOp.BAND),
        "list": lambda: dist.scatter(
            torch.ones(2, device=device), [torch.ones(2, device=device)] if rank == 0 else None, 0
        ),
    }
    raised = {}
    for name, call in calls.items():
        group = dist.new_group(timeout=datetime.timedelta(seconds=PATIENCE))
        with_group = dist.group.WORLD
        dist.group.WORLD = group
        try:
            call()
            raised[name] = False
        except (RuntimeError, ValueError):
            raised[name] = True
        finally:
            dist.group.WORLD = with_group
    return raised


def test_mismatches_raise_where_they_do_on_the_cpu():
    ocl, cpu = (processes.run(mismatches, device) for device in ("ocl", "cpu"))
    assert ocl == cpu
    assert all(raised["gathered sizes"] and raised["operation"] for raised in ocl)


def out_of_memory(rank):
    x = torch.ones(2 << 20, device="ocl")
    out = torch.empty(1 << 20, device="ocl")
    torch.ocl.empty_cache()
    torch.ocl.set_per_process_memory_fraction(1e-9)
    with pytest.raises(torch.OutOfMemoryError):
        dist.reduce_scatter_tensor(out, x)
    torch.ocl.set_per_process_memory_fraction(1.0)
    dist.reduce_scatter_tensor(out, x)
    # In a bucket of DistributedDataParallel.
    net = nn.parallel.DistributedDataParallel(nn.Linear(4096, 4096).to("ocl"))
    loss = net(torch.ones(4, 4096, device="ocl")).sum()
    torch.ocl.empty_cache()
    torch.ocl.set_per_process_memory_fraction(1e-9)
    with pytest.raises(torch.OutOfMemoryError):
        loss.backward()
    torch.ocl.set_per_process_memory_fraction(1.0)
    dist.barrier()
    return out.mean().item()


def test_out_of_memory_leaves_a_working_group():
    assert processes.run(out_of_memory) == [2.0, 2.0]


def things():
    """Threads and open files of this process."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def many_groups(rank):
    """All groups use the same pinned memory, which is cached: 16 KiB for a call."""
    counts = []
    for number in range(100):
        group = dist.new_group()
        x = torch.ones(3000, device="ocl")
        works = [dist.all_reduce(x, group=group, async_op=True) for _ in range(3)]
        for work in works:
            work.wait()
        dist.destroy_process_group(group)
        del group, works, work
        if number in (9, 99):
            counts.append((*things(), torch.ocl.host_memory_stats()["allocated_bytes.current"]))
    return counts


def test_nothing_is_left_of_groups():
    environment = {"TORCH_OCL_WITHOUT": "unified_memory"}
    for before, after in processes.run(many_groups, environment=environment):
        assert after[0] <= before[0] + 1 and after[1] <= before[1] + 2
        assert after[2] <= 3 * 16384  # three calls at a time, or fewer


WAITS = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group()
x = torch.ones(4, device="ocl")
dist.all_reduce(x)
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").close()
if dist.get_rank() == 1:
    import time
    time.sleep(100)
dist.all_reduce(x)
"""


def seconds_after_an_interrupt(folder):
    """How long ranks that wait for each other live on when torchrun gets Ctrl-C."""
    script = folder / "waits.py"
    script.write_text(textwrap.dedent(WAITS))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher = subprocess.Popen(
        [*command, "--nproc-per-node=2", str(script), str(folder)],
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 90
    while not all((folder / rank).exists() for rank in "01"):
        assert launcher.poll() is None and time.monotonic() < end, launcher.communicate()[1]
        time.sleep(0.1)
    launcher.send_signal(signal.SIGINT)
    start = time.monotonic()
    launcher.communicate(timeout=60)
    return time.monotonic() - start


def test_an_interrupt_ends_all_ranks(tmp_path):
    assert seconds_after_an_interrupt(tmp_path) < 5 + SLACK
