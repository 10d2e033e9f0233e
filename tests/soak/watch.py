"""Looks at what a process holds, and says whether that grows."""

import gc
import os
import threading

import torch

#: Bytes may differ by so much, counts by nothing.
TOLERANCE = 0.01


def look():
    """Bytes and counts of now."""
    gc.collect()
    torch.ocl.synchronize()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    programs = torch.ocl.program_stats()
    return {
        "device bytes": torch.ocl.memory_allocated(),
        "host bytes": resident,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "Python threads": threading.active_count(),
        "programs": programs["built"] + programs["loaded"],
        "tensors": sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects()),
    }


def growth(looks):
    """Lists what grew in the last quarter: name -> (most of the quarter before, most of it)."""
    quarter = len(looks) // 4
    before, after = looks[-2 * quarter : -quarter], looks[-quarter:]
    found = {}
    for name in looks[0]:
        most, later = max(x[name] for x in before), max(x[name] for x in after)
        if later > most * (1 + TOLERANCE if name.endswith("bytes") else 1):
            found[name] = (most, later)
    return found
