"""Functions that several processes run, as the ranks of a process group.

The ranks are forked from a process that has imported torch and touched no device. Each ends after a
time, with the stacks of its threads on stderr, whatever it waits for."""

import datetime
import faulthandler
import importlib
import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable

from tests.fresh import run_script

#: Seconds for what a test does, with a first compilation of its kernels.
LIMIT = 100
#: Seconds until a group gives up waiting for a rank.
TIMEOUT = 60
_CODE = "from tests.distributed import processes; processes.main()"


def run(
    function: Callable,
    *arguments,
    size: int = 2,
    backend: str | None = None,
    limit: int = LIMIT,
    timeout: float = TIMEOUT,
    dead: tuple = (),
    environment: dict | None = None,
) -> list:
    """Results of a function of a test module in each rank: function(rank, *arguments).

    A rank that raises fails the test with its traceback. The group's backend is "" for none. Ranks
    that are to die give None."""
    with tempfile.TemporaryDirectory() as folder:
        # Pytest's name is shorter.
        module = "tests.distributed." + function.__module__.rpartition(".")[2]
        request = {
            "function": (module, function.__name__, arguments),
            "size": size,
            "backend": backend,
            "limit": limit,
            "timeout": timeout,
            "dead": dead,
            "folder": folder,
        }
        with open(f"{folder}/request", "wb") as file:
            pickle.dump(request, file)
        # A mesh gives each rank a device of its own, of which there may be several drivers'.
        defaults = {"TORCH_OCL_DEVICES": "0", "GLOO_SOCKET_IFNAME": "lo"}
        variables = defaults | os.environ | (environment or {})
        done = run_script(_CODE, folder, environment=variables)
        assert done.returncode == 0, done.stderr[-20000:]
        results = []
        for rank in range(size):
            if rank in dead:
                results.append(None)
                continue
            with open(f"{folder}/result{rank}", "rb") as file:
                results.append(pickle.load(file))
        return results


def each(cases: tuple, rank: int) -> None:
    """Calls all the functions; then raises if some have, with their tracebacks on stderr."""
    failed = []
    for case in cases:
        try:
            case(rank)
        except Exception:
            failed.append(case.__name__)
            text = f"rank {rank}, {case.__name__}:\n{traceback.format_exc()}"
            print(text, file=sys.stderr, flush=True)
    assert not failed, failed


def main() -> None:
    """Forks the ranks and waits for them; exits with 1 if one failed."""
    with open(f"{sys.argv[1]}/request", "rb") as file:
        request = pickle.load(file)
    dead = request.pop("dead")
    children = []
    for rank in range(request["size"]):
        child = os.fork()
        if child == 0:
            os._exit(_rank(rank, **request))
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(code for rank, code in enumerate(codes) if rank not in dead):
        print(f"exit codes of the ranks: {codes}", file=sys.stderr)
        sys.exit(1)


def _rank(rank: int, function, size, backend, limit, timeout, folder) -> int:
    faulthandler.dump_traceback_later(limit, exit=True)
    try:
        import torch.distributed as dist

        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
        if backend != "":
            dist.init_process_group(
                backend,
                store=dist.FileStore(f"{folder}/store", size),
                rank=rank,
                world_size=size,
                timeout=datetime.timedelta(seconds=timeout),
            )
        module, name, arguments = function
        result = getattr(importlib.import_module(module), name)(rank, *arguments)
        if backend != "":
            dist.destroy_process_group()
        with open(f"{folder}/result{rank}", "wb") as file:
            pickle.dump(result, file)
        return 0
    except BaseException:
        print(f"rank {rank}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return 1
