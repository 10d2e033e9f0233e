"""How much of the memory's bandwidth memory-bound operations reach, on tensors that no cache holds:
beside a kernel that only moves the same tensors, and beside a copy.

    python -m benchmarks.studies.bandwidth [--op softmax | --document]

All three take turns, for the bandwidth of a virtual machine's memory changes within seconds, and
with the place of the tensors: the kernel that only moves gets the operation's own.
"""

import argparse
import time

import torch
from torch.nn import functional

from benchmarks.harness.report import MEASUREMENTS, markdown_table, slug_of, write_section
from torch_ocl.cli.peaks import mover

ROUNDS = 12
CALLS = 5
COLUMNS = 1024
aten = torch.ops.aten


def pointwise(function, inputs=1, dtype=torch.float32):
    """`function` of tensors of random numbers."""

    def make(elements):
        values = [torch.randn(elements, device="ocl").to(dtype) for _ in range(inputs)]
        return values, lambda: function(*values)

    return make


def where(elements):
    a, b = (torch.randn(elements, device="ocl") for _ in range(2))
    condition = a > 0
    return [condition, a, b], lambda: torch.where(condition, a, b)


def fill(elements):
    value = torch.empty(elements, device="ocl")
    return [], lambda: value.fill_(1.5)


def rows(function, dtype=torch.float32):
    """`function` of a matrix with rows of COLUMNS elements."""

    def make(elements):
        x = torch.randn(elements // COLUMNS, COLUMNS, device="ocl").to(dtype)
        return [x], lambda: function(x)

    return make


def square(function):
    """`function` of a matrix with about as many rows as columns."""

    def make(elements):
        x = torch.randn(elements // 4096, 4096, device="ocl")
        return [x], lambda: function(x)

    return make


def softmax_gradient(function, result, dtype=torch.float32):
    def make(elements):
        x, g = (torch.randn(elements // COLUMNS, COLUMNS, device="ocl").to(dtype) for _ in range(2))
        y = result(x, 1)
        return [g, y], lambda: function(g, y, 1, dtype)

    return make


def layer_norm(dtype, backward):
    def make(elements):
        x, g = (torch.randn(elements // COLUMNS, COLUMNS, device="ocl").to(dtype) for _ in range(2))
        w, b = (torch.rand(COLUMNS, device="ocl").to(dtype) for _ in range(2))
        if not backward:
            return [x], lambda: functional.layer_norm(x, [COLUMNS], w, b)
        _, mean, rstd = aten.native_layer_norm(x, [COLUMNS], w, b, 1e-5)
        what = g, x, [COLUMNS], mean, rstd, w, b, [True, True, True]
        return [g, x], lambda: aten.native_layer_norm_backward(*what)[0]

    return make


def rms_norm(dtype, backward):
    def make(elements):
        x, g = (torch.randn(elements // COLUMNS, COLUMNS, device="ocl").to(dtype) for _ in range(2))
        w = torch.rand(COLUMNS, device="ocl").to(dtype)
        if not backward:
            return [x], lambda: functional.rms_norm(x, [COLUMNS], w)
        _, rstd = aten._fused_rms_norm(x, [COLUMNS], w, 1e-5)
        what = g, x, [COLUMNS], rstd, w, [True, True]
        return [g, x], lambda: aten._fused_rms_norm_backward(*what)[0]

    return make


HALF, BFLOAT = torch.float16, torch.bfloat16
#: name -> make(elements), which gives the large tensors that are read and the call.
OPS = {
    "clone": pointwise(torch.clone),
    "add": pointwise(torch.add, 2),
    "mul": pointwise(torch.mul, 2),
    "relu": pointwise(torch.relu),
    "exp": pointwise(torch.exp),
    "sigmoid": pointwise(torch.sigmoid),
    "tanh": pointwise(torch.tanh),
    "gelu": pointwise(functional.gelu),
    "exp bfloat16": pointwise(torch.exp, 1, BFLOAT),
    "silu bfloat16": pointwise(functional.silu, 1, BFLOAT),
    "gelu bfloat16": pointwise(functional.gelu, 1, BFLOAT),
    "where": where,
    "add float16": pointwise(torch.add, 2, HALF),
    "add bfloat16": pointwise(torch.add, 2, BFLOAT),
    "cast to float16": pointwise(torch.Tensor.half),
    "cast to bfloat16": pointwise(torch.Tensor.bfloat16),
    "fill": fill,
    "sum": pointwise(torch.sum),
    "sum bfloat16": pointwise(torch.sum, 1, BFLOAT),
    "sum, dim 0": square(lambda x: x.sum(0)),
    "sum, dim 1": square(lambda x: x.sum(1)),
    "amax": pointwise(torch.amax),
    "argmax": pointwise(torch.argmax),
    "var, dim 1": square(lambda x: x.var(1)),
    "softmax": rows(lambda x: x.softmax(1)),
    "softmax bfloat16": rows(lambda x: x.softmax(1), BFLOAT),
    "softmax, gradient": softmax_gradient(aten._softmax_backward_data, torch.softmax),
    "log_softmax": rows(lambda x: x.log_softmax(1)),
    "log_softmax, gradient": softmax_gradient(aten._log_softmax_backward_data, torch.log_softmax),
    "layer norm": layer_norm(torch.float32, False),
    "layer norm, gradients": layer_norm(torch.float32, True),
    "layer norm bfloat16": layer_norm(BFLOAT, False),
    "layer norm bfloat16, gradients": layer_norm(BFLOAT, True),
    "RMS norm": rms_norm(torch.float32, False),
    "RMS norm, gradients": rms_norm(torch.float32, True),
    "RMS norm bfloat16": rms_norm(BFLOAT, False),
    "RMS norm bfloat16, gradients": rms_norm(BFLOAT, True),
}


def least(call):
    """The least seconds of some calls, and the last one's result, into memory that each of them got
    back from the one before."""
    best, result = float("inf"), None
    for _ in range(CALLS):
        result = None
        torch.ocl.synchronize()
        start = time.perf_counter()
        result = call()
        torch.ocl.synchronize()
        best = min(best, time.perf_counter() - start)
    return best, result


def measure(make, elements):
    """Bytes that an operation moves, and the seconds that it takes, that moving the same tensors
    takes, and that copying as many bytes takes."""
    read, call = make(elements)
    given, copied = torch.rand(elements, device="ocl"), torch.rand(elements, device="ocl")
    copy, _ = mover([given], [copied])
    call()
    seconds = [float("inf")] * 3
    for _ in range(ROUNDS):
        taken, result = least(call)
        written = [result] if 4 * result.nbytes > max(t.nbytes for t in read or [result]) else []
        move, left = mover(read, written, copied)
        tensors = [*read, *written]
        bytes_ = sum(t.nbytes for t in tensors)
        share = bytes_ / (bytes_ - left), bytes_ / (8 * elements)
        del tensors, written, result
        took = (taken, least(move)[0] * share[0], least(copy)[0] * share[1])
        del move
        seconds = [min(pair) for pair in zip(seconds, took, strict=True)]
    return bytes_, *seconds


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--op", default="", help="only operations whose name contains this")
    parser.add_argument("--document", action="store_true", help="write this device's section")
    options = parser.parse_args(arguments)
    if not any(options.op in name for name in OPS):
        parser.error(f"no operation's name contains {options.op!r}")
    if options.document and options.op:
        parser.error("--document writes a whole section: leave out --op")
    properties = torch.ocl.get_device_properties(0)
    elements = (16 if properties.type == "cpu" else 256) * 2**20
    head = ["operation", "time", "GB/s", "of moving the same", "of copying"]
    print("{:32s} {:>11s} {:>8s} {:>20s} {:>12s}".format(*head))
    table = []
    for name in (name for name in OPS if options.op in name):
        bytes_, taken, move, copy = measure(OPS[name], elements)
        table.append(
            [
                name,
                f"{taken * 1e3:.3f} ms",
                f"{bytes_ / taken / 1e9:.0f}",
                f"{move / taken:.0%}",
                f"{copy / taken:.0%}",
            ]
        )
        print("{:32s} {:>11s} {:>8s} {:>20s} {:>12s}".format(*table[-1]), flush=True)
    if options.document:
        title = f"{properties.name}, {properties.platform_name}, {elements >> 20} Mi elements:"
        lines = [title, "", *markdown_table(head, table)]
        write_section(MEASUREMENTS / "memory.md", f"bandwidth: {slug_of()}", lines)


if __name__ == "__main__":
    main()
