"""Nearly every op once, of 16 MiB or what else is a medium size, beside CPU torch: shows which ones
are slow for their kind. What is common has cases of its own in `python -m benchmarks`.

    python -m benchmarks.studies.breadth [--op cumsum | --document]
"""

import argparse

import torch

from benchmarks.harness import measure
from benchmarks.harness.case import Case
from benchmarks.harness.report import (
    MEASUREMENTS,
    geometric_mean,
    markdown_table,
    slug_of,
    time_text,
    write_section,
)
from benchmarks.studies import breadth_structures
from benchmarks.studies.breadth_samples import OPS, sample

#: Ratios above this are listed in the document; below it they may be noise.
LISTED = 1.25


def case_of(name):
    function, inputs, differs = OPS[name]

    def make(device):
        # Copies: one sample given twice would be read once on the CPU.
        tensors = [sample(i).to(device, copy=True) for i in inputs]
        return lambda: function(*tensors)

    # Sums of as many elements in another order.
    return Case(name, "breadth", make, random=differs, tolerance={"rtol": 1e-3, "atol": 1e-3})


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--op", default="", help="only ops whose name contains this")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each op, about")
    parser.add_argument("--document", action="store_true", help="write this device's section")
    options = parser.parse_args(arguments)
    names = [name for name in OPS if options.op in name]
    if not names:
        parser.error(f"no op's name contains {options.op!r}")
    if options.document and options.op:
        parser.error("--document writes a whole section: leave out --op")
    results = []
    for name in names:
        result = measure.run(case_of(name), seconds=options.seconds, least_calls=4)
        results.append(result)
        print(
            f"{result.ratio:7.2f} {time_text(result.ocl.wall):>12s} "
            f"{time_text(result.other.wall):>12s}  {name}  {result.error}",
            flush=True,
        )
    mean = geometric_mean([result.ratio for result in results])
    above = sorted((r for r in results if r.ratio > LISTED), key=lambda r: -r.ratio)
    line = (
        f"{len(results)} ops: geometric mean of the ratios {mean:.2f}, {len(above)} above {LISTED}."
    )
    print(line)
    if options.document:
        table = [
            [r.name, time_text(r.ocl.wall), time_text(r.other.wall), f"{r.ratio:.2f}"]
            for r in above
        ]
        name = torch.ocl.get_device_properties(0).name
        lines = [f"{name}: {line}", "", *markdown_table(["op", "ocl", "CPU torch", "ratio"], table)]
        write_section(MEASUREMENTS / "breadth.md", f"breadth: {slug_of()}", lines)


if __name__ == "__main__":
    assert breadth_structures  # which brings the ops
    main()
