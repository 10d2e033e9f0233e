"""Devices that nobody here has, as their drivers describe them: profiles/<name>.yaml, a file each.

A profile's `driver` names the file of profiles/drivers that has what all devices of a driver share.
"""

import dataclasses
import pathlib
import struct

import yaml

FOLDER = pathlib.Path(__file__).with_name("profiles")

# Questions of clGetPlatformInfo and clGetDeviceInfo by the field that answers. An answer's form is
# text, words ("a b"), versions ("name:3.0.0 ..."), or the format of one number or several.
QUESTIONS = {
    "platform": (0x0902, "text"),
    "type": (0x1000, "Q"),
    "compute_units": (0x1002, "I"),
    "dimensions": (0x1003, "I"),
    "work_group_size": (0x1004, "Q"),
    "work_item_sizes": (0x1005, "Q"),
    "clock": (0x100C, "I"),
    "allocation": (0x1010, "Q"),
    "parameter_size": (0x1017, "Q"),
    "alignment_bits": (0x1019, "I"),
    "single": (0x101B, "Q"),
    "cache_line": (0x101D, "I"),
    "cache": (0x101E, "Q"),
    "memory": (0x101F, "Q"),
    "local_memory": (0x1023, "Q"),
    "little_endian": (0x1026, "I"),
    "available": (0x1027, "I"),
    "compiler_available": (0x1028, "I"),
    "name": (0x102B, "text"),
    "vendor": (0x102C, "text"),
    "driver_version": (0x102D, "text"),
    "version": (0x102F, "text"),
    "extensions": (0x1030, "words"),
    "double": (0x1032, "Q"),
    "unified_memory": (0x1035, "I"),
    "width_float": (0x103A, "I"),
    "width_double": (0x103B, "I"),
    "width_half": (0x103C, "I"),
    "c_version": (0x103D, "text"),
    "linker_available": (0x103E, "I"),
    "svm": (0x1053, "Q"),
    "c_versions": (0x1066, "versions"),
    "work_group_multiple": (0x1067, "Q"),
    "c_features": (0x106F, "versions"),
    "wavefront": (0x4043, "I"),
    "sub_group_sizes": (0x4108, "Q"),
    "intel_architecture": (0x4250, "I"),
}
#: Every device says this unless its file says otherwise.
USUAL = {
    "type": 4,  # a GPU
    "dimensions": 3,
    "parameter_size": 1024,
    "alignment_bits": 1024,
    "single": 0x3F,
    "cache_line": 64,
    "little_endian": 1,
    "available": 1,
    "compiler_available": 1,
    "linker_available": 1,
    "double": 0,
    "unified_memory": 0,
    "width_float": 1,
    "svm": 1,
    "work_group_multiple": 32,
}
#: Fields that describe the device to us alone.
OURS = {"title", "driver", "sources", "compiler", "target"}


def encoded(form, value):
    """The bytes of an answer."""
    if form == "text":
        return str(value).encode() + b"\0"
    if form == "words":
        return " ".join(value).encode() + b"\0"
    if form == "versions":
        return b"".join(name_version(*text.rsplit(":", 1)) for text in value)
    values = value if isinstance(value, list) else [value]
    return struct.pack(f"<{len(values)}{form}", *values)


def name_version(name, version):
    """A cl_name_version."""
    major, minor, patch = map(int, version.split("."))
    return struct.pack("<I64s", major << 22 | minor << 12 | patch, name.encode())


@dataclasses.dataclass(frozen=True)
class Profile:
    """A device: its name here, what it answers, and how its programs are compiled."""

    name: str
    fields: dict

    @property
    def title(self):
        return self.fields["title"]

    @property
    def compiler(self):
        """amd, intel, intel-legacy, or front-end where the vendor's own can't be had."""
        return self.fields["compiler"]

    @property
    def target(self):
        """The device in that compiler's words."""
        return self.fields.get("target", self.name)

    @property
    def extensions(self):
        return self.fields["extensions"]

    @property
    def features(self):
        return [feature.split(":")[0] for feature in self.fields.get("c_features", [])]

    def answers(self):
        """The file that driver.c reads."""
        lines = []
        for field, (question, form) in QUESTIONS.items():
            if field in self.fields:
                lines.append(f"{question:x} {encoded(form, self.fields[field]).hex()}\n")
        return "".join(lines)


def load(name):
    """The profile of that name."""
    own = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    shared = yaml.safe_load((FOLDER / "drivers" / f"{own['driver']}.yaml").read_text())
    fields = {**USUAL, **shared, **own}
    fields.setdefault("work_item_sizes", [fields["work_group_size"]] * 3)
    fields.setdefault("width_half", int("cl_khr_fp16" in fields["extensions"]))
    fields.setdefault("width_double", int(fields["double"] != 0))
    if unknown := fields.keys() - QUESTIONS.keys() - OURS:
        raise ValueError(f"profiles/{name}.yaml: no field is called {', '.join(sorted(unknown))}")
    return Profile(name, fields)


def names():
    """All profiles."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))
