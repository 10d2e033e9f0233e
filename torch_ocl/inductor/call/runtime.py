"""Compiled graphs call this: their kernels' programs, built by threads, and the kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl import _C
from torch_ocl.inductor import refused
from torch_ocl.inductor.text.program import helpers_of

# Build logs call a program by this name, before the name of its first kernel.
_FILE = "inductor:"
# Kernels of one program: several programs are built side by side.
_KERNELS_PER_PROGRAM = 6

_PARTS = {
    "arcs": ["math/arcs.clh"],
    "error_function": ["math/error_function.clh"],
    "exponential": ["math/exponential.clh"],
    "hyperbolic": ["math/hyperbolic.clh"],
    "normal": ["math/normal.clh"],
    "trigonometric": ["math/trigonometric.clh"],
    "atomics": ["include/atomics.clh"],
    "check": ["inductor/check.clh"],
    "random": ["inductor/random.clh"],
    "power": ["inductor/power.clh"],
}

empty_strided = _C.empty_strided
_pool: ThreadPoolExecutor | None = None


def _refusal(name: str, origin: str, text: str) -> Callable[[str], None]:
    """Gives what raises, given the log of a driver that does not build a text."""

    def refuse(log: str) -> None:
        raise refused.RefusedKernel(refused.explain(name, origin, text, RuntimeError(log)), ())

    return refuse


def fused_product(
    name: str,
    origin: str,
    epilogue: str,
    lanes: int,
    tensors: int,
    numbers: int,
    alpha: float,
    beta: float,
) -> Callable[..., None]:
    """A matrix product with its epilogue (templates/template.py), as a function.

    Args:
        name: What errors call it.
        origin: The ops that it computes, and their lines of the model.
        epilogue: What goes in front of the engine's kernels.
        lanes: The columns that the epilogue's second function takes, 0 without one.
        tensors: How many the epilogue reads and writes; the function takes them after a, b and c.
        numbers: How many integers it takes after these.
        alpha: Times a @ b.
        beta: Times c.

    Raises:
        RefusedKernel: From the function, where the driver does not build the epilogue.
    """
    refuse = _refusal(name, origin, epilogue)

    return _C.fused_product(epilogue, lanes, tensors, numbers, alpha, beta, refuse)  # type: ignore[no-any-return]


def fused_pieces(
    name: str,
    origin: str,
    epilogue: str,
    lanes: int,
    tensors: int,
    numbers: int,
    pieces: int,
    scaled: bool,
    points: bool,
    dtype: torch.dtype,
    epsilon: float | None,
    shift: float,
) -> Callable[..., None]:
    """torch.ops.ocl.linear_pieces with its epilogue, as a function.

    Args:
        name: As fused_product().
        origin: As fused_product().
        epilogue: As fused_product().
        lanes: As fused_product().
        tensors: How many the epilogue reads and writes; the function takes them after the input,
            the weights, their scales, and the weight of a norm.
        numbers: How many integers it takes after these.
        pieces: How many weights there are.
        scaled: Whether each has scales.
        points: As the op has it, and the next three.
        dtype: Of the results that the epilogue sees.
        epsilon: None: there is no norm.
        shift: Added to the norm's weight.

    Raises:
        RefusedKernel: From the function, where the driver does not build the epilogue.
    """
    settings = pieces, scaled, points, dtype, epsilon, shift
    refuse = _refusal(name, origin, epilogue)
    return _C.fused_pieces(epilogue, lanes, tensors, numbers, *settings, refuse)  # type: ignore[no-any-return]


def fused_convolution(
    name: str,
    origin: str,
    epilogue: str,
    lanes: int,
    tensors: int,
    numbers: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    channels_last: bool,
) -> Callable[..., None]:
    """A convolution with its epilogue, as a function.

    Args:
        name: As fused_product().
        origin: As fused_product().
        epilogue: As fused_product().
        lanes: The most columns that the epilogue's functions take, 0 if one alone.
        tensors: How many the epilogue reads and writes; the function takes them after the input,
            the weight, and the bias or None.
        numbers: How many integers it takes after these.
        stride: One for each axis, as the next two.
        padding: Zeros on both sides.
        dilation: Between a window's elements.
        groups: Of channels.
        channels_last: How the results lie that the epilogue sees.

    Raises:
        RefusedKernel: From the function, where the driver does not build the epilogue.
    """
    refuse = _refusal(name, origin, epilogue)

    return _C.fused_convolution(  # type: ignore[no-any-return]
        epilogue, lanes, tensors, numbers, stride, padding, dilation, groups, channels_last, refuse
    )


def tune_products() -> None:
    """mode="max-autotune": the tuner chooses the kernels of matrix products, from now on."""
    _C.change_tunable_settings(enabled=True)


def _threads() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        # One of them builds; the others wait for build workers.
        count = max(1, min(32, len(os.sched_getaffinity(0))))
        _pool = ThreadPoolExecutor(count, thread_name_prefix="ocl-build")
        os.register_at_fork(after_in_child=_forget_threads)
    return _pool


def _forget_threads() -> None:
    global _pool
    _pool = None


def prelude_lines(parts: Sequence[str]) -> list[str]:
    """The lines that include the headers that kernels need."""
    lines = ["#pragma OPENCL FP_CONTRACT OFF"]
    # A GPU moves 16 bytes in one piece where they are aligned, which a view need not be.
    lines += ["#ifdef OCL_DEVICE_GPU", "#define CHECKED_VECTORS", "#endif"]
    if "float8" in parts:
        lines.append("#define NEED_FLOAT8")
    special = [part[-3:] for part in parts if part.startswith("special_")]
    if special:
        lines.append(f"#define C {special[0]}")
    files = ["include/dtype.clh", "include/item_by_item.clh", "inductor/base.clh"]
    for part in sorted(parts):
        files += _PARTS.get(part, [])
    if special:
        files.append("inductor/special.clh")
    return lines + [f'#include "{file}"' for file in files]


def prelude(parts: Sequence[str]) -> str:
    """These headers, expanded."""
    return str(_C.expand_kernel_source("inductor", "\n".join(prelude_lines(parts)) + "\n"))


@dataclass
class Kernel:
    """A generated kernel: its text and how it is called; see csrc/python/generated_kernel.cpp."""

    name: str
    source: str
    parts: tuple[str, ...]
    tensors: int
    kinds: str
    sites: tuple[tuple[str, bool], ...]
    form: str
    width: int
    group: int
    lines: int
    sizes: tuple[tuple[bool, int], ...]
    work: int
    origin: str = ""

    @property
    def family(self) -> str:
        """Kernels of different ones can't be in one program."""
        special = [part for part in self.parts if part.startswith("special_")]
        assert len(special) < 2, "special functions of float and of double in one kernel"
        return special[0] if special else ""


class Program:
    """The kernels of a graph, for one device."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.kernels: list[Kernel] = []

    def add(self, **attributes: Any) -> None:
        """Takes a kernel."""
        self.kernels.append(Kernel(**attributes))

    def groups(self) -> list[list[Kernel]]:
        """Kernels by program."""
        families: dict[str, list[Kernel]] = {}
        for kernel in self.kernels:
            families.setdefault(kernel.family, []).append(kernel)
        size = _KERNELS_PER_PROGRAM
        return [
            members[i : i + size]
            for members in families.values()
            for i in range(0, len(members), size)
        ]

    def finish(self, names: dict[str, Any]) -> None:
        """Puts the kernels into a module's names, and has threads build them."""
        for members in self.groups():
            text = source_of(members)
            label = members[0].name
            building = _threads().submit(build, self.device, text, label)
            for kernel in members:
                names[kernel.name] = _first_call(self.device, kernel, text, label, building, names)


def _first_call(
    device: int,
    kernel: Kernel,
    text: str,
    label: str,
    building: Future[None],
    names: dict[str, Any],
) -> Callable[..., None]:
    """A function that stands for a kernel until it is called. It waits for its program, and puts
    the kernel in its place."""

    def call(*args: Any) -> None:
        try:
            building.result()
        except RuntimeError as error:
            message = refused.explain(kernel.name, kernel.origin, text, error)
            raise refused.RefusedKernel(message, ()) from None
        names[kernel.name] = made = _C.generated_kernel(
            device,
            text,
            kernel.name,
            _FILE + label,
            kernel.tensors,
            kernel.kinds,
            [_C.assert_site(*site) for site in kernel.sites],
            kernel.form,
            kernel.width,
            kernel.group,
            kernel.lines,
            kernel.sizes,
            kernel.work,
        )
        made(*args)

    return call


def build(device: int, text: str, label: str) -> None:
    """Builds a program, or loads it; RuntimeError with the driver's log if it does not build."""
    _C.build_generated(device, text, _FILE + label)


def start_building(device: int, members: Sequence[Kernel], expanded: bool) -> None:
    """Has a thread build a program that C++ will ask for, by source_of()'s text. An error waits
    until then."""
    text = str(_C.expand_kernel_source("inductor", source_of(members, expanded)))
    _threads().submit(build, device, text, members[0].name)


def source_of(kernels: Sequence[Kernel], expanded: bool = True) -> str:
    """The text of a program, with headers, or with the lines that include them."""
    parts = sorted({part for kernel in kernels for part in kernel.parts})
    headers = [prelude(parts)] if expanded else prelude_lines(parts)
    text = "\n".join([*(kernel.source for kernel in kernels), ""])
    return "\n".join([*headers, *helpers_of(text), text])
