"""The check's progress, table and report."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch_ocl.cli import info
from torch_ocl.cli.check.process import Outcome

_MOST_LAUNCHES = 12


@dataclass
class Row:
    """The findings about one implementation."""

    engine: str
    implementation: str
    passed: dict[str, int] = field(default_factory=dict)  # cases by dtype
    fault: str = ""
    alone: bool = False  # it fails, and nothing runs in its place
    details: str = ""


def _result(row: Row) -> str:
    if row.fault:
        kind = row.fault.split(":")[0].split()[0]
        kind = {"crashes": "CRASHES", "hangs": "HANGS", "raises": "RAISES"}.get(kind, "WRONG")
        return f"{kind}, {'there is no other' if row.alone else 'left out'}"
    return f"right in {sum(row.passed.values())} cases" if row.passed else "not of this device"


def table(rows: Sequence[Row]) -> str:
    """A line for each implementation, in Markdown."""
    lines = ["| engine | implementation | dtypes | result |", "| --- | --- | --- | --- |"]
    for row in rows:
        dtypes = ", ".join(row.passed)
        lines.append(f"| {row.engine} | {row.implementation} | {dtypes} | {_result(row)} |")
    return "\n".join(lines)


def details(dtype: str, number: int, outcome: Outcome) -> str:
    """Each failure, with the kernels that ran and the options of their programs."""
    lines = [f"case {number}, {dtype}: {outcome.fault}"]
    lines += [f"{engine}: {implementation} ran" for engine, implementation in outcome.ran]
    lines += outcome.launches[:_MOST_LAUNCHES]
    lines += [f"{name} {options}" for name, options in outcome.options.items()]
    return "\n".join(lines)


def write(path: str, index: int, text: str, failing: Sequence[Row], kept: str) -> None:
    """The report, as an issue takes it."""
    found = info.collect()
    device = found["devices"][index]
    title = f"# Check of {device['name']}, {device['platform_name']} {device['driver_version']}"
    parts = [title, f"{len(failing)} kernels fail. {kept}" if failing else "No kernel fails."]
    for row in failing:
        parts += [f"## {row.engine} {row.implementation}", f"```\n{row.details}\n```"]
    parts += ["## Kernels", text, "## Environment", f"```\n{info.text(found)}\n```"]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n\n".join(parts) + "\n")
