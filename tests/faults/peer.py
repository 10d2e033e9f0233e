"""A process group's other rank: a process that no fault strikes, forked before the first use."""

import contextlib
import datetime
import itertools
import os
import pickle
import shutil
import tempfile

import torch

#: Seconds until a rank gives up waiting for the other.
TIMEOUT = 5


class Peer:
    """The other rank. Each meeting is a group of its own: one that failed is of no use any more."""

    def __init__(self):
        self._folder = tempfile.mkdtemp(prefix="ocl-faults-")
        self._numbers = itertools.count()
        here, there = os.pipe(), os.pipe()
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        if os.fork() == 0:
            os.close(here[1]), os.close(there[0])
            with open(here[0], "rb") as asked, open(there[1], "wb") as answers:
                _serve(asked, answers)
            shutil.rmtree(self._folder, ignore_errors=True)
            os._exit(0)
        os.close(here[0]), os.close(there[1])
        self._ask, self._answers = open(here[1], "wb"), open(there[0], "rb")  # noqa: SIM115

    def meet(self, device, values):
        """The results of a meeting, in this rank."""
        store = f"{self._folder}/{next(self._numbers)}"
        pickle.dump((store, device, values), self._ask)
        self._ask.flush()
        try:
            return _meet(0, store, device, values)
        finally:
            pickle.load(self._answers)  # it has ended there, too


def _serve(asked, answers):
    while True:
        try:
            request = pickle.load(asked)
        except EOFError:
            return
        with contextlib.suppress(RuntimeError):
            _meet(1, *request)
        pickle.dump(None, answers)
        answers.flush()


def _meet(rank, store, device, values):
    import torch.distributed as dist

    dist.init_process_group(
        store=dist.FileStore(store, 2),
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=TIMEOUT),
    )
    try:
        x = values.to(device) * (rank + 1)
        piece = x[:5].clone()
        pieces = torch.empty(10, device=device)
        dist.all_reduce(x, async_op=True).wait()
        dist.all_gather_into_tensor(pieces, piece)
        return [x.cpu(), pieces.cpu()]
    finally:
        dist.destroy_process_group()
