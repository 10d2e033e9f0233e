"""Results as text, Markdown and a plot."""

import math
import os
import pathlib
import re
import sys
from dataclasses import dataclass, field

import torch

from benchmarks.harness.engines import ENGINES

#: Where measurements are written.
MEASUREMENTS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "measurements"
LABELS = {"cpu": "CPU torch", "cuda": "CUDA torch"}
LABELS |= {name: engine.title for name, engine in ENGINES.items()}
COLUMNS = ("case", "ocl", "other", "ratio", "CPU time", "GFLOP/s", "GB/s", "of copy", "roofline")
ROW = "{:44s} {:>10s} {:>10s} {:>7s} {:>8s} {:>9s} {:>9s} {:>9s} {:>9s}  {}"


@dataclass
class Run:
    """All that one run of the harness found out."""

    other: str
    peaks: object
    results: list = field(default_factory=list)  # of (Case, Result)
    naive: list = field(default_factory=list)
    failed: list = field(default_factory=list)  # of (Case, message)
    untimed: tuple | None = None  # what untimed.by_family() gives, of a full run
    programs: dict = field(default_factory=dict)

    @property
    def mean(self):
        return geometric_mean([result.ratio for _, result in self.results])


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def time_text(seconds):
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def cells(run, case, result):
    """Name, times, ratios of wall and CPU time, and ocl's GFLOP/s, GB/s and shares of a copy's
    bandwidth and of the roofline, where the case says what it computes and moves."""
    wall = result.ocl.wall
    share = run.peaks.roofline(case, wall * case.repeats, result.moving) if run.peaks else None
    return [
        case.name,
        time_text(wall),
        time_text(result.other.wall),
        f"{result.ratio:.2f}",
        f"{result.process_ratio:.2f}" if result.other.process else "",
        f"{result.flops / wall / 1e9:.0f}" if result.flops else "",
        f"{result.bytes / wall / 1e9:.1f}" if result.bytes else "",
        f"{result.copying / (wall * case.repeats):.0%}" if result.copying else "",
        f"{share:.0%}" if share else "",
    ]


def header(run):
    return ["case", "ocl", LABELS.get(run.other, run.other), *COLUMNS[3:]]


def row(run, case, result):
    note = f"WRONG: {result.error}" if result.error else ""
    if result.ratio > case.target:
        note = f"above {case.target} {note}"
    return ROW.format(*cells(run, case, result), note)


def programs_text(programs):
    return (
        f"{programs['built']} programs built in {programs['build_seconds']:.2f} s, "
        f"{programs['loaded']} loaded from the cache in {programs['load_seconds']:.2f} s"
    )


def untimed_text(untimed):
    """Lines: how many ops of the op table have no case, and their names by family."""
    total, families = untimed
    left = {op for ops in families.values() for op in ops}
    lines = [f"{len(left)} of the {total} ops of the op table have no case:"]
    return lines + [f"- {family}: {', '.join(ops)}" for family, ops in families.items()]


def slug_of(other=""):
    """Names a device, its driver's platform and what it was compared with, for file and section."""
    properties = torch.ocl.get_device_properties(0)
    words = f"{properties.platform_name} {properties.name} {other}".lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def markdown_table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return [("| " + " | ".join(line) + " |").replace("|  |", "| |") for line in lines]


def section(run, image):
    """The Markdown of one run."""
    properties = torch.ocl.get_device_properties(0)
    other = LABELS.get(run.other, run.other)
    chosen = os.environ.get("TORCH_OCL_DEVICES")
    command = f"TORCH_OCL_DEVICES={chosen} " if chosen else ""
    command += " ".join(["python -m benchmarks", *sys.argv[1:]])
    lines = [
        f"## {properties.name}, {properties.platform_name}, against {other}",
        "",
        f"    {command}",
        "",
        f"Driver {properties.driver_version}; torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads; {properties.max_compute_units} compute units.",
        f"Measured peaks: {run.peaks.describe()}. {programs_text(run.programs)}.",
        f"Geometric mean of {len(run.results)} ratios: {run.mean:.3f}.",
        "",
        f"![ratios by family]({image})",
        "",
        *markdown_table(header(run), [cells(run, *pair) for pair in run.results]),
    ]
    if run.failed:
        by_message = {}
        for case, message in run.failed:
            by_message.setdefault(message, []).append(case.name)
        lines += ["", "Cases that raised:", ""]
        lines += [f"- {', '.join(names)}: {text}" for text, names in by_message.items()]
    if run.naive:
        rows = [cells(run, *pair)[:4] for pair in run.naive]
        lines += ["", "Beside kernels with one work-item per element, on the same device:", ""]
        lines += markdown_table(["case", "ocl", "naive kernel", "ratio"], rows)
    if run.untimed:
        lines += ["", *untimed_text(run.untimed)]
    return "\n".join(lines) + "\n"


def plot(run, path):
    """Ratios by family, one dot per case and a bar for the geometric mean."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FixedLocator, NullLocator

    families = {}
    for case, result in run.results:
        families.setdefault(case.family, []).append(result.ratio)
    figure, axes = pyplot.subplots(figsize=(8, 0.5 * len(families) + 1.5))
    for y, (family, ratios) in enumerate(families.items()):
        axes.scatter(ratios, [y] * len(ratios), s=18, color="tab:blue", alpha=0.6)
        axes.plot([geometric_mean(ratios)] * 2, [y - 0.35, y + 0.35], color="tab:red")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(families)), list(families))
    axes.invert_yaxis()
    axes.set_xlabel(f"time of ocl / time of {LABELS.get(run.other, run.other)} (less is faster)")
    axes.set_title(f"{torch.ocl.get_device_name(0)}; bars: geometric means", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def document(run, path):
    """Writes the run's section of the Markdown file, in place of the one that stands between this
    device's markers, else at the end; the plot goes beside the file."""
    name = slug_of(run.other)
    image = path.with_name(f"{name}.png")
    plot(run, image)
    write_section(path, f"benchmarks: {name}", section(run, image.name).splitlines())


def document_of_device(other):
    """The document that has this device's section, or a new one's path."""
    name = slug_of(other)
    for path in sorted(MEASUREMENTS.glob("*.md")):
        if f"<!-- benchmarks: {name} -->\n" in path.read_text(encoding="utf-8"):
            return path
    return MEASUREMENTS / f"{name}.md"


def write_section(path, name, lines):
    """Puts lines between the markers of that name in a Markdown file, at its end if it has none."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end {name.split(':')[0]} -->\n"
    new = begin + "\n".join(lines) + "\n" + end
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(text):
        text = pattern.sub(lambda _: new, text)
    else:
        text = (text.rstrip("\n") + "\n\n" if text else "") + new
    path.write_text(text, encoding="utf-8")
