"""Tuning: finds the fastest kernels for a program's matrix products, as torch.cuda.tunable does.

``torch.ocl.tunable.enable()`` turns it on. The first product of a class of shapes is tried with
other kernels and other tile sizes, on data and
results of the tuner's own, and the fastest is used from then on. That takes up to
get_max_tuning_duration() for each class, once: results are kept in a file, by default in the cache
folder, and later processes read it. A class is: the dtypes, how the matrices lie, what is fused
with the product, and the sizes, rounded up in steps of 12 to 25%. Results of products differ by
rounding at most: their sums are added up in another order.

Unlike upstream, a duration is that of the whole search, and a file holds one device's results:
functions that concern results are about the current device. What is found is written at once.
"""

import operator
import os

from torch_ocl import _C

__all__ = [
    "enable",
    "get_constants",
    "get_filename",
    "get_max_tuning_duration",
    "get_max_tuning_iterations",
    "get_results",
    "get_validators",
    "is_enabled",
    "read_file",
    "set_constant",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "tuning_enable",
    "tuning_is_enabled",
    "write_file",
]


_MOST = 2**31 - 1


def _positive(value: int, what: str) -> int:
    value = operator.index(value)
    if not 0 < value <= _MOST:
        raise ValueError(f"{what} must be from 1 to {_MOST}, got {value}")
    return value


def _flag(value: bool) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected True or False, got {value!r}")
    return value


def _path(filename: str | os.PathLike[str]) -> str:
    path = os.fspath(filename)
    if not isinstance(path, str):
        raise TypeError(f"expected a file's name as a str or a path, got {filename!r}")
    if "\0" in path:
        raise ValueError(f"a file's name can't hold a null character: {path!r}")
    return path


def enable(val: bool = True) -> None:
    """Uses what the tuner found, and has it search for what it has not (see tuning_enable)."""
    _C.change_tunable_settings(enabled=_flag(val))


def is_enabled() -> bool:
    """Whether the tuner's results are used; at first whether TORCH_OCL_TUNABLE is 1."""
    return _C.tunable_settings().enabled


def tuning_enable(val: bool = True) -> None:
    """Whether shapes without a result are searched for, while the tuner is enabled. If not, they
    run as by default."""
    _C.change_tunable_settings(tuning=_flag(val))


def tuning_is_enabled() -> bool:
    """Whether shapes without a result are searched for; at first True, unless
    TORCH_OCL_TUNABLE_TUNING is 0."""
    return _C.tunable_settings().tuning


def set_max_tuning_duration(duration: int) -> None:
    """The milliseconds that one search may take, compiling kernels included. Nothing is begun after
    that, but what was begun ends. ValueError for less than 1."""
    _C.change_tunable_settings(duration_ms=_positive(duration, "a duration"))


def get_max_tuning_duration() -> int:
    """The milliseconds that one search may take."""
    return _C.tunable_settings().duration_ms


def set_max_tuning_iterations(iterations: int) -> None:
    """How often a kernel is timed at the most, by turns with the others. ValueError for less than
    1."""
    _C.change_tunable_settings(iterations=_positive(iterations, "a number of iterations"))


def get_max_tuning_iterations() -> int:
    """How often a kernel is timed at the most."""
    return _C.tunable_settings().iterations


def set_filename(filename: str | os.PathLike[str], insert_device_ordinal: bool = False) -> None:
    """Keeps results in that file, which is read if it is there. insert_device_ordinal puts the
    device's index in front of the extension: with several devices each needs a file of its own. An
    empty name means the file in the cache folder."""
    _C.change_tunable_settings(filename=_path(filename), insert_index=_flag(insert_device_ordinal))


def get_filename() -> str:
    """Where the current device's results are kept. Empty with TORCH_OCL_CACHE=0, unless a name was
    set."""
    return _C.tunable_filename(_C.current_device())


def get_constants() -> dict[str, float]:
    """The numbers that kernels of the current device are chosen and sized by, such as
    ``row_group``, the work-items of a group. `csrc/engine/device_constants.h` says what each means.

    They are those of the device's class (``python -m torch_ocl`` says which, and whether they were
    measured or derived), but for those that :func:`set_constant` or the file of results has."""
    return dict(_C.tunable_constants(_C.current_device()))


def set_constant(name: str, value: float) -> None:
    """Stores a constant of the current device (see :func:`get_constants`) with its results. It
    counts while tuning is enabled, also in later processes, and its name and value are a line of
    the file: ``device,<name>,<value>,0``.

    For devices nobody has measured: try a number, time what you need, keep the best. Kernels that
    are sized by it are compiled anew.

    Raises:
        ValueError: the name is unknown, or kernels can't be built for the value. Whole numbers
            stay whole and powers of two stay powers of two; a work-group is one of the device's.
    """
    if not isinstance(name, str):
        raise TypeError(f"expected a constant's name, got {name!r}")
    _C.set_tunable_constant(_C.current_device(), name, float(value))


def get_results() -> tuple[tuple[str, str, str, float], ...]:
    """The current device's results: what is computed on which dtypes, the class of shapes, the
    choice, and the milliseconds that it took."""
    return tuple(_C.tunable_results(_C.current_device()))


def get_validators() -> tuple[tuple[str, str], ...]:
    """A file is used on the current device if it was written for these: names and values."""
    return tuple(_C.tunable_validators(_C.current_device()))


def read_file(filename: str | os.PathLike[str] | None = None) -> bool:
    """Adds the results of that file, or of get_filename(), to the current device's.

    False if there is none, or if it is damaged or was written for another device, driver or
    version; then nothing is added, and the first such file of the process is warned about."""
    return _C.read_tunable_file(_C.current_device(), _path(filename or get_filename()))


def write_file(filename: str | os.PathLike[str] | None = None) -> bool:
    """Writes the current device's results to that file, or to get_filename(), together with results
    that other processes wrote there. False if that failed, of which the first time warns."""
    return _C.write_tunable_file(_C.current_device(), _path(filename or get_filename()))
