"""The constants that `python -m torch_ocl tune` tries, and the work that each of them matters for.

csrc/engine/device_constants.h says what each one means."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch_ocl import _C

#: Another value must take less than this share of the time, over all work that it matters for.
CLEARLY_FASTER = _C.CLEARLY_FASTER
#: Work that another value makes this much slower refuses it.
TOO_SLOW = 1.05

_ROWS = ("softmax", "layer norm")
_SUMS = ("row sums", "column sums")
_TILES = (
    "product",
    "product float16",
    "convolution 3x3",
    "convolution 1x1",
    "convolution 3x3 float16",
    "attention",
    "attention float16",
)


@dataclass(frozen=True)
class Knob:
    """A constant, the work it matters for, and what to try: factors of its value, or values."""

    name: str
    work: tuple[str, ...]
    factors: tuple[float, ...] = (0.5, 2)
    values: tuple[float, ...] = ()

    def candidates(self, value: float) -> list[float]:
        """The values that are tried beside the one in use. Whole numbers stay whole."""
        tried = self.values or [value * factor for factor in self.factors]
        return [t for t in tried if t > 0 and t != value and (value != int(value) or t == int(t))]


_GPU = (
    Knob("hardware.item_registers", _TILES, values=(64, 128, 255)),
    Knob("hardware.wanted_items", _TILES, values=(416, 832)),
    Knob("unit_registers", _TILES),
    Knob("launch_cost", _TILES, factors=(0.3, 3)),
    Knob("row_register_bytes", _ROWS),
    Knob("most_sharers", _ROWS),
    Knob("norm_registers", ("layer norm",)),
    Knob("resident_items", _SUMS),
    Knob("resident_column_items", ("column sums", "layer norm")),
    Knob("reduce.large_group", ("row sums",)),
    Knob("reduce.column_chunk", ("column sums", "layer norm")),
    Knob("element_group", ("elements", "broadcast")),
    Knob("spread_elements", ("elements", "broadcast"), factors=(0.25, 4)),
    Knob("groups_per_unit", ("depthwise",)),
    Knob("depthwise_group", ("depthwise",)),
    Knob("channels.vectors", ("batch norm, channels last",)),
    Knob("channels.positions", ("batch norm",)),
    Knob("scan.items", ("scan",)),
    Knob("fft.elements", ("Fourier",)),
    Knob("fft.side_by_side", ("Fourier",)),
)
_CPU = (
    Knob("panel_bytes", ("convolution 3x3", "convolution 1x1", "product")),
    Knob("packed_kc", ("product", "convolution 1x1")),
    Knob("packed_block_bytes", ("product", "convolution 1x1")),
    Knob("staged_bytes", ("attention", "convolution 3x3")),
    Knob("item_elements", ("elements", "broadcast", "softmax", "layer norm"), factors=(0.25, 4)),
    Knob("core_items", ("elements", "softmax", "row sums")),
    Knob("element_group", ("elements", "broadcast")),
    Knob("reduce.column_chunk", ("column sums", "layer norm")),
    Knob("reduce.item_elements", _SUMS, factors=(0.25, 4)),
    Knob("channels.positions", ("batch norm",)),
    Knob("scan.column_elements", ("scan",), factors=(0.25, 4)),
)


def knobs(kind: str) -> tuple[Knob, ...]:
    """For "cpu", or for other kinds of device; those that matter most come first."""
    return _CPU if kind == "cpu" else _GPU


def gain(default: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The geometric mean of the other's times over the default's, by work; infinite where one is
    too slow."""
    ratio = 1.0
    for work, seconds in default.items():
        if other[work] > TOO_SLOW * seconds:
            return float("inf")
        ratio *= (other[work] / seconds) ** (1 / len(default))
    return ratio


def better(times: Mapping[float, Mapping[str, float]], value: float) -> float:
    """The best of the values that were timed: the one in use unless another is clearly faster."""
    gains = {other: gain(times[value], times[other]) for other in times if other != value}
    best = min(gains, key=lambda other: gains[other], default=value)
    return best if gains.get(best, 1.0) < CLEARLY_FASTER else value
