"""The programs on disk: contents(), clear(), and warm(), which compiles what most programs need."""

import contextlib
import os
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

_PROGRAM = re.compile(r"[0-9a-f]{32}\.bin")


def _folder() -> str:
    native = sys.modules.get("torch_ocl._C")
    return native.cache_folder() if native else ""


def _programs(folder: str) -> list[os.DirEntry[str]]:
    if not folder or not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        return [
            e for e in entries if _PROGRAM.fullmatch(e.name) and e.is_file(follow_symlinks=False)
        ]


def contents() -> dict[str, Any]:
    """The cache's folder ("" if there is none), its programs, their bytes, and the bytes it may
    hold."""
    folder = _folder()
    sizes = []
    for entry in _programs(folder):
        with contextlib.suppress(FileNotFoundError):  # another process tidies up
            sizes.append(entry.stat(follow_symlinks=False).st_size)
    try:
        limit = max(1, int(os.environ.get("TORCH_OCL_CACHE_SIZE") or 1024)) * 2**20
    except ValueError:
        limit = 1024 * 2**20
    return {"folder": folder, "programs": len(sizes), "bytes": sum(sizes), "limit": limit}


def clear() -> tuple[int, int]:
    """Removes the programs. Returns how many, and their bytes."""
    count = size = 0
    for entry in _programs(_folder()):
        with contextlib.suppress(FileNotFoundError):
            bytes_ = entry.stat(follow_symlinks=False).st_size
            os.unlink(entry.path)
            count, size = count + 1, size + bytes_
    return count, size


def warm(device: str, dtypes: Sequence[torch.dtype]) -> int:
    """Trains small networks of the usual layers, so that their programs are compiled and kept.

    Programs are shared between sizes: larger networks of such layers compile little. Returns 1
    where nothing is kept, else 0. Raises RuntimeError without a device, ValueError for another kind
    of device, TypeError for a dtype that it can't hold.
    """
    from torch_ocl import _warm

    torch.ocl.get_device_properties(device)  # which says why there is no device
    for dtype in dtypes:
        torch.empty(1, device=device, dtype=dtype)
    if not _folder():
        print("The cache is not used, so nothing would be kept.")
        return 1
    before = torch.ocl.program_stats()
    start = time.monotonic()
    for name, run in _warm.WORK.items():
        for dtype in dtypes:
            run(torch.device(device), dtype)
            torch.ocl.synchronize(device)
        built = int(torch.ocl.program_stats()["built"] - before["built"])
        print(f"{time.monotonic() - start:6.1f} s  {built:4} programs built  {name}", flush=True)
    loaded = int(torch.ocl.program_stats()["loaded"] - before["loaded"])
    print(f"{loaded} programs were there already")
    return 0
