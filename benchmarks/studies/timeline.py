"""Draws an exported Chrome trace of torch.profiler as SVG: what the host did, what the device did,
and an arrow from each call to its kernel.

    python -m benchmarks.studies.timeline --out docs/user/resnet-18-trace.svg
    python -m benchmarks.studies.timeline --trace trace.json --out trace.svg

Without a trace it profiles a training step of ResNet-18, 8 images of 64 x 64. The upper half is the
whole of it, with some of the arrows. The lower half is its begin with all of them, or what `--part`
names.
"""

import argparse
import json
import tempfile
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import torch
from torch.nn import functional

WIDTH, LEFT, RIGHT = 1000, 100, 12
BAR, GAP = 15, 2
#: Narrower ones can't be seen, and neighbours that touch within this are drawn as one.
LEAST = 0.4
FONT = "font-family='Helvetica, Arial, sans-serif'"
#: By category of a box: what it is called, and its colour.
KINDS = {
    "user_annotation": ("range", "#c7c7c7"),
    "cpu_op": ("op", "#8fb8de"),
    "privateuse1_runtime": ("call to OpenCL", "#4f7cac"),
    "gpu_user_annotation": ("range", "#c7c7c7"),
    "kernel": ("kernel", "#e8a33d"),
    "gpu_memcpy": ("copy", "#7fb069"),
    "gpu_memset": ("fill", "#7fb069"),
}
#: Arrows in the picture of the whole trace, and kernels in that of its begin.
SOME_ARROWS, FIRST_KERNELS = 30, 16
ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"}


@dataclass
class Box:
    name: str
    kind: str
    start: float  # microseconds, from the trace's begin
    end: float
    correlation: int = 0
    level: int = 0


@dataclass
class Row:
    """A thread of the host or a stream of a device: boxes in levels, the outermost first."""

    title: str
    on_device: bool
    boxes: list[Box] = field(default_factory=list)

    def stack(self):
        """Gives each box its level: below all that it lies within."""
        self.boxes.sort(key=lambda box: (box.start, -box.end))
        around: list[Box] = []
        for box in self.boxes:
            # Times are rounded to nanoseconds.
            around = [outer for outer in around if outer.end > box.start + 2e-3]
            box.level = len(around)
            around.append(box)

    def between(self, first, last):
        return [box for box in self.boxes if box.end > first and box.start < last]


def profile_step(path):
    """Writes the Chrome trace of a warm training step."""
    from torch.profiler import ProfilerActivity, profile, record_function

    from benchmarks.cases.models import resnet18

    torch.manual_seed(0)
    model = resnet18().to("ocl")
    images, labels = torch.randn(8, 3, 64, 64).to("ocl"), torch.arange(8).to("ocl")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        with record_function("forward"):
            loss = functional.cross_entropy(model(images), labels)
        with record_function("backward"):
            loss.backward()
        with record_function("update"):
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(3):
        step()
    torch.ocl.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        step()
        torch.ocl.synchronize()
    profiled.export_chrome_trace(str(path))


def rows_of(trace):
    """The trace's rows: threads of the host, then streams of devices; empty ones are left out."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") in KINDS]
    if not events:
        raise ValueError("the trace has no ops and no kernels")
    begin = min(e["ts"] for e in events)
    devices = {
        e["pid"]: e["args"]["name"]
        for e in trace["traceEvents"]
        if e.get("ph") == "M" and e["name"] == "process_name"
    }
    rows: dict[tuple, Row] = {}
    for event in events:
        on_device = event["cat"] in ON_DEVICE
        key = (on_device, event["pid"], event["tid"])
        if key not in rows:
            where = str(devices.get(event["pid"], event["pid"]))
            rows[key] = Row(f"{where}, stream {event['tid']}" if on_device else "", on_device)
        start = event["ts"] - begin
        correlation = event.get("args", {}).get("correlation", 0)
        box = Box(event["name"], event["cat"], start, start + event["dur"], correlation)
        rows[key].boxes.append(box)
    for row in rows.values():
        row.stack()
    ordered = sorted(rows.values(), key=lambda row: (row.on_device, row.boxes[0].start))
    for number, row in enumerate(ordered, 1):
        row.title = row.title or f"thread {number}"
    return ordered


class Picture:
    """SVG elements, from above to below."""

    def __init__(self):
        self.parts, self.y = [], 8.0

    def text(self, x, y, words, size=11, fill="#222", anchor="start"):
        self.parts.append(
            f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' fill='{fill}' "
            f"text-anchor='{anchor}'>{escape(words)}</text>"
        )

    def panel(self, rows, first, last, title, every):
        """The boxes between two times, and the arrow to every so many-th kernel."""
        self.text(LEFT, self.y + 11, title, 12)
        self.y += 20
        scale = (WIDTH - LEFT - RIGHT) / (last - first)

        def place(time):
            return LEFT + (min(max(time, first), last) - first) * scale

        calls: dict[int, tuple[float, float]] = {}
        for row in rows:
            shown = row.between(first, last)
            if not shown:
                continue
            self.text(LEFT - 6, self.y + 11, row.title, anchor="end")
            ends: dict[int, float] = {}
            for number, box in enumerate(shown):
                x, end = place(box.start), place(box.end)
                y = self.y + box.level * (BAR + GAP)
                if box.kind == "privateuse1_runtime":
                    calls[box.correlation] = (x, y + BAR)
                elif row.on_device and number % every == 0 and box.correlation in calls:
                    self.arrow(calls[box.correlation], (x, y))
                if end - x < LEAST and x < ends.get(box.level, 0.0) + LEAST:
                    continue
                ends[box.level] = end
                self.box(x, y, max(end - x, LEAST), box)
            self.y += (max(box.level for box in shown) + 1) * (BAR + GAP) + 12
        self.axis(first, last, scale)

    def box(self, x, y, width, box):
        self.parts.append(
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{BAR}' "
            f"fill='{KINDS[box.kind][1]}'/>"
        )
        room = int((width - 4) / 5.4)
        name = box.name.removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: ")
        if room >= 4:
            shown = name if len(name) <= room else name[: room - 1] + "…"
            self.text(x + 2, y + 11, shown, 9.5)

    def arrow(self, start, end):
        (x, y), (to_x, to_y) = start, end
        middle = (y + to_y) / 2
        self.parts.append(
            f"<path d='M{x:.1f},{y:.1f} C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} "
            f"{to_x:.1f},{to_y:.1f}' fill='none' stroke='#a33' stroke-width='0.7' "
            "marker-end='url(#tip)'/>"
        )

    def axis(self, first, last, scale):
        """Times below a panel."""
        digits = 0 if last - first > 5e4 else 1 if last - first > 5e3 else 2
        for tick in range(6):
            time = first + (last - first) * tick / 5
            x = LEFT + (time - first) * scale
            anchor = "start" if tick == 0 else "end" if tick == 5 else "middle"
            self.text(x, self.y + 8, f"{time / 1e3:.{digits}f} ms", 10, "#666", anchor)
        self.y += 24

    def legend(self):
        x = LEFT
        for name, colour in dict(KINDS.values()).items():
            self.parts.append(
                f"<rect x='{x}' y='{self.y:.1f}' width='12' height='12' fill='{colour}'/>"
            )
            self.text(x + 17, self.y + 10, name)
            x += 34 + 6 * len(name)
        self.y += 22

    def svg(self):
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {self.y:.0f}' {FONT}>\n"
            f"<rect width='{WIDTH}' height='{self.y:.0f}' fill='white'/>\n"
            "<marker id='tip' viewBox='0 0 6 6' refX='5' refY='3' markerWidth='5' markerHeight='5' "
            "orient='auto'><path d='M0,0 L6,3 L0,6 z' fill='#a33'/></marker>\n"
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def of_kind(rows, kind):
    boxes = [box for row in rows for box in row.boxes if box.kind == kind]
    return sorted(boxes, key=lambda box: box.start)


def begin_of(rows):
    """From the call of the first kernel to the end of some."""
    kernels = of_kind(rows, "kernel")
    if not kernels:
        raise ValueError("the trace has no kernels")
    first = min(box.start for box in (kernels[0], *of_kind(rows, "privateuse1_runtime")))
    last = kernels[:FIRST_KERNELS][-1].end
    return max(first - 0.05 * (last - first), 0), last


def draw(trace, part=None):
    """The SVG of a trace. `part`: two shares of its length, the part that is drawn in detail."""
    rows = rows_of(trace)
    length = max(box.end for row in rows for box in row.boxes)
    first, last = [share * length for share in part] if part else begin_of(rows)
    some = max(len(of_kind(rows, "kernel")) // SOME_ARROWS, 1)
    picture = Picture()
    picture.panel(rows, 0, length, "All of it, with some of the arrows from calls to kernels", some)
    picture.panel(rows, first, last, "A part of it, with all arrows", 1)
    picture.legend()
    return picture.svg()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trace", type=Path, help="a file of export_chrome_trace()")
    parser.add_argument("--out", type=Path, required=True, help="the SVG")
    parser.add_argument("--part", type=float, nargs=2, help="shares of the trace's length")
    chosen = parser.parse_args(arguments)
    if chosen.part and not 0 <= chosen.part[0] < chosen.part[1] <= 1:
        parser.error("--part: two shares in ascending order, from 0 to 1")
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.trace
        if path is None:
            path = Path(folder) / "trace.json"
            profile_step(path)
        trace = json.loads(path.read_text(encoding="utf-8"))
    chosen.out.write_text(draw(trace, chosen.part), encoding="utf-8")


if __name__ == "__main__":
    main()
