"""The programs on disk: contents(), clear(), and warm(), which compiles what most programs need."""

import contextlib
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
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


def warm(
    device: str, dtypes: Sequence[torch.dtype], jobs: int = 1, only: Sequence[str] = ()
) -> int:
    """Trains small networks of the usual layers, so that their programs are compiled and kept.

    Programs are shared between sizes: larger networks of such layers compile little. `jobs`
    processes share the work: drivers compile one program at a time in each. `only` names parts of
    warm.WORK. Returns 1 where nothing is kept, else 0. Raises RuntimeError without a device,
    ValueError for another kind of device, TypeError for a dtype that it can't hold.
    """
    from torch_ocl.cli import warm

    torch.ocl.get_device_properties(device)  # which says why there is no device
    for dtype in dtypes:
        torch.empty(1, device=device, dtype=dtype)
    if not _folder():
        print("The cache is not used, so nothing would be kept.")
        return 1
    start = time.monotonic()
    work = [(device, name, dtype) for name in only or warm.WORK for dtype in dtypes]
    totals = {"built": 0, "loaded": 0}
    for (_, name, dtype), counts in _done(work, jobs):
        totals = {key: totals[key] + counts[key] for key in totals}
        print(
            f"{time.monotonic() - start:6.1f} s  {totals['built']:4} programs built  "
            f"{name}, {str(dtype).removeprefix('torch.')}",
            flush=True,
        )
    print(f"{totals['loaded']} programs were there already")
    return 0


_Work = tuple[str, str, torch.dtype]


def _done(work: Sequence[_Work], jobs: int) -> Iterator[tuple[_Work, dict[str, int]]]:
    """Each part with what it built and loaded, as they end."""
    if jobs <= 1:
        yield from ((part, _warm_part(*part)) for part in work)
        return
    context = multiprocessing.get_context("spawn")  # a device can't be used after a fork
    with ProcessPoolExecutor(min(jobs, len(work)), context) as pool:
        running = {pool.submit(_warm_part, *part): part for part in work}
        for future in as_completed(running):
            yield running[future], future.result()


def _warm_part(device: str, name: str, dtype: torch.dtype) -> dict[str, int]:
    from torch_ocl.cli import warm

    before = torch.ocl.program_stats()
    warm.WORK[name](torch.device(device), dtype)
    torch.ocl.synchronize(device)
    after = torch.ocl.program_stats()
    return {key: int(after[key] - before[key]) for key in ("built", "loaded")}
