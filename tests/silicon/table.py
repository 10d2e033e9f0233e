"""docs/reference/silicon.md, from what the compilers said."""

import collections
import datetime

from tests.silicon import profiles
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

State of {date}. Programs are those compiled of those that ran. Kernels are those of them that ran.
*Few* counts those below four waves of a SIMD on AMD's GPUs. On Intel's it counts those of eight
work-items to a thread that could have sixteen.

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
So does a warning. An entry that nothing needs fails the run.

{known}
"""


def rows(header, lines):
    """A Markdown table."""
    ruler = ["---"] * len(header)
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (header, ruler, *lines))


def device_row(device):
    kernels = [kernel for _, kernel in device.launched()]
    vendors = device.profile.compiler != "front-end"
    simd = collections.Counter(kernel.simd for kernel in kernels if kernel.simd)
    own = [
        len(kernels),
        device.count("spills"),
        device.count("private"),
        device.count("occupancy"),
        max((kernel.registers for kernel in kernels), default=0),
        f"{max((kernel.local for kernel in kernels), default=0) / 1024:.0f} KiB",
        ", ".join(f"{size}: {count}" for size, count in sorted(simd.items())) or "",
    ]
    return [
        f"{device.profile.name}: {device.profile.title}",
        COMPILERS[device.profile.compiler],
        f"{len(device.outcomes)} of {device.captured}",
        device.count("fails"),
        device.count("warns"),
        *(own if vendors else [""] * len(own)),
    ]


#: Kernels that hold most of a network's work.
BUSY = (
    "gemm_tiled",
    "conv_tiled",
    "attention_forward_local",
    "attention_forward_wave_matrix",
    "attention_query_gradient_wave_matrix",
    "attention_key_gradient_wave_matrix",
    "attention_query_gradient",
    "attention_key_gradient",
)


def loop_rows(devices):
    """For each device of AMD's the inner loops of the busy kernels."""
    for device in devices:
        if device.profile.compiler != "amd":
            continue
        loops = {}
        for _, kernel in device.launched():
            if kernel.loop_math:
                loops.setdefault(kernel.name, f"{kernel.loop_math} of {kernel.loop}")
        yield [device.profile.name, *(loops.get(name, "") for name in BUSY)]


def known_rows(devices):
    """The reasons, with how many kernels or programs each stands for."""
    found = {f: of for device in devices for f, of in device.findings().items()}
    for kind in JUDGED:
        for entry in reasons().get(kind, ()):
            about = sum(len(of) for f, of in found.items() if f.kind == kind and explains(entry, f))
            what = entry.get("what", "")
            yield [
                kind,
                f"`{entry['file']}`" + (f": `{what}`" if what else ""),
                ", ".join(entry["devices"]),
                about,
                entry["reason"],
            ]


def page(devices):
    """The whole page."""
    header = "device,compiler,programs,failed,with warnings,launched kernels,spills,private memory"
    header += ",few,most registers,most local memory,work-items of a thread"
    sources = [[d.profile.name, "<br>".join(d.profile.fields["sources"])] for d in devices]
    left = sorted(set(profiles.names()) - {device.profile.name for device in devices})
    others = f"\nNothing was compiled yet for {', '.join(left)}." if left else ""
    return TEXT.format(
        others=others,
        date=datetime.datetime.now(datetime.UTC).date(),
        devices=rows(header.split(","), map(device_row, devices)),
        loops=rows(["device", *BUSY], loop_rows(devices)),
        sources=rows(["device", "where its answers were published"], sources),
        known=rows(["what", "where", "devices", "seen", "why"], known_rows(devices)),
    )
