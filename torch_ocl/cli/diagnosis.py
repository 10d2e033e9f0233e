"""problems() finds what is wrong with an installation, and the command that mends each thing."""

import os
import tempfile
from typing import Any

from torch_ocl import _environment
from torch_ocl.cli import machine

#: Parts of the reasons that the native library gives for having no device.
_NO_LOADER = "no ICD loader (libOpenCL.so.1) could be opened"
_NO_DRIVER = "No OpenCL driver is installed."
_NONE_USABLE = "The installed OpenCL drivers offer no usable device."
_NONE_SELECTED = "No OpenCL device is selected"
_NO_COMPILER = "it has no compiler for OpenCL C"


def problems(report: dict[str, Any], reason: str) -> list[str]:
    """Sentences, each of one line that ends with a command or with advice.

    Args:
        report: Of info.collect().
        reason: Why there is no device; empty if there is one.
    """
    found = _no_device(reason) if reason else []
    found += _useless_devices(report)
    found += _closed_nodes()
    found += _gpus_without_a_device(report)
    found += _two_drivers(report)
    found += _cache(report["cache"])
    for name in _environment.unknown_names():
        found.append(f"The variable {name} is unknown: {_environment.advice(name)}")
    return [" ".join(line.split()) for line in found + _environment.wrong_values()]


def _line(what: str, command: str) -> str:
    return f"{what} Mend it: {command}"


def _no_device(reason: str) -> list[str]:
    if _NO_LOADER in reason:
        return [_line(reason.partition(". Install")[0] + ".", machine.loader_command())]
    if reason.startswith(_NO_DRIVER):
        return [_line(_NO_DRIVER, machine.driver_command())]
    if reason.startswith(_NONE_USABLE):
        return [_line(reason.partition(" Install your")[0], machine.driver_command())]
    if reason.startswith(_NONE_SELECTED):
        return [_line(reason, "unset TORCH_OCL_DEVICES")]
    return [reason]


def _useless_devices(report: dict[str, Any]) -> list[str]:
    found = []
    for left_out in report["left_out"]:
        if _NO_COMPILER in left_out:
            what = f"A driver came without its compiler: {left_out}."
            found.append(_line(what, f"{_reinstall(left_out)}, with all that it recommends"))
    for device in report["devices"]:
        if not device["works"]:
            found.append(
                f"ocl:{device['index']} ({device['name']}) computes nothing: {device['error']} "
                f"Update its driver ({_reinstall(device['platform_name'])}), or leave the device "
                "out by TORCH_OCL_DEVICES."
            )
    return found


def _reinstall(driver: str) -> str:
    """The command that installs a driver again, by what it calls itself."""
    packages = {"apt": "pocl-opencl-icd", "dnf": "pocl", "pacman": "pocl"}
    words = {"Mesa": "AMD", "rusticl": "AMD", **{v.name: v.name for v in machine.VENDORS.values()}}
    if "Portable" not in driver:
        name = next((name for word, name in words.items() if word in driver), "")
        packages = next((v.packages for v in machine.VENDORS.values() if v.name == name), packages)
    command = machine.install_command(packages)
    return command.replace("install ", "install --reinstall ") if " apt " in command else command


def _closed_nodes() -> list[str]:
    nodes = machine.closed_nodes()
    if not nodes:
        return []
    groups = machine.groups_of(nodes)
    command = f"sudo usermod -aG {','.join(groups)} $USER, then log in again"
    if machine.is_container():
        command = "docker run " + " ".join(f"--group-add {os.stat(n).st_gid}" for n in nodes)
    what = f"You may not open {', '.join(nodes)}, so GPUs behind it are not found."
    return [_line(what, command)]


def _gpus_without_a_device(report: dict[str, Any]) -> list[str]:
    """GPUs of this machine that no driver lists, though the user has chosen none."""
    if os.environ.get("TORCH_OCL_DEVICES"):
        return []
    listed = [str(device) for device in report["devices"] if device["type"] == "gpu"]
    found = []
    for vendor in machine.gpu_vendors():
        nodes = machine.nodes_of(vendor)
        if any(vendor.name in text for text in listed) or set(nodes) & set(machine.closed_nodes()):
            continue
        where = f"This machine has a GPU of {vendor.name}"
        if not nodes and machine.is_container():
            what = f"{where}, which was not given to this container."
            found.append(_line(what, f"docker run {vendor.given}"))
        elif not nodes:
            what = f"{where}, whose kernel module is not loaded ({', '.join(vendor.nodes)})."
            found.append(_line(what, f"sudo modprobe {vendor.module}"))
        else:
            what = f"{where}, which no OpenCL driver lists."
            found.append(_line(what, machine.install_command(vendor.packages) + vendor.more))
    return found


def _two_drivers(report: dict[str, Any]) -> list[str]:
    """Devices that two drivers list: each would be taken for one of its own."""
    if os.environ.get("TORCH_OCL_DEVICES"):
        return []
    devices, twice = report["devices"], {}
    for later in devices:
        for earlier in devices[: later["index"]]:
            if earlier["index"] not in twice and _is_the_same(earlier, later):
                twice[later["index"]] = earlier
                break
    kept = ",".join(str(d["index"]) for d in devices if d["index"] not in twice)
    return [
        _line(
            f"ocl:{earlier['index']} and ocl:{index} are one device, by two drivers "
            f"({earlier['platform_name']}, {devices[index]['platform_name']}).",
            f"export TORCH_OCL_DEVICES={kept}",
        )
        for index, earlier in twice.items()
    ]


def _is_the_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one["platform_name"] == other["platform_name"] or one["type"] != other["type"]:
        return False
    # A driver for CPUs lists them all as one.
    return one["type"] == "cpu" or any(
        one[key] and one[key] == other[key] for key in ("pci", "uuid")
    )


def _cache(cache: dict[str, Any] | None) -> list[str]:
    if cache is None or os.environ.get("TORCH_OCL_CACHE") == "0":
        return []
    what = "Compiled kernels are not kept, so every process compiles them again"
    # It is kept when the machine starts anew, and nobody can take away what others put there.
    other = "export TORCH_OCL_CACHE_DIR=/var/tmp/torch_ocl-$(id -u)"
    if folder := cache["folder"]:
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(4096))
        except OSError as error:
            why = f"{folder} can't be written ({error.strerror})"
            return [_line(f"{what}: {why}.", other)]
        return []
    folder = os.path.expanduser(os.environ.get("TORCH_OCL_CACHE_DIR") or "~/.cache/torch_ocl")
    if os.path.isdir(folder) and os.stat(folder).st_mode & 0o022:
        return [_line(f"{what}: others may write to {folder}.", f"chmod go-w {folder}")]
    return [_line(f"{what}: a folder that only you can write to is needed.", other)]
