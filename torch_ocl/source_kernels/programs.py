"""A user's source as programs of devices: its text, its build errors, and a kernel's limits."""

import math
import operator
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from torch_ocl import _C
from torch_ocl.source_kernels import preprocessing, signature

LABEL = "<kernel>"
# Errors of drivers for sources, and for options, that they do not take.
_BUILD_ERRORS = ("CL_BUILD_PROGRAM_FAILURE", "CL_INVALID_BUILD_OPTIONS")

Sizes = int | Sequence[int]


def checked_sizes(value: Sizes, what: str, least: int) -> list[int]:
    """A launch's sizes as 1 to 3 integers that are at least `least`."""
    try:
        sizes: list[Any] = list(value)  # type: ignore[arg-type]
    except TypeError:
        sizes = [value]
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"{what} has 1 to 3 sizes, got {value!r}")
    try:
        sizes = [operator.index(size) for size in sizes]
    except TypeError:
        raise TypeError(f"{what} must be integers, got {value!r}") from None
    if min(sizes) < least:
        raise ValueError(f"{what} must be at least {least}, got {value!r}")
    # More work-items than a device has addresses: drivers take that, and never end.
    if math.prod(sizes) > 2**48:
        raise ValueError(f"{what} is too large, more than 2**48: {value!r}")
    return sizes


class Program:
    """A source with its options, for any device.

    It is the text of the file `path`, or may stand in a file of `frame` or its callers as a string.
    """

    def __init__(
        self, source: str, options: Sequence[str], path: Path | None, frame: FrameType
    ) -> None:
        self.source = source
        self.path = path
        # Where another process finds it, whatever its folder is.
        self.place = path.absolute() if path else None
        self.option_list = list(options)
        self._defines, driver_options = preprocessing.split_options(options)
        self.options = " ".join(driver_options)
        self.text = preprocessing.uncached(self._numbered((LABEL, 1)))
        self._files = preprocessing.files_of_callers(frame)
        self._compiled_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def _numbered(self, place: tuple[str, int]) -> str:
        """The text for the driver, its lines numbered from a file and line on."""
        folders = preprocessing.include_folders(self.option_list)
        if self.path is not None:
            folders = [self.path.resolve().parent, *folders]
        return self._defines + preprocessing.expand(self.source, folders, *place)

    def names(self, device: int, wanted: str | None) -> list[str]:
        """The kernels it has. A build error names the user's file and lines."""
        # NVIDIA's driver 580 crashes over a program that has none.
        if not signature.may_have_kernels(self.text, self.options):
            return []
        try:
            return _C.kernel_names(device, self.text, self.options, LABEL)
        except RuntimeError as error:
            if not any(code in str(error) for code in _BUILD_ERRORS):
                raise
        title = "<kernel>" if wanted is None else f"<kernel {wanted}>"
        place = (str(self.path), 1) if self.path else None
        place = place or preprocessing.find_source(self.source, self._files)
        if place is None:
            place = preprocessing.find_source(self.source, preprocessing.files_with(self.source))
        text = self._numbered(place or (title, 1))
        if place is None:  # a source that was put together: the call tells whose it is
            title += f", compiled at {self._compiled_at}"
        try:
            return _C.kernel_names(device, text, self.options, title)
        except RuntimeError as error:
            what = "the source" if wanted is None else f"kernel {wanted!r}"
            raise RuntimeError(f"{what} does not build: {error}") from None


class OnDevice:
    """A kernel on one device, with the limits of its launches."""

    def __init__(self, program: Program, text: str, name: str, device: int) -> None:
        self.kernel = _C.SourceKernel(device, text, name, program.options, LABEL)
        limits = _C.launch_limits(device)
        self.item_sizes = limits["work_item_sizes"]
        self.device_local_memory = limits["local_memory"]
        self.alignment = limits["alignment"]
        self.group_size = self.kernel.max_work_group_size
        self.own_local_memory = self.kernel.local_memory
        required = list(self.kernel.required_local_size)
        self.required = required if any(required) else None

    def local_size(self, global_size: list[int], local: Sizes | None, extra: int) -> list[int]:
        """The work-group's size, checked; empty where the driver may choose it."""
        if local is None:
            sizes = self.required[: len(global_size)] if self.required else []
        else:
            sizes = checked_sizes(local, "local_size", 1)
        if self.required and any(size > 1 for size in self.required[len(global_size) :]):
            raise ValueError(
                f"reqd_work_group_size asks for {self.required}, and global_size has "
                f"{len(global_size)} of these dimensions: {global_size}"
            )
        if sizes:
            self._check(global_size, sizes)
        if self.own_local_memory + extra > self.device_local_memory:
            raise ValueError(
                f"it needs {self.own_local_memory + extra} bytes of local memory, the device has "
                f"{self.device_local_memory}"
            )
        return sizes

    def _check(self, global_size: list[int], sizes: list[int]) -> None:
        if len(sizes) != len(global_size):
            raise ValueError(f"global_size {global_size} and local_size {sizes} differ in length")
        if self.required and sizes != self.required[: len(sizes)]:
            raise ValueError(f"reqd_work_group_size asks for {self.required}, got {sizes}")
        if any(s > m for s, m in zip(sizes, self.item_sizes, strict=False)):
            raise ValueError(f"local_size {sizes} exceeds the device's limits {self.item_sizes}")
        if math.prod(sizes) > self.group_size:
            raise ValueError(
                f"local_size {sizes} is {math.prod(sizes)} work-items, more than the "
                f"{self.group_size} that this kernel can have in a work-group"
            )
        if any(g % s for g, s in zip(global_size, sizes, strict=True)):
            raise ValueError(
                f"global_size {global_size} is not a multiple of local_size {sizes}: round it up, "
                "and let the kernel leave out what is past the end"
            )
