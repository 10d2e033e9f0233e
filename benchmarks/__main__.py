"""Runs the cases and prints, per case, the times of ocl and CPU torch and their ratio.

python -m benchmarks [--family gemm] [--case mm] [--seconds 0.6] [--markdown FILE]
"""

import argparse
import math
import pathlib

import torch

from benchmarks import cases_ops, cases_training, measure  # noqa: F401 - they register cases
from benchmarks.case import CASES

ROW = "{:44s} {:>10s} {:>10s} {:>7s} {:>9s} {:>9s}  {}"


def text(seconds):
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def rates(result):
    """GFLOP/s and GB/s of ocl, where the case says what it computes and moves."""
    gflops = f"{result.flops / result.ocl.wall / 1e9:.0f}" if result.flops else ""
    gbytes = f"{result.bytes / result.ocl.wall / 1e9:.1f}" if result.bytes else ""
    return gflops, gbytes


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", help="only cases of this family")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=measure.SECONDS, help="per side and case")
    parser.add_argument("--markdown", type=pathlib.Path, help="append the table to this file")
    arguments = parser.parse_args()
    properties = torch.ocl.get_device_properties(0)
    title = f"{properties.name}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    print(title)
    print(ROW.format("case", "ocl", "CPU torch", "ratio", "GFLOP/s", "GB/s", ""))
    results = []
    for case in CASES:
        if arguments.family not in (None, case.family) or arguments.case not in case.name:
            continue
        result = measure.run(case, seconds=arguments.seconds)
        results.append((case, result))
        note = f"WRONG: {result.error}" if result.error else ""
        if result.ratio > case.target:
            note = f"above {case.target} {note}"
        ratio = f"{result.ratio:.2f}"
        times = text(result.ocl.wall), text(result.cpu.wall)
        print(ROW.format(case.name, *times, ratio, *rates(result), note), flush=True)
    mean = geometric_mean([result.ratio for _, result in results])
    print(f"geometric mean of {len(results)} ratios: {mean:.3f}")
    if arguments.markdown:
        write_markdown(arguments.markdown, title, results, mean)
    raise SystemExit(any(result.error for _, result in results))


def write_markdown(path, title, results, mean):
    lines = [
        f"\n## {title}\n",
        "| case | ocl | CPU torch | ratio | GFLOP/s | GB/s |",
        "|---|---|---|---|---|---|",
    ]
    for case, result in results:
        cells = [case.name, text(result.ocl.wall), text(result.cpu.wall), f"{result.ratio:.2f}"]
        lines.append("| " + " | ".join([*cells, *rates(result)]) + " |")
    lines.append(f"\nGeometric mean of the ratios: {mean:.3f}\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main()
