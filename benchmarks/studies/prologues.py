"""The gain of a product that reads a cast weight as it lies: python -m benchmarks.studies.prologues

Least times of compiled products, in milliseconds, with a kernel that casts the weight and without,
by turns in one process, and the second over the first. A pair that the backend leaves apart is
compiled twice alike.
"""

import argparse
import time
import types

import torch

from torch_ocl.inductor.templates import prologue

FORMS = {
    "x @ w": lambda x, w, s: x @ w.to(x.dtype),
    "x @ w.t()": lambda x, w, s: x @ w.to(x.dtype).t(),
    "x @ (w * s).t()": lambda x, w, s: x @ (w.to(x.dtype) * s).t(),
}


def seconds(functions, operands, turns):
    """The least time of each."""
    least = [float("inf")] * len(functions)
    for _ in range(turns):
        for i, function in enumerate(functions):
            begin = time.perf_counter()
            function(*operands)
            torch.ocl.synchronize()
            least[i] = min(least[i], time.perf_counter() - begin)
    return least


def compiled(form, operands):
    """The product with a cast before it, and the one that takes it over."""
    find, functions = prologue.find, []
    for each in (lambda boxes: [None, None], find):
        prologue.find = each
        try:
            # Each has a code of its own, by which Dynamo knows what it has compiled.
            code = FORMS[form].__code__.replace()
            function = torch.compile(types.FunctionType(code, globals()), dynamic=False)
            function(*operands)
        finally:
            prologue.find = find
        functions.append(function)
    return functions


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32", help="of x")
    parser.add_argument("--weight", default="int8", help="dtype of w")
    parser.add_argument("--size", type=int, default=2048, help="rows and columns of w")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64, 128, 256])
    parser.add_argument("--turns", type=int, default=25)
    args = parser.parse_args()
    dtype, weight = getattr(torch, args.dtype), getattr(torch, args.weight)
    for form in FORMS:
        for rows in args.rows:
            torch._dynamo.reset()
            x = torch.randn(rows, args.size).to(dtype)
            w = torch.randint(-100, 100, (args.size, args.size)).to(weight)
            s = torch.rand(args.size, 1).to(dtype)
            operands = [t.to("ocl") for t in (x, w, s)]
            apart, taken = seconds(compiled(form, operands), operands, args.turns)
            times = f"{apart * 1e3:8.3f} {taken * 1e3:8.3f} {taken / apart:.2f}"
            print(f"{form:16} {rows:4} rows {times}")


if __name__ == "__main__":
    with torch._inductor.config.patch(force_disable_caches=True):
        main()
