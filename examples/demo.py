"""Runs every example on an OpenCL device and on the CPU, side by side.

Both start from the same weights and see the same batches, so that their losses must agree; the demo
fails if they don't, or if anything ran on the CPU that should have run on the device. Plots of the
losses go to build/demo.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import matplotlib
import torch
from tqdm import tqdm

import characters
import diabetes
import digits
import digits_cnn
import mlp_regression
from training import Record, named_device

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (needs the backend chosen first)


@dataclass(frozen=True)
class Example:
    """`least` is what its metrics must reach. At first the runs differ by rounding alone; training
    amplifies that (a ReLU with an input near 0 may end up on the other side), so only the losses of
    the first steps are held to a close tolerance, and all of them to `tolerance`, relative ones."""

    module: ModuleType
    least: dict[str, float] = field(default_factory=dict)
    first_steps: int = 50
    tolerance: float = 0.1


EXAMPLES = {
    "mlp_regression": Example(mlp_regression),
    "diabetes": Example(diabetes),
    "digits": Example(digits, {"test accuracy": 0.97}),
    # Batch norm and momentum amplify more: the CPU's own two convolutions, oneDNN's and ATen's, are
    # 1e-4 apart after 12 steps, 1e-2 after 30, and up to 0.35 after that.
    "digits_cnn": Example(digits_cnn, {"test accuracy": 0.985}, first_steps=10, tolerance=0.5),
    "characters": Example(characters),
}
FIRST_TOLERANCE = 1e-4
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "networks.md"


def device_name(device: torch.device) -> str:
    module = torch.get_device_module(device)
    if not hasattr(module, "get_device_properties"):
        return str(device)
    properties = module.get_device_properties(device)
    platform = getattr(properties, "platform_name", "")  # OpenCL's: several may offer one CPU
    return f"{properties.name} ({platform})" if platform else properties.name


def fallback_counts(device: torch.device) -> dict[str, int]:
    """The ops that ran on the CPU instead of the device, and how often."""
    module = torch.get_device_module(device)
    return dict(module.fallback_counts()) if hasattr(module, "fallback_counts") else {}


def run_with_progress(run: Callable[..., Record], device: str, steps: int | None) -> Record:
    # The bar counts steps; before the first run of an example their number isn't known.
    with tqdm(total=steps, unit="step", desc=f"  {device:<6}", leave=True) as bar:
        return run(device, on_step=bar.update)


def differences(device: Record, cpu: Record, first_steps: int) -> tuple[float, float]:
    """The largest relative differences of the losses: in the first steps, and in all."""
    ours, theirs = torch.tensor(device.losses), torch.tensor(cpu.losses)
    relative = (ours - theirs).abs() / theirs.abs()
    if not relative.isfinite().all():
        return float("inf"), float("inf")
    return relative[:first_steps].max().item(), relative.max().item()


def plot(name: str, device: Record, cpu: Record, label: str, path: Path) -> None:
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(cpu.losses, label="CPU", linewidth=3, alpha=0.4)
    axes.plot(device.losses, label=label, linewidth=1)
    axes.set(title=name, xlabel="step", ylabel="loss", yscale="log")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def report(device: Record, cpu: Record) -> None:
    width = max([len("ms per step"), *map(len, cpu.metrics)])
    print(f"  {'':{width}}  {'device':>10}  {'CPU':>10}")
    rows = [("loss", device.losses[-1], cpu.losses[-1])]
    rows += [(name, device.metrics[name], value) for name, value in cpu.metrics.items()]
    rows += [("ms per step", 1e3 * device.seconds_per_step, 1e3 * cpu.seconds_per_step)]
    for name, ours, theirs in rows:
        print(f"  {name:{width}}  {ours:10.4f}  {theirs:10.4f}")


def table_row(name: str, device: Record, cpu: Record, first: float) -> str:
    """A line of the table in docs/measurements/networks.md."""
    metrics = [f"{key} {device.metrics[key]:.4f} ({cpu.metrics[key]:.4f})" for key in cpu.metrics]
    cells = [
        name,
        str(len(cpu.losses)),
        f"{device.losses[-1]:.4f} ({cpu.losses[-1]:.4f})",
        ", ".join(metrics),
        f"{first:.1e}",
        f"{1e3 * device.seconds_per_step:.1f} ({1e3 * cpu.seconds_per_step:.1f})",
    ]
    return "| " + " | ".join(cells) + " |"


def document(rows: list[str]) -> None:
    head = ["example", "steps", "loss", "on the test set", "first steps' losses", "ms per step"]
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |", *rows]
    begin, end = "<!-- examples -->\n", "<!-- end examples -->"
    text = DOCUMENT.read_text(encoding="utf-8")
    before, after = text.split(begin)[0], text.split(end)[1]
    DOCUMENT.write_text(before + begin + "\n".join(lines) + "\n" + end + after, encoding="utf-8")


def compare(name: str, device: torch.device, out: Path) -> tuple[list[str], str]:
    """Runs one example on both; returns what is wrong, and its line of the table."""
    example = EXAMPLES[name]
    module = example.module
    print(f"\n{name}: {(module.__doc__ or '').strip()}")
    cpu = run_with_progress(module.run, "cpu", None)
    before = fallback_counts(device)
    ours = run_with_progress(module.run, str(device), len(cpu.losses))
    fallbacks = {
        op: count for op, count in fallback_counts(device).items() if count != before.get(op, 0)
    }

    report(ours, cpu)
    first, worst = differences(ours, cpu, example.first_steps)
    print(
        f"  losses agree to {first:.1e} in the first {example.first_steps} steps, "
        f"to {worst:.1e} in all {len(cpu.losses)} (largest relative difference)"
    )
    path = out / f"{name}.png"
    plot(name, ours, cpu, device_name(device), path)
    print(f"  plot: {path}")

    problems = []
    if not (first <= FIRST_TOLERANCE and worst <= example.tolerance):
        problems.append(f"{name}: the losses disagree with the CPU's")
    if fallbacks:
        problems.append(f"{name}: ran on the CPU instead: {fallbacks}")
    for metric, value in example.least.items():
        if not ours.metrics[metric] >= value:
            problems.append(f"{name}: {metric} {ours.metrics[metric]:.4f} is below {value}")
    return problems, table_row(name, ours, cpu, first)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="ocl", type=named_device, help="(%(default)s)")
    parser.add_argument("--only", choices=EXAMPLES, action="append", help="repeatable")
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo"), help="folder of the plots (%(default)s)"
    )
    parser.add_argument("--document", action="store_true", help=f"write {DOCUMENT.name}'s table")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    print(f"device: {arguments.device}, {device_name(arguments.device)}")
    problems, rows = [], []
    for name in arguments.only or EXAMPLES:
        found, row = compare(name, arguments.device, arguments.out)
        problems += found
        rows.append(row)
    if arguments.document:
        document(rows)
    print()
    for problem in problems:
        print(f"FAILED {problem}")
    if not problems:
        print("The device trains as the CPU does; nothing fell back to the CPU.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
