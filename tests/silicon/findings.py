"""Findings about the programs of a device, and which of it known.yaml has a reason for."""

import collections
import dataclasses
import fnmatch
import pathlib

import yaml

KNOWN = pathlib.Path(__file__).with_name("known.yaml")
#: Kinds of findings: a program that does not compile, a warning, and what makes a kernel slow.
KINDS = ("fails", "warns", "spills", "private", "occupancy")
#: Kinds that need a reason. A kernel that runs on few waves is in the table alone.
JUDGED = KINDS[:4]


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something wrong: its device, kind, kernel file, and what: a kernel, a warning or an error."""

    device: str
    kind: str
    file: str
    what: str

    def __str__(self):
        return f"{self.device}: {self.file}: {self.kind}: {self.what}"


class Device:
    """A profile with programs, some of those captured, and what its compiler said of them."""

    def __init__(self, profile, programs, results, captured):
        self.profile, self.captured = profile, captured
        self.outcomes = [(p, results.of(p)) for p in programs if results.of(p) is not None]

    @property
    def simd_sizes(self):
        return self.profile.fields.get("sub_group_sizes", [])

    def launched(self):
        """(program, kernel) of what ran."""
        for program, outcome in self.outcomes:
            for kernel in outcome.kernels:
                if kernel.name in program.launched:
                    yield program, kernel

    def findings(self):
        """Each once, with what it was seen in: a program and, of a slow one, a kernel."""
        found = collections.defaultdict(list)
        name = self.profile.name
        for program, outcome in self.outcomes:
            if outcome.error:
                found[Finding(name, "fails", program.file, outcome.error)].append((program, None))
            for warning in outcome.warnings:
                file, _, text = warning.partition(": ")
                found[Finding(name, "warns", file, text)].append((program, None))
        for program, kernel in self.launched():
            for kind in kernel.problems(self.simd_sizes):
                found[Finding(name, kind, program.file, kernel.name)].append((program, kernel))
        return found

    def count(self, kind):
        """Programs that fail or warn, or launched kernels that have a problem."""
        if kind == "fails":
            return sum(bool(outcome.error) for _, outcome in self.outcomes)
        if kind == "warns":
            return sum(bool(outcome.warnings) for _, outcome in self.outcomes)
        return sum(kind in kernel.problems(self.simd_sizes) for _, kernel in self.launched())

    def summary(self):
        counts = ", ".join(f"{self.count(kind)} {kind}" for kind in KINDS)
        kernels = sum(1 for _ in self.launched())
        return f"{len(self.outcomes)} programs, {kernels} launched kernels: {counts}"

    def worst(self, count):
        """Lines about the launched kernels that spill most or use most private memory."""
        slow = [(k.spilled, k.private, p, k) for p, k in self.launched() if k.spilled or k.private]
        slow.sort(key=lambda one: (-one[0], -one[1]))
        for spilled, private, program, kernel in slow[:count]:
            options = " ".join(program.own_options)
            yield f"{kernel.name}: {spilled} spilled, {private} B private; {program.file} {options}"


def reasons():
    """known.yaml: of each kind a list of {devices, file, what, reason}, with patterns."""
    known = yaml.safe_load(KNOWN.read_text()) or {}
    if unknown := known.keys() - set(JUDGED):
        raise ValueError(f"known.yaml: no kind is called {', '.join(sorted(unknown))}")
    return known


def explains(entry, finding):
    """Whether an entry of known.yaml has a finding among what it is about."""
    return (
        any(fnmatch.fnmatch(finding.device, pattern) for pattern in entry["devices"])
        and fnmatch.fnmatch(finding.file, entry["file"])
        and fnmatch.fnmatch(finding.what, entry.get("what", "*"))
    )


def unexplained(found, whole):
    """Lines on findings that have no reason in known.yaml. Where they are those of `whole` runs of
    all devices, also on entries that nothing needs any more."""
    known = reasons()
    judged = [finding for finding in found if finding.kind in JUDGED]
    wrong = [
        str(finding)
        for finding in judged
        if not any(explains(entry, finding) for entry in known.get(finding.kind, ()))
    ]
    for kind, entries in known.items():
        for entry in entries if whole else ():
            if not any(f.kind == kind and explains(entry, f) for f in judged):
                wrong.append(f"known.yaml: nothing {kind} any more as in {entry}")
    return wrong
