"""The op table: codegen/ops/*.yaml parsed into entries and checked for form.

Needs neither torch nor torchgen, so tests and docs read the table with it. What the entries mean
to ATen is decided in aten.py. The format: ops/README.md.
"""

from __future__ import annotations

import pathlib
import re
from dataclasses import dataclass

import yaml

from codegen.errors import Problems

TABLE_DIR = pathlib.Path(__file__).parent / "ops"
KINDS = ("impl", "kernel", "native", "pointwise")

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")
_OP_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?\Z")
_VERSION = re.compile(r"\d+\.\d+\Z")
_MODIFIERS = {
    "impl": {"across_devices", "each", "fused"},
    "kernel": {"composite", "stub"},
    "native": set(),
    "pointwise": {"composite", "flags", "scalars", "stub"},
}
_ALWAYS = {"since", "until"}


@dataclass(frozen=True)
class Entry:
    """One line of the table."""

    name: str
    kind: str
    section: str
    where: str  # file:line
    stubs: tuple[tuple[str, str], ...] = ()  # (stub, functor or C++ kernel)
    native: str | None = None  # the at::native function, None: the one CPU registers
    flags: tuple[str, ...] = ()
    scalars: int | None = None
    each: str | None = None  # the functor that runs over lists of tensors
    fused: str | None = None  # the function of a fused optimiser
    across_devices: bool = False  # arguments may be on several devices
    composite: bool = False  # upstream's composite runs; only the stubs are bound
    since: tuple[int, int] | None = None
    until: tuple[int, int] | None = None

    def applies_to(self, torch_version: tuple[int, int]) -> bool:
        """Whether the entry holds for that (major, minor); both bounds are inclusive."""
        return (self.since or torch_version) <= torch_version <= (self.until or torch_version)


def load_table(
    directory: pathlib.Path | str = TABLE_DIR, torch_version: tuple[int, int] | None = None
) -> list[Entry]:
    """All entries of directory/*.yaml, sorted by name; only those of `torch_version` if given.

    Throws TableError for a malformed file, an unknown or missing key, entries out of order or two
    entries of one name that apply to one torch.
    """
    problems = Problems()
    entries: list[Entry] = []
    paths = sorted(pathlib.Path(directory).glob("*.yaml"))
    if not paths:
        problems.add(str(directory), "no *.yaml here")
    for path in paths:
        entries += _load_file(path, problems)
    if torch_version is not None:
        entries = [entry for entry in entries if entry.applies_to(torch_version)]
    _check_duplicates(entries, problems)
    problems.raise_if_any()
    return sorted(entries, key=lambda entry: (entry.name, entry.since or (0, 0)))


def _check_duplicates(entries: list[Entry], problems: Problems) -> None:
    seen: dict[str, list[Entry]] = {}
    for entry in entries:
        for other in seen.setdefault(entry.name, []):
            low = max(entry.since or (0, 0), other.since or (0, 0))
            high = min(entry.until or (99, 99), other.until or (99, 99))
            if low <= high:
                problems.add(entry.where, f"{entry.name} is already at {other.where}")
        seen[entry.name].append(entry)


def _load_file(path: pathlib.Path, problems: Problems) -> list[Entry]:
    try:
        root = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        problems.add(path.name, f"not YAML: {error}")
        return []
    if root is None:
        return []
    entries = []
    for section, body in _items(root, path.name, problems):
        previous = ""
        for key, value in _items(body, path.name, problems):
            where = f"{path.name}:{key.start_mark.line + 1}"
            name = key.value
            if name < previous:
                problems.add(where, f"{name} must stand before {previous} (alphabetical)")
            previous = name
            entry = _parse_entry(name, section.value, where, value, problems)
            if entry is not None:
                entries.append(entry)
    return entries


def _items(node: yaml.Node, file: str, problems: Problems) -> list[tuple[yaml.Node, yaml.Node]]:
    """A mapping's pairs, in the file's order; yaml.safe_load would keep the last of two equal keys
    and turn version 2.10 into 2.1, so the nodes are read instead."""
    if not isinstance(node, yaml.MappingNode):
        problems.add(f"{file}:{node.start_mark.line + 1}", "expected a mapping")
        return []
    return node.value


def _parse_entry(
    name: str, section: str, where: str, node: yaml.Node, problems: Problems
) -> Entry | None:
    fields: dict[str, yaml.Node] = {}
    for key, value in _items(node, where.split(":")[0], problems):
        if key.value in fields:
            problems.add(where, f"{name}: {key.value} is given twice")
        fields[key.value] = value
    if not _OP_NAME.match(name):
        problems.add(where, f"{name} is not an ATen function name")

    if "stubs" in fields and "kernel" not in fields:  # stubs: {a: f, b: g} is a kernel entry
        fields["kernel"] = fields.pop("stubs")
    kinds = [kind for kind in KINDS if kind in fields]
    if len(kinds) != 1:
        problems.add(where, f"{name}: needs exactly one of {', '.join(KINDS)}")
        return None
    kind = kinds[0]
    for key in sorted(set(fields) - {kind} - _MODIFIERS[kind] - _ALWAYS):
        problems.add(where, f"{name}: {kind} takes no {key}")

    def complain(text: str) -> None:
        problems.add(where, f"{name}: {text}")

    reader = _FieldReader(fields, complain)
    if kind == "impl" and not reader.is_ours():
        return None
    return Entry(
        name=name,
        kind=kind,
        section=section,
        where=where,
        stubs=reader.stubs(kind) if kind in ("kernel", "pointwise") else (),
        native=reader.native() if kind == "native" else None,
        flags=reader.identifiers("flags"),
        scalars=reader.integer("scalars"),
        each=reader.name("each"),
        fused=reader.name("fused"),
        across_devices=reader.flag("across_devices"),
        composite=reader.flag("composite"),
        since=reader.version("since"),
        until=reader.version("until"),
    )


class _FieldReader:
    """Typed access to one entry's fields."""

    def __init__(self, fields, complain):
        self._fields = fields
        self._complain = complain

    def _scalar(self, key: str, pattern: re.Pattern, what: str) -> str | None:
        node = self._fields.get(key)
        if node is None:
            return None
        if not isinstance(node, yaml.ScalarNode) or not pattern.match(node.value):
            self._complain(f"{key} must be {what}")
            return None
        return node.value

    def is_ours(self) -> bool:
        return self._scalar("impl", re.compile(r"ours\Z"), "'ours'") is not None

    def native(self) -> str | None:
        value = self._scalar("native", _IDENTIFIER, "true or the name of an at::native function")
        return None if value == "true" else value

    def name(self, key: str) -> str | None:
        return self._scalar(key, _IDENTIFIER, "a name")

    def flag(self, key: str) -> bool:
        return self._scalar(key, re.compile(r"(true|false)\Z"), "true or false") == "true"

    def integer(self, key: str) -> int | None:
        value = self._scalar(key, re.compile(r"\d+\Z"), "a number")
        return None if value is None else int(value)

    def version(self, key: str) -> tuple[int, int] | None:
        value = self._scalar(key, _VERSION, "a torch version like 2.12")
        if value is None:
            return None
        major, minor = value.split(".")
        return int(major), int(minor)

    def identifiers(self, key: str) -> tuple[str, ...]:
        node = self._fields.get(key)
        if node is None:
            return ()
        values = [item.value for item in node.value] if isinstance(node, yaml.SequenceNode) else []
        if not values or not all(isinstance(v, str) and _IDENTIFIER.match(v) for v in values):
            self._complain(f"{key} must be a list of names")
            return ()
        return tuple(values)

    def stubs(self, kind: str) -> tuple[tuple[str, str], ...]:
        """(stub, target) pairs from `kind: f, stub: s` or `kind: {s: f, t: g}`."""
        node = self._fields[kind]
        if isinstance(node, yaml.MappingNode):
            if "stub" in self._fields:
                self._complain(f"stub is for one {kind}; name it in {kind}'s mapping")
            pairs = [(key.value, value.value) for key, value in node.value]
        else:
            if "stub" not in self._fields:
                self._complain(f"{kind} needs a stub")
                return ()
            pairs = [(self._fields["stub"].value, node.value)]
        bad = [p for p in pairs if not all(isinstance(v, str) and _IDENTIFIER.match(v) for v in p)]
        if bad or not pairs:
            self._complain(f"{kind} and stub must be names")
            return ()
        if len({stub for stub, _ in pairs}) != len(pairs):
            self._complain(f"a stub is named twice in {kind}")
        return tuple(pairs)
