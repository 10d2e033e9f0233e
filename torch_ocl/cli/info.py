"""The report of `python -m torch_ocl`: collect() finds it out, text() lays it out."""

import importlib
import os
import platform
import sys
import textwrap
from typing import Any

import torch

from torch_ocl import _environment
from torch_ocl.cli import cache, diagnosis


def collect() -> dict[str, Any]:
    """Everything about this installation and machine. Starts OpenCL; raises nothing.

    "stands_back" says why `import torch` alone doesn't add the device; it is empty if it does.
    "devices" are the usable ones, each tried with a small kernel. "left_out" are the others, with
    the reason. "problems" are sentences that say what is wrong, each with what mends it.
    """
    report: dict[str, Any] = {
        "torch_ocl": importlib.import_module("torch_ocl").__version__,
        "torch": torch.__version__,
        "built_for_torch": _built_for(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "environment": _variables(),
        "stands_back": importlib.import_module("torch_ocl_autoload").reason_to_stand_back(),
        "loader": "",
        "devices": [],
        "left_out": [],
        "cache": None,
        "problems": [],
    }
    reason = torch.ocl.unavailable_reason()
    native = _native()
    if native is not None:
        report["cache"] = cache.contents()
        report["left_out"] = native.left_out_devices()
        if not reason:
            report["loader"] = native.loader_path()
            report["devices"] = [_device(i) for i in range(torch.ocl.device_count())]
    report["problems"] = diagnosis.problems(report, reason)
    return report


def _native() -> Any:
    """The native module, or None if registration has not loaded it: it is not to be loaded here,
    where another package may have taken torch's slot for backends."""
    return sys.modules.get("torch_ocl._C")


def _built_for() -> str:
    try:
        return importlib.import_module("torch_ocl._built_for").TORCH_VERSION
    except ImportError:
        return ""


def _variables() -> dict[str, str]:
    known = (*_environment.names(), *_environment.OTHERS_VARIABLES, "OCL_ICD_VENDORS")
    named = (name for name in os.environ if name.startswith("TORCH_OCL_") or name in known)
    return {name: os.environ[name] for name in sorted(named)}


def _device(index: int) -> dict[str, Any]:
    properties = torch.ocl.get_device_properties(index)
    found = {name: getattr(properties, name) for name in properties.__dataclass_fields__}
    found["uuid"] = str(properties.uuid or "")
    del found["uuid_bytes"]
    found["index"] = index
    row = _native().device_row(index)
    found["tuned_as"] = f"{row['device_class']} ({row['source']})"
    found["error"] = _trial(index)
    found["works"] = not found["error"]
    return found


def _trial(index: int) -> str:
    """Adds numbers on the device. Returns what went wrong."""
    try:
        total = (torch.arange(5.0, device=f"ocl:{index}") + 1).sum().item()
    except Exception as error:  # whatever it is, the report goes on
        return f"{type(error).__name__}: {error}"
    return "" if total == 15.0 else f"1 + 2 + 3 + 4 + 5 gave {total}"


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            break
        size /= 1024
    else:
        unit = "GiB"
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def cache_text(cache: dict[str, Any]) -> str:
    if not cache["folder"]:
        return "not used"
    return (
        f"{cache['folder']}: {cache['programs']} programs, {size_text(cache['bytes'])} "
        f"of at most {size_text(cache['limit'])}"
    )


def _device_lines(device: dict[str, Any]) -> list[str]:
    features = {n.removeprefix("has_"): v for n, v in device.items() if n.startswith("has_")}
    opencl_c = ".".join(map(str, device["opencl_c_version"]))
    clock = f" at {device['max_clock_mhz']} MHz" if device["max_clock_mhz"] else ""
    rows = {
        "platform": f"{device['platform_name']}, {device['version']}",
        "driver": device["driver_version"],
        "kind": f"{device['type']}, OpenCL C {opencl_c}",
        "compute": f"{device['max_compute_units']} units{clock}, "
        f"work-groups of at most {device['max_work_group_size']}",
        "memory": f"{size_text(device['total_memory'])}, "
        f"in one tensor {size_text(device['max_allocation'])}, "
        f"local {size_text(device['local_mem_size'])}",
        "tuned as": device["tuned_as"],
        "has": ", ".join(name for name, there in features.items() if there) or "nothing optional",
        "has not": ", ".join(name for name, there in features.items() if not there),
        "works": "yes" if device["works"] else f"no: {device['error']}",
    }
    lines = [f"ocl:{device['index']}  {device['name']}"]
    return lines + [f"    {name:<9} {value}" for name, value in rows.items() if value]


def text(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    built = report["built_for_torch"]
    lines = [
        f"torch_ocl {report['torch_ocl']}" + (f", built for torch {built}" if built else ""),
        f"torch {report['torch']}, Python {report['python']}, {report['system']}",
    ]
    if report["loader"]:
        lines.append(f"ICD loader: {report['loader']}")
    if report["stands_back"]:
        lines.append(
            f"import torch leaves ocl out: {report['stands_back']}. import torch_ocl adds it."
        )
    if report["cache"] is not None:
        lines.append(f"cache: {cache_text(report['cache'])}")
    lines += [f"{name}={value}" for name, value in report["environment"].items()]
    for device in report["devices"]:
        lines += ["", *_device_lines(device)]
    if report["left_out"]:
        lines += ["", "Left out:", *_items(report["left_out"])]
    if report["problems"]:
        # One line for each, so that what is to be run can be copied.
        lines += ["", "What is wrong:", *(f"  - {line}" for line in report["problems"])]
    else:
        lines += ["", "Nothing is wrong."]
    return "\n".join(lines)


def _items(texts: list[str]) -> list[str]:
    fill = {"initial_indent": "  - ", "subsequent_indent": "    ", "break_long_words": False}
    return [textwrap.fill(text, 100, break_on_hyphens=False, **fill) for text in texts]
