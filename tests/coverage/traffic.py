"""How many bytes an op brings to the host, and back: what computes on the host has to.

An op with device tensors alone has no business with the host's memory, but for single numbers: how
many elements a mask has, whether a matrix is singular. Profiles record every copy.

    python -m tests.coverage.traffic OP ... | all

prints the ops that copy more. Without arguments it is a worker of runner.py: it reads jobs that
name an op, one JSON a line, and answers with what Traffic has.
"""

import json
import os
import sys
import traceback
from dataclasses import asdict, dataclass

import torch
from torch.utils import _pytree

from tests.coverage import checks, scope
from tests.coverage.comparison import DEVICE
from torch_ocl import _C

#: Samples of an op, from all over its list.
SAMPLES = 3
#: Bytes that pass for single numbers.
NUMBERS = 64


def on_device(op, sample):
    """The sample's operands on the device, but for those that belong on the host."""
    if op.name in checks.ARGUMENTS_ON_HOST:
        return checks.to_device(sample.input), sample.args, sample.kwargs
    return checks.to_device((sample.input, sample.args, sample.kwargs))


def _differentiable(value):
    tensors = [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return [t for t in tensors if t.requires_grad and t.layout is torch.strided]


def dtype_of(op):
    known = op.supported_dtypes("cpu")
    return next(d for d in (torch.float32, *scope.DTYPES, *sorted(known, key=str)) if d in known)


@dataclass(frozen=True)
class Traffic:
    """The largest copies of some calls, in bytes: from devices to the host, and to them; and what
    torch.ocl.host_staged_counts() and fallback_counts() say of them."""

    read: int = 0
    written: int = 0
    counted: frozenset = frozenset()

    @property
    def is_large(self) -> bool:
        return max(self.read, self.written) > NUMBERS

    def __or__(self, other):
        return Traffic(
            max(self.read, other.read),
            max(self.written, other.written),
            self.counted | other.counted,
        )


def commands_of(call):
    """The commands that a call gives the device, as a profile has them."""
    torch.ocl.synchronize()
    profile = _C.Profile()
    try:
        call()
    finally:
        commands, _ = profile.stop()  # waits
    return commands


def measured(call) -> Traffic:
    """Traffic of the second call: what is computed once, such as tables, is there by then."""
    torch.manual_seed(0)
    call()
    torch.manual_seed(0)
    torch.ocl.reset_host_staged_counts()
    torch.ocl.reset_fallback_counts()
    sizes = {"Memcpy DtoH": [0], "Memcpy HtoD": [0]}
    for name, is_kernel, *_, size, _op in commands_of(call):
        if not is_kernel and name in sizes:
            sizes[name].append(size)
    counted = frozenset({**torch.ocl.host_staged_counts(), **torch.ocl.fallback_counts()})
    return Traffic(max(sizes["Memcpy DtoH"]), max(sizes["Memcpy HtoD"]), counted)


def calls(op):
    """Calls of an op and its gradient, one for each of some samples. They return the results and
    the gradients."""
    dtype = dtype_of(op)
    gradients = op.supports_autograd and dtype.is_floating_point
    for sample in checks.samples(op, dtype, SAMPLES, requires_grad=gradients):
        operands = on_device(op, sample)

        def run(operands=operands, finish=sample.output_process_fn_grad):
            first, args, kwargs = operands
            results = op(first, *args, **kwargs)
            roots, leaves = _differentiable(finish(results)), _differentiable(operands)
            if not roots or not leaves:
                return results, ()
            seeds = [torch.ones_like(root) for root in roots]
            return results, torch.autograd.grad(roots, leaves, seeds, allow_unused=True)

        yield run


def traffic(op) -> Traffic:
    """Traffic of an op and its gradient, over its samples."""
    found = Traffic()
    for call in calls(op):
        found |= measured(call)
    return found


def answer(job, ops, look):
    """A worker's answer: what `look` finds of an op."""
    try:
        found = look(ops[job["op"]])
    except Exception as error:  # noqa: BLE001 - the parent decides what a failure means
        described = f"{type(error).__name__}: {error}"
        return {"passed": False, "error": described, "traceback": traceback.format_exc()}
    return {"passed": True, **found}


def work(ops, look):
    """Answers jobs with a dictionary that `look` makes of each op."""
    # The pipe is for results alone: whatever else prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line), ops, look)) + "\n")
        answers.flush()


def look(op):
    found = traffic(op)
    return {**asdict(found), "counted": sorted(found.counted)}


def main():
    ops = {scope.full_name(op): op for op in scope.in_scope()}
    chosen = sys.argv[1:]
    if not chosen:
        work(ops, look)
    for name in ops if chosen == ["all"] else chosen:
        found = traffic(ops[name])
        if chosen != ["all"] or found.is_large:
            counted = f", counted as {', '.join(sorted(found.counted))}" if found.counted else ""
            print(f"{name}: {found.read} bytes to the host, {found.written} to {DEVICE}{counted}")


if __name__ == "__main__":
    main()
