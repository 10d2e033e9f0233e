"""The process that computes the cases, which may crash or hang: a line of JSON asks for one, and a
line answers. What the package traces on stderr says which kernels ran."""

import contextlib
import json
import os
import sys

import torch

from torch_ocl import _C
from torch_ocl.cli.check import cases

# Bytes of memory that is filled before each case, so that a kernel which writes nothing is wrong.
_FILLED = (*[1 << 19] * 4, 8 << 20)


def _fill_free_memory(device: str) -> None:
    torch.ocl.empty_cache()
    held = [torch.full((size,), 255, dtype=torch.uint8, device=device) for size in _FILLED]
    del held


class _Worker:
    def __init__(self, device: str) -> None:
        self.device = device
        self.index = torch.device(device).index
        self.cases = cases.cases()
        self.expected: dict = {}
        self.left_out: list | None = None

    def _judge(self, engine, number, dtype):
        key = engine, number, dtype
        if key not in self.expected:
            self.expected = {key: cases.compute(self.cases[engine][number], dtype, None)}
        return self.expected[key]

    def answer(self, task: dict) -> dict:
        engine, number, dtype = task["engine"], task["case"], task["dtype"]
        implementation = task["implementation"]
        if task["left_out"] != self.left_out:
            self.left_out = task["left_out"]
            _C.set_left_out(self.index, [tuple(entry) for entry in self.left_out])
        try:
            expected = self._judge(engine, number, dtype)
        except ImportError as error:
            return {"skipped": str(error)}
        _fill_free_memory(self.device)
        if implementation:
            _C.force_implementation(engine, implementation)
        try:
            actual = cases.compute(self.cases[engine][number], dtype, self.device)
        except (NotImplementedError, TypeError) as error:
            return {"skipped": f"{type(error).__name__}: {error}"}
        except Exception as error:  # whatever it is, the check goes on
            with contextlib.suppress(Exception):
                torch.ocl.synchronize(self.device)
            return {"fault": f"raises {type(error).__name__}: {error}"}
        finally:
            if implementation:
                _C.force_implementation(engine, "")
        return {"fault": cases.difference(actual, expected, dtype)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _C.force_any_implementation(False)
    worker = _Worker(sys.argv[1])
    torch.ones(1, device=worker.device).item()
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
