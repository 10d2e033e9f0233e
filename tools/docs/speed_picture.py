"""The picture of the front page for generate.py: every case of the tables of measurements, as SVG.

A row for each device, a dot for each case's ratio of times, a bar for their geometric mean. Text is
in grey that reads on white and on black.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, ROW, TOP = 880, 350, 30, 62, 34
#: The ratios at the ends of the axis: what lies beyond is drawn there.
LEAST, MOST = 1 / 32, 4.0
TICKS = {1 / 32: "32x faster", 1 / 8: "8x", 1 / 2: "2x", 1.0: "as fast", 2.0: "2x slower"}
GREY, DOT, BAR = "#808890", "#3b82c4", "#d9480f"


@dataclass(frozen=True)
class Table:
    """One table of measurements: on what, beside what, and the ratio of times of each case."""

    device: str
    driver: str
    beside: str
    ratios: tuple[float, ...]
    mean: float

    @property
    def speed(self) -> str:
        """How many times as fast as the other one it is, by the geometric mean."""
        return f"{1 / self.mean:.1f}"


def tables(folder: Path) -> list[Table]:
    """Those of the Markdown files in docs/measurements, in the order of the files' names."""
    found = []
    for path in sorted(folder.glob("*.md")):
        sections = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for section in sections[1:]:
            title = re.match(r"(.+), (.+), against (.+)\n", section)
            mean = re.search(r"^Geometric mean of (\d+) ratios: (.+)\.$", section, re.MULTILINE)
            if title is None or mean is None:
                continue
            rows = re.findall(r"^\|[^|]+\|[^|]+\|[^|]+\| *([\d.]+) *\|", section, re.MULTILINE)
            ratios = tuple(float(row) for row in rows[: int(mean[1])])
            # PoCL puts the kind of device and the target of its code before the processor.
            device = re.sub(r"^pthread-.+?-(?=[A-Z])", "", title[1])
            found.append(Table(device, title[2], title[3], ratios, float(mean[2])))
    return found


def _x(ratio: float) -> float:
    share = math.log(min(max(ratio, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _text(x: float, y: float, text: str, size: int = 13, anchor: str = "start", **more: str) -> str:
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{GREY}"{attributes}>{escape(text)}</text>'
    )


def _row(table: Table, y: float) -> list[str]:
    lines = [
        _text(12, y - 6, table.device, 16, font_weight="bold"),
        _text(12, y + 12, f"{table.driver}, beside {table.beside}"),
    ]
    lines.append(f'<g fill="{DOT}" fill-opacity="0.55">')
    for i, ratio in enumerate(table.ratios):
        # Dots of a row lie in seven lines, so that equal ratios don't hide each other.
        place = y - 15 + 5 * (i * 3 % 7)
        lines.append(f'<circle cx="{_x(ratio):.1f}" cy="{place:.1f}" r="2.6"/>')
    lines.append("</g>")
    x = _x(table.mean)
    lines.append(f'<rect x="{x - 1.5:.1f}" y="{y - 21:.1f}" width="3" height="42" fill="{BAR}"/>')
    label = f"{table.speed}x"
    lines.append(_text(x, y - 24, label, 13, "middle", font_weight="bold").replace(GREY, BAR))
    return lines


def svg(folder: Path) -> str:
    """The picture of the tables in `folder`."""
    found = tables(folder)
    bottom = TOP + ROW * len(found) + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 24}" '
        f'width="{WIDTH}" font-family="system-ui, sans-serif">',
        "<title>How fast ocl is beside PyTorch's own code, in each case</title>",
    ]
    for ratio, name in TICKS.items():
        x = _x(ratio)
        width = 2 if ratio == 1 else 1
        lines.append(
            f'<line x1="{x:.1f}" y1="{TOP - 20}" x2="{x:.1f}" y2="{bottom}" stroke="{GREY}" '
            f'stroke-opacity="{0.9 if ratio == 1 else 0.3}" stroke-width="{width}"/>'
        )
        lines.append(_text(x, bottom + 16, name, anchor="middle"))
    for i, table in enumerate(found):
        lines += _row(table, TOP + ROW * (i + 0.5))
    return "\n".join([*lines, "</svg>", ""])
