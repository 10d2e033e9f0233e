"""`ocl` tensors in process groups that can't take them: an exception in each process, which says
what to do, and never a crash or a hang."""

import os

from tests.fresh import run_script

# The program of both processes; `t` is an ocl tensor, `b` the group's gloo.
CALLS = """
dist.all_reduce(t)
dist.all_reduce(t, async_op=True).wait()
dist.broadcast(t, 0)
dist.reduce(t, 0)
dist.all_gather(two(t), t)
dist.all_gather_into_tensor(t.repeat(2), t)
dist.gather(t, two(t) if rank == 0 else None)
dist.scatter(t, two(t) if rank == 0 else None)
dist.reduce_scatter(t, two(t))
dist.reduce_scatter_tensor(t, t.repeat(2))
dist.all_to_all(two(t), two(t))
dist.all_to_all_single(t.clone(), t)
dist.all_to_all_single(torch.ones(2), t)
dist.send(t, 1) if rank == 0 else dist.recv(t, 0)
(dist.isend(t, 1) if rank == 0 else dist.irecv(t, 0)).wait()
dist.batch_isend_irecv([dist.P2POp(dist.isend, t, 1 - rank)])
dist.all_reduce_coalesced([t, t.clone()])
dist.all_gather_coalesced([[t], [t]], [t])
dist.broadcast_object_list([1], 0, device=torch.device("ocl"))
dist.send_object_list([1], 1, device=t.device) if rank == 0 else dist.recv(t, 0)
functional.all_reduce(t, "sum", dist.group.WORLD)
functional.all_gather_tensor(t, 0, dist.group.WORLD)
functional.all_gather_into_tensor_coalesced([t], dist.group.WORLD)
nn.parallel.DistributedDataParallel(nn.Linear(2, 2).to("ocl"))
b.send([t], 1, 0) if rank == 0 else b.recv([t], 0, 0)
b.recv_anysource([t], 0)
b.allgather_coalesced([[t], [t]], [t])
b.allgather([two(t)], [t])
b.allreduce([t])
b.broadcast(t, 0)
coalesced(dist.all_reduce, t)
coalesced(dist.all_gather_into_tensor, t.repeat(2), t)
"""
# Gloo refuses these in its own words, since the other tensors are on the CPU.
MIXED = """
dist.all_gather(two(t), torch.ones(2))
dist.reduce_scatter(torch.ones(2), two(t))
"""

PROCESSES = f"""
import datetime, os, tempfile, torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn

def two(tensor):
    return [tensor.clone(), tensor.clone()]

def coalesced(function, *arguments):
    try:
        with dist._coalescing_manager():
            function(*arguments)
    finally:  # where a call fails upstream goes on collecting others
        dist.distributed_c10d._world.pg_coalesce_state.clear()

def say(text):
    os.write(1, f"{{text}}\\n".encode())  # at once: two processes write lines

def says_what_to_do(rank, call):
    try:
        eval(call, globals() | {{"rank": rank}})
    except RuntimeError as error:
        return ".cpu()" in str(error)
    return None

def run(rank, store):
    global b, t
    timeout = datetime.timedelta(seconds=60)
    dist.init_process_group("cpu:gloo", store=store, rank=rank, world_size=2, timeout=timeout)
    b = dist.group.WORLD._get_backend(torch.device("cpu"))
    t = torch.ones(2, device="ocl")
    others = [call for call in {CALLS.strip().splitlines()!r} if not says_what_to_do(rank, call)]
    # The group itself is none the worse for it, and what is pickled may lie on the device.
    objects = [None, None]
    dist.all_gather_object(objects, t)
    x = torch.ones(2)
    dist.all_reduce(x)
    say(f"end {{x.tolist()}} {{objects[1 - rank].device.type}} {{others}}")
    say([says_what_to_do(rank, call) for call in {MIXED.strip().splitlines()!r}])

with tempfile.TemporaryDirectory() as folder:
    child = os.fork()
    run(int(child == 0), dist.FileStore(folder + "/store", 2))
    if child == 0:
        os._exit(0)
    say(f"child {{os.waitstatus_to_exitcode(os.wait()[1])}}")
"""


def test_every_call_raises():
    done = run_script(PROCESSES, environment=os.environ | {"GLOO_SOCKET_IFNAME": "lo"})
    assert done.returncode == 0, done.stderr
    expected = ["[False, False]"] * 2 + ["child 0"] + ["end [2.0, 2.0] ocl []"] * 2
    assert sorted(done.stdout.splitlines()) == expected
