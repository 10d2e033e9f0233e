"""One side of a comparison in a process of its own. PyTorch's autograd knows one accelerator per
process: CUDA torch's backward passes need one that torch_ocl is not loaded into.

`python -m benchmarks.harness.worker` is its process."""

import io
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection

import torch

from benchmarks.cases import CASES
from benchmarks.harness import measure
from benchmarks.harness.case import compile_models


class Worker:
    """Measures registered cases on `device` in another process, their models compiled if so chosen;
    a context manager. Its side() takes the place of a measure.Side."""

    def __init__(self, device, *, compiled=False):
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness.worker", str(theirs.fileno()), device]
            + ["--compile"] * compiled,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        )
        theirs.close()
        self._pipe = Connection(ours.detach())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pipe.close()
        self._process.wait()

    def ask(self, request, *arguments):
        """The answer to a request. Raises RuntimeError with the text of what the worker raised."""
        self._pipe.send((request, *arguments))
        answer = self._pipe.recv()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def side(self, case):
        """The case prepared there; the one before is given up."""
        self.ask("make", case.name)
        return _RemoteSide(self)


class _RemoteSide:
    def __init__(self, worker):
        self._worker = worker

    def result(self):
        return torch.load(io.BytesIO(self._worker.ask("result")))

    def warm_up(self):
        self._worker.ask("warm_up")

    def block(self):
        return self._worker.ask("block")

    @property
    def best(self):
        return self._worker.ask("best")


def answer_to(sides, device, request, *arguments):
    """The answer that is sent back; `sides` holds the prepared case."""
    if request == "make":
        sides.clear()
        measure.free(device)
        (case,) = (case for case in CASES if case.name == arguments[0])
        sides.append(measure.Side(case.make(device), device))
        return True
    (side,) = sides
    if request == "best":
        return side.best
    if request == "result":
        stored = io.BytesIO()
        torch.save([tensor.detach().cpu() for tensor in measure.flat(side.result())], stored)
        return stored.getvalue()
    return getattr(side, request)() or True


def serve(pipe, device):
    """Answers until the other end is closed."""
    sides = []
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        try:
            answer = answer_to(sides, device, *request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other process reports it
            answer = str(error)
        pipe.send(answer)


if __name__ == "__main__":
    # float32 means float32 on both sides: cuDNN's convolutions would round operands to TF32.
    torch.backends.cudnn.allow_tf32 = False
    compile_models("--compile" in sys.argv)
    serve(Connection(int(sys.argv[1])), sys.argv[2])
