"""Convolutions that take the pointwise ops after them into their kernels (template.py).

Upstream's lowering chooses among implementations, and here it has one. Its node is a template
to the scheduler. A convolution that is alone is the same call as upstream's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
from torch._inductor import config, ir
from torch._inductor.virtualized import V

from torch_ocl import _C
from torch_ocl.inductor import device as devices
from torch_ocl.inductor.plan import sizes
from torch_ocl.inductor.templates import template
from torch_ocl.inductor.types import compute_dtype


class Convolution(template.Template):
    """A convolution with a batch, dense, with its channels last or in planes.

    Args:
        inputs: The input, the weight, and the bias where there is one.
        settings: stride, padding, dilation: of each axis. groups.
        channels_last: How the result lies.
    """

    kind = "fused_convolution"

    def __init__(
        self,
        layout: ir.Layout,
        inputs: Sequence[Any],
        settings: dict[str, Any],
        channels_last: bool,
    ) -> None:
        # The buffer's dependencies are asked for when it is registered.
        self.arguments, self.channels_last = settings, channels_last
        super().__init__(layout, inputs)

    def matrix(self) -> tuple[sympy.Expr, sympy.Expr]:
        images, channels, *positions = self.get_size()
        plane = sympy.prod(positions)
        return (images * plane, channels) if self.channels_last else (images * channels, plane)

    def axes(self) -> list[int]:
        first, channels, *positions = super().axes()
        return [first, *positions, channels] if self.channels_last else super().axes()

    def indices(self, text: Callable[[sympy.Expr], str]) -> tuple[str, str]:
        """A product of windows has a group of channels as z."""
        groups = self.arguments["groups"]
        if groups == 1 or not self.channels_last:
            return "(long)row", "(long)column"
        channels = self.get_size()[1] // groups
        return "(long)row", f"(long)z * ({text(channels)}) + (long)column"

    def widths(self, device: int) -> dict[str, int]:
        lanes = template.lanes_of_gpus(self.get_dtype())
        if devices.is_cpu_form(device):
            lanes = sizes.CPU_BYTES // compute_dtype(self.get_dtype()).itemsize
        return {"epilogue": 1} | {f"epilogue_{n}": n for n in (2, 4, 8, 16) if n <= lanes}

    def lengths(self) -> dict[str, sympy.Integer]:
        _, columns = self.matrix()
        return {"row_length": columns} if isinstance(columns, sympy.Integer) else {}

    def names(self, lanes: int) -> dict[str, str]:
        more = {"epilogue_lanes": f"epilogue_{lanes}"} if lanes > 1 else {}
        return {"epilogue_1": "epilogue", **more}

    def pays(self, after: Sequence[Any]) -> bool:
        """The engine says where its kernels gain by taking another tensor of that size. Elsewhere
        what follows neither reads one, nor leaves the result itself to others."""
        _, channels, *_ = self.get_size()
        index = self.get_device().index or 0
        if not devices.is_cpu_form(index):
            return template.pays_on_gpus(self, after)
        depthwise = bool(self.arguments["groups"] == channels)
        if _C.convolution_takes_other_tensors(index, self.channels_last, depthwise):
            return True
        if template.reads_as_many(self, after):
            return False
        followers = {node.get_name() for node in after}
        users = V.graph.scheduler.name_to_buf[self.get_name()].users
        return all(user.get_name() in followers for user in users)

    def settings(self) -> tuple[Any, ...]:
        names = ("stride", "padding", "dilation", "groups")
        return (*[self.arguments[name] for name in names], self.channels_last)

    def call_alone(self, node: Any) -> None:
        """The eager op makes its result itself."""
        wrapper = V.graph.wrapper_code
        wrapper.allocated.add(self.get_name())
        wrapper.call_convolution(self.get_name(), self.operands(), self.arguments)
        if config.size_asserts and not V.graph.cpp_wrapper:
            shape = map(wrapper.codegen_shape_tuple, (self.get_size(), self.get_stride()))
            wrapper.writeline(f"assert_size_stride({self.get_name()}, {', '.join(shape)})")


def binding_of(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """Upstream's lowering calls this to make a convolution's node, which is one of these then."""

    @functools.wraps(upstream)
    def bind(inputs: Sequence[Any], layout: ir.Layout, *args: Any, **kwargs: Any) -> Any:
        choice = upstream(inputs, layout, *args, **kwargs)
        made = _settings(kwargs)
        order = _channels_last(layout)
        if made is not None and order is not None and template.takes(inputs):
            choice.output_node = lambda: ir.TensorBox.create(
                Convolution(layout, inputs, made, order)
            )
        return choice

    return bind


def _settings(kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The convolution's, in numbers; None for one that is transposed, and is stored in several
    parts, or of sizes that aren't known."""
    if kwargs["transposed"]:
        return None
    lists = {name: kwargs[name] for name in ("stride", "padding", "dilation")}
    if any(not isinstance(value, int | sympy.Integer) for v in lists.values() for value in v):
        return None
    return {name: tuple(map(int, v)) for name, v in lists.items()} | {"groups": kwargs["groups"]}


def _channels_last(layout: ir.Layout) -> bool | None:
    """How the result lies; None if neither is so."""
    known = V.graph.sizevars.statically_known_list_equals
    images, channels, *positions = layout.size
    if V.graph.sizevars.statically_known_equals(sympy.prod(positions), 1):
        return True if known(layout.stride[:2], [channels, 1]) else None
    if known(layout.stride, ir.FlexibleLayout.contiguous_strides(layout.size)):
        return False
    last = ir.FlexibleLayout.contiguous_strides([images, *positions, channels])
    return True if known(layout.stride, [last[0], last[-1], *last[1:-1]]) else None
