"""Prints the rates of square matrix products by CUDA torch and, on the same GPU, by ocl, in every
layout: TFLOP/s (of integers Top/s), the best of five rows of calls without a wait in between, and
ocl's share. Both are checked against each other.

    TORCH_OCL_DEVICES=nvidia python -m benchmarks.studies.products --dtype bfloat16
"""

import argparse
import time

import torch
from torch.testing import assert_close

LAYOUTS = ("nn", "nt", "tn")  # of a and b: n as it lies, t transposed
ROWS, SECONDS = 5, 2.5e-3


def operands(size, dtype):
    """Two matrices; integers are all that fit into 8 bits."""
    pair = [torch.randn(size, size) for _ in range(2)]
    if not dtype.is_floating_point:
        pair = [(matrix * 40).clamp(-128, 127) for matrix in pair]
    return [matrix.to(dtype) for matrix in pair]


def multiply(a, b):
    return a @ b if a.dtype.is_floating_point else torch._int_mm(a, b)


def on(device, pair, layout):
    laid = [matrix.to(device) for matrix in pair]
    return [m.t() if turned == "t" else m for m, turned in zip(laid, layout, strict=True)]


def seconds_of(pair, synchronize, calls):
    synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        multiply(*pair)
    synchronize()
    return (time.perf_counter() - start) / calls


def compare(size, layout, dtype):
    """The rates of ocl and of CUDA torch, in 10^12 operations per second."""
    pair = operands(size, dtype)
    sides = [
        (on("ocl", pair, layout), torch.ocl.synchronize),
        (on("cuda", pair, layout), torch.cuda.synchronize),
    ]
    ours, theirs = (multiply(*laid).cpu() for laid, _ in sides)
    loose = {"rtol": 1e-2, "atol": 1e-2 * size**0.5} if dtype.is_floating_point else {}
    assert_close(ours, theirs, **loose)
    once = [seconds_of(*side, 1) for side in sides]
    calls = [max(3, min(400, int(SECONDS / seconds))) for seconds in once]
    best = [float("inf")] * len(sides)
    for _ in range(ROWS):
        for i, side in enumerate(sides):
            best[i] = min(best[i], seconds_of(*side, calls[i]))
    return [2e-12 * size**3 / seconds for seconds in best]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--dtype", choices=("float32", "float64", "float16", "bfloat16", "int8"), default="float32"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    chosen = parser.parse_args(arguments)
    if min(chosen.sizes) < 1:
        parser.error("a size is at least 1")
    if not torch.cuda.is_available():
        parser.error("this needs a torch with CUDA and a device for it")
    torch.manual_seed(0)
    for size in chosen.sizes:
        for layout in LAYOUTS:
            rates = compare(size, layout, getattr(torch, chosen.dtype))
            print(
                f"{chosen.dtype} {size} {layout}: {rates[0]:.4g} and {rates[1]:.4g}, "
                f"{rates[0] / rates[1]:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
