"""docs/reference/silicon.md, from what the compilers said."""

from tests.silicon import profiles
from tests.silicon.entries import BUSY, findings_of
from tests.silicon.findings import JUDGED, explains, reasons

COMPILERS = {
    "amd": "clang",
    "intel": "ocloc",
    "intel-legacy": "ocloc 24",
    "front-end": "clang's front end",
}
TEXT = """\
# GPUs by their compilers

The project was run on NVIDIA's GPUs and on CPUs. Compilers need no GPU: this page is what those of
other vendors say of the programs that the package would run there. `make silicon` writes it.
[Its README](../../tests/silicon/README.md) says how. A kernel that compiles well may still be slow,
or wrong by a driver's fault: nothing here was run.

Programs are those compiled of those that ran. Kernels are those of them that ran. *Few* counts
those below four waves of a SIMD on AMD's GPUs. On Intel's it counts those of eight work-items to a
thread that could have sixteen.

{devices}

Registers are 32 bits of a work-item on AMD's GPUs, and 32 or 64 bytes of a thread on Intel's. Where
a vendor's compiler can't be had, clang's front end says whether a program is OpenCL C with that
device's extensions. llvm-spirv and spirv-val say whether it is SPIR-V for OpenCL.
{others}

## Inner loops

A kernel's loop with the most multiplications: how many instructions multiply and add, of how many.
AMD's compiler lists them. The first program that has such a loop stands for all of the kernel's.

{loops}

## Sources

What a device answers is from published outputs of clinfo and the like. What those don't show is
assumed. [Profiles](../../tests/silicon/profiles) say what that is.

{sources}

## What is known to be wrong

A kernel that spills registers, or uses private memory, needs a reason in tests/silicon/known.yaml.
So does a warning. An entry that nothing needs fails the run.{uncounted}

{known}
"""


def rows(header, lines):
    """A Markdown table."""
    ruler = ["---"] * len(header)
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (header, ruler, *lines))


def device_row(name, entry):
    profile, counts = profiles.load(name), entry["counts"]
    own = [
        entry["kernels"],
        counts["spills"],
        counts["private"],
        counts["occupancy"],
        entry["registers"],
        f"{entry['local'] / 1024:.0f} KiB",
        ", ".join(f"{size}: {count}" for size, count in entry["simd"].items()),
    ]
    return [
        f"{name}: {profile.title}",
        COMPILERS[profile.compiler],
        entry["date"],
        f"{entry['programs']} of {entry['captured']}",
        counts["fails"],
        counts["warns"],
        *(own if profile.compiler != "front-end" else [""] * len(own)),
    ]


def loop_rows(entries):
    """For each device of AMD's the inner loops of the busy kernels."""
    for name, entry in entries.items():
        if profiles.load(name).compiler == "amd":
            yield [name, *(entry["loops"].get(kernel, "") for kernel in BUSY)]


def known_rows(entries):
    """The reasons, with how many kernels or programs each stands for."""
    found = findings_of(entries)
    for kind in JUDGED:
        for entry in reasons().get(kind, ()):
            about = sum(n for f, n in found.items() if f.kind == kind and explains(entry, f))
            what = entry.get("what", "")
            yield [
                kind,
                f"`{entry['file']}`" + (f": `{what}`" if what else ""),
                ", ".join(entry["devices"]),
                about,
                entry["reason"],
            ]


def page(entries):
    """The whole page, of what is known of each device (entries.py)."""
    header = "device,compiler,on,programs,failed,with warnings,launched kernels,spills,"
    header += "private memory,few,most registers,most local memory,work-items of a thread"
    left = sorted(set(profiles.names()) - set(entries))
    others = f"\nNothing was compiled yet for {', '.join(left)}." if left else ""
    old = [name for name, e in entries.items() if any(e["counts"].values()) and not e["findings"]]
    uncounted = f" Not counted, until they run again: {', '.join(old)}." if old else ""
    sources = [[name, "<br>".join(profiles.load(name).fields["sources"])] for name in entries]
    return TEXT.format(
        others=others,
        uncounted=uncounted,
        devices=rows(header.split(","), (device_row(*one) for one in entries.items())),
        loops=rows(["device", *BUSY], loop_rows(entries)),
        sources=rows(["device", "where its answers were published"], sources),
        known=rows(["what", "where", "devices", "seen", "why"], known_rows(entries)),
    )
