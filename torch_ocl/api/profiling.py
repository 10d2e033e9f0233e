"""Profiling: what the device spent its time on, and ranges that profiles show.

`torch.profiler` has everything, op by op. `torch.ocl.profiler` has a quick table of the kernels.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch

from torch_ocl import _C

__all__ = ["KernelTime", "mark", "profiler", "range", "range_pop", "range_push"]


@dataclass
class KernelTime:
    """A row of torch.ocl.profiler's table: all launches of a kernel, or all copies of a kind."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    #: The least that the launches' ops must move and compute; 0 where nothing is known.
    bytes: float = 0.0
    flops: float = 0.0
    #: Seconds of those launches of which bytes or operations are known.
    seconds_moving: float = 0.0
    seconds_computing: float = 0.0
    #: The least time that the device's measured peaks allow; None if they weren't measured.
    least_seconds: float | None = None
    #: Names of the ops that launched it.
    ops: dict[str, int] = field(default_factory=dict)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second."""
        return self.bytes / self.seconds_moving if self.bytes else None

    @property
    def flops_per_second(self) -> float | None:
        """Floating point operations per second."""
        return self.flops / self.seconds_computing if self.flops else None

    @property
    def roofline(self) -> float | None:
        """The least time by the device's peaks over the measured one."""
        return self.least_seconds / self.seconds if self.least_seconds and self.seconds else None


@dataclass
class _Op:
    name: str
    dtype: str
    bytes: float
    flops: float
    seconds: float = 0.0


@dataclass
class _Work:
    """The properties of a case that Peaks.roofline() asks for."""

    bytes: float
    flops: float
    dtype: str


_peaks: Any = None


def _measured_peaks() -> Any:
    """Peaks of device 0, measured once."""
    global _peaks
    if _peaks is None:
        from torch_ocl.cli.peaks import measure_peaks

        _peaks = measure_peaks()
    return _peaks


class profiler:
    """A context manager that prints how long each kernel took, longest first.

    Args:
        roofline: whether to compare with the device's peaks. They are measured after the first
            profile, which takes a few seconds. Device 0 alone has them.
        rows: how many rows to print; 0 prints nothing.

    Columns are: launches, total and mean time, share of all kernels' time, bandwidth, arithmetic,
    the share of the roofline, and the ops. Bytes and operations are an op's: each operand read
    once, each result written once, and the operations of products, convolutions and attention. What
    an op's kernels reach together stands at each of them. Kernels of torch.ocl.compile_kernel have
    no op, so only their times are known.

    `torch.ocl.profiler.profile` is another name of it, as CUDA's module has one.

    Afterwards `kernels` has the rows as KernelTime, `device_seconds` the sum of their times,
    `wall_seconds` the time between entry and exit, `table()` the text. Only one can be active at a
    time: another raises RuntimeError.
    """

    def __init__(self, *, roofline: bool = True, rows: int = 20) -> None:
        self._with_roofline = roofline
        self._rows = rows
        self._profile: Any = None
        self.kernels: list[KernelTime] = []
        self.wall_seconds = 0.0

    @property
    def device_seconds(self) -> float:
        """Seconds of all kernels and copies."""
        return sum(kernel.seconds for kernel in self.kernels)

    def __enter__(self) -> "profiler":
        torch.ocl.synchronize()
        self._profile = _C.Profile()
        self._start = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        profile, self._profile = self._profile, None
        commands, costs = profile.stop()  # waits for them
        self.wall_seconds = time.perf_counter() - self._start
        del profile
        peaks = _measured_peaks() if self._with_roofline and error is None else None
        self.kernels = _by_kernel(commands, costs, peaks)
        if self._rows and error is None:
            print(self.table(self._rows))

    def table(self, rows: int | None = None) -> str:
        """The table as a string, of the `rows` longest kernels, or of all."""
        shown = self.kernels[:rows]
        names = [_shortened(kernel.name, 56) for kernel in shown]
        width = max([6, *map(len, names)])
        lines = [
            f"{'Kernel':{width}} {'Calls':>6} {'Total ms':>9} {'Mean us':>9} {'Share':>6} "
            f"{'GB/s':>7} {'GFLOP/s':>8} {'Roof':>5}  Ops"
        ]
        whole = self.device_seconds
        for name, kernel in zip(names, shown, strict=True):
            lines.append(
                f"{name:{width}} {kernel.calls:6} {1e3 * kernel.seconds:9.3f} "
                f"{1e6 * kernel.seconds / kernel.calls:9.1f} {kernel.seconds / whole:6.1%} "
                f"{_rate(kernel.bandwidth):>7} {_rate(kernel.flops_per_second):>8} "
                f"{'' if kernel.roofline is None else f'{kernel.roofline:.0%}':>5}  "
                f"{_ops(kernel)}"
            )
        if len(self.kernels) > len(shown):
            rest = sum(kernel.seconds for kernel in self.kernels[len(shown) :])
            lines.append(f"and {len(self.kernels) - len(shown)} more, {1e3 * rest:.3f} ms")
        calls = sum(kernel.calls for kernel in self.kernels)
        busy = whole / self.wall_seconds if self.wall_seconds else 0.0
        lines.append(
            f"{calls} launches and copies, {1e3 * whole:.3f} ms on the device in "
            f"{1e3 * self.wall_seconds:.3f} ms ({busy:.0%})"
        )
        return "\n".join(lines)


profiler.profile = profiler  # type: ignore[attr-defined]


def _shortened(name: str, length: int) -> str:
    return name if len(name) <= length else name[: length - 3] + "..."


def _rate(per_second: float | None) -> str:
    return "" if per_second is None else f"{per_second / 1e9:.4g}"


def _ops(kernel: KernelTime) -> str:
    names = sorted(kernel.ops, key=lambda name: -kernel.ops[name])
    text = ", ".join(name.removeprefix("aten::") for name in names[:2])
    return text + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _by_kernel(commands: list[Any], costs: list[Any], peaks: Any) -> list[KernelTime]:
    """Rows, longest first. An op's bytes and operations belong to its kernels by their times."""
    ops = {number: _Op(*cost) for number, *cost in costs}
    for _, is_kernel, _, _, start, end, _, number in commands:
        if is_kernel and number in ops:
            ops[number].seconds += (end - start) * 1e-9
    rows: dict[str, KernelTime] = {}
    for name, is_kernel, device, _, start, end, copied, number in commands:
        row = rows.setdefault(name, KernelTime(name))
        seconds = (end - start) * 1e-9
        row.calls += 1
        row.seconds += seconds
        op = ops.get(number)
        if op is not None:
            row.ops[op.name] = row.ops.get(op.name, 0) + 1
        if is_kernel:
            share = seconds / op.seconds if op is not None and op.seconds else 0.0
            work = _Work(0.0, 0.0, "")
            if op is not None:
                work = _Work(op.bytes * share, op.flops * share, op.dtype)
        else:
            work = _Work(copied, 0.0, "")
        if work.bytes:
            row.bytes += work.bytes
            row.seconds_moving += seconds
        if work.flops:
            row.flops += work.flops
            row.seconds_computing += seconds
        if is_kernel and peaks is not None and device == 0:
            least = max(work.bytes / peaks.bandwidth, peaks.arithmetic(work))
            row.least_seconds = (row.least_seconds or 0.0) + least
    return sorted(rows.values(), key=lambda row: -row.seconds)


class _Ranges(threading.local):
    def __init__(self) -> None:
        self.open: list[Any] = []


_ranges = _Ranges()


def range_push(msg: str) -> int:
    """Begins a range of that name, which torch.profiler shows on the host's and the device's rows.

    Returns how many ranges of this thread are open around it.
    """
    entered = torch.profiler.record_function(msg)
    entered.__enter__()
    _ranges.open.append(entered)
    return len(_ranges.open) - 1


def range_pop() -> int:
    """Ends the range of this thread that was begun last; returns how many are open around it.

    Returns -1 where none is open.
    """
    if not _ranges.open:
        return -1
    _ranges.open.pop().__exit__(None, None, None)
    return len(_ranges.open)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range around a block, or, as a decorator, around a function.

    Args:
        msg: the range's name; formatted with the other arguments, if there are any.
    """
    range_push(msg.format(*args, **kwargs) if args or kwargs else msg)
    try:
        yield
    finally:
        range_pop()


def mark(msg: str) -> None:
    """A point in time of that name, which torch.profiler shows on the host's row."""
    with torch.profiler.record_function(msg):
        pass
