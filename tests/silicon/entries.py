"""Entries of devices in docs/reference/silicon.json. The page is written of them, so that a run of
some devices leaves the others as they were."""

import collections
import datetime
import json
import pathlib

from tests.silicon import profiles
from tests.silicon.findings import Finding

KNOWN = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "silicon.json"
#: These make a kernel slow.
PROBLEMS = ("spills", "private", "occupancy")
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


def load():
    """The entries by device."""
    return json.loads(KNOWN.read_text()) if KNOWN.exists() else {}


def save(entries):
    KNOWN.write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n")


def entry_of(device):
    """An entry: numbers for the device's row, its inner loops, and its findings with how many
    programs or kernels each was seen in."""
    kernels = [kernel for _, kernel in device.launched()]
    loops = {}
    for kernel in kernels:
        if kernel.loop_math and kernel.name in BUSY:
            loops.setdefault(kernel.name, f"{kernel.loop_math} of {kernel.loop}")
    simd = collections.Counter(kernel.simd for kernel in kernels if kernel.simd)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "programs": len(device.outcomes),
        "captured": device.captured,
        "kernels": len(kernels),
        "counts": {kind: device.count(kind) for kind in ("fails", "warns", *PROBLEMS)},
        "registers": max((kernel.registers for kernel in kernels), default=0),
        "local": max((kernel.local for kernel in kernels), default=0),
        "simd": {str(size): count for size, count in sorted(simd.items())},
        "loops": loops,
        "findings": [[f.kind, f.file, f.what, len(of)] for f, of in device.findings().items()],
    }


def is_whole(entry):
    """Whether all programs that ran were compiled."""
    return entry["programs"] == entry["captured"]


def are_whole(entries):
    """Whether all programs of all devices were compiled."""
    return set(entries) == set(profiles.names()) and all(map(is_whole, entries.values()))


def findings_of(entries):
    """Findings of all devices, with how many programs or kernels each was seen in."""
    return {
        Finding(name, kind, file, what): count
        for name, entry in entries.items()
        for kind, file, what, count in entry["findings"]
    }
