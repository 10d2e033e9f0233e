"""Inference on a CPU: ocl, CPU torch and engines made for it, all sides of a case by turns in one
process. The engines are those of harness/engines.py that are installed.

python -m benchmarks.studies.inference [--case ResNet-18] [--seconds 3] [--write]
"""

import argparse
import gc

import torch

from benchmarks.cases import CASES
from benchmarks.harness import report
from benchmarks.harness.case import compile_models
from benchmarks.harness.engines import ENGINES, is_installed
from benchmarks.harness.measure import Side, check, free

DOCUMENT = report.MEASUREMENTS / "inference.md"
TORCH = {
    "ocl": ("ocl", False),
    "ocl compiled": ("ocl", True),
    "CPU torch": ("cpu", False),
    "compiled": ("cpu", True),
}


def sides_of(case):
    """Title -> side, of all that can run the case."""
    sides = {}
    for title, (device, compiled) in TORCH.items():
        compile_models(compiled)
        sides[title] = Side(case.make(device), device)
    compile_models(False)
    for name, engine in ENGINES.items():
        if engine.takes(case) and is_installed(name):
            sides[engine.title] = engine().side(case)
    return sides


def times_of(case, seconds):
    """Title -> the least seconds of a call. Raises ValueError where results differ."""
    sides = sides_of(case)
    expected = sides["CPU torch"].result()
    for title, side in sides.items():
        if wrong := check(case, side.result(), expected):
            raise ValueError(f"{case.name}: {title}: {wrong}")
    for side in sides.values():
        side.warm_up()
    gc.collect()
    spent = 0.0
    while spent < seconds * len(sides):
        spent += sum(side.block()[1] for side in sides.values())
    return {title: side.best.wall for title, side in sides.items()}


def table(cases, seconds):
    """Lines of a Markdown table, milliseconds."""
    titles = [*TORCH, *(engine.title for engine in ENGINES.values())]
    yield "| milliseconds | " + " | ".join(titles) + " |"
    yield "| --- |" + " --- |" * len(titles)
    for case in cases:
        times = times_of(case, seconds)
        free("ocl")
        cells = (f"{times[title] * 1e3:.2f}" if title in times else "" for title in titles)
        yield f"| {case.name} | " + " | ".join(cells) + " |"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each side")
    parser.add_argument("--write", action="store_true", help=f"into {DOCUMENT.name}")
    chosen = parser.parse_args(arguments)
    cases = [c for c in CASES if c.family == "inference" and chosen.case in c.name]
    properties = torch.ocl.get_device_properties(0)
    head = (
        f"{properties.name} ({properties.platform_name}), torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads."
    )
    print(head)
    lines = []
    for line in table(cases, chosen.seconds):
        print(line, flush=True)
        lines.append(line)
    if chosen.write:
        name = report.slug_of("inference")
        report.write_section(DOCUMENT, f"inference: {name}", [f"## {head}", "", *lines])


if __name__ == "__main__":
    main()
