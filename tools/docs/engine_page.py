"""The page of engines for generate.py: which implementations each one chooses among.

The names are the built package's (`torch_ocl.testing.engines()`); what an engine computes is the
first sentence of its README.
"""

from __future__ import annotations

import re
from pathlib import Path

from coverage_tables import table

ROOT = Path(__file__).resolve().parents[2]
#: Engines that share a folder, and those that ops have to themselves.
FOLDERS = {
    "average_pool": "spatial",
    "backward_average_pool": "spatial",
    "backward_max_pool": "spatial",
    "max_pool": "spatial",
    "backward_nearest": "spatial",
}
OF_OPS = {
    "convolution": ("Convolution.cpp", "brings convolutions to the gemm engine, or on to conv"),
    "lstm": ("LSTM.cpp", "a step of an LSTM's cell"),
    "sdpa": ("Attention.cpp", "scaled dot product attention: the engine, or its formula"),
}


def engines() -> str:
    """A row for each engine, in the order of names; implementations as they are entered."""
    from torch_ocl import testing

    rows = []
    for engine, implementations in testing.engines().items():
        if engine in OF_OPS:
            file, computes = OF_OPS[engine]
            place = f"[{file}](../../csrc/ops/{file})"
        else:
            folder = FOLDERS.get(engine, engine.split("_")[0])
            readme = ROOT / "csrc" / "engine" / folder / "README.md"
            bold = re.search(r"\*\*(.+?)\*\*", readme.read_text(encoding="utf-8"))
            computes = bold[1].rstrip(".")
            place = f"[{folder}](../../csrc/engine/{folder}/README.md)"
        names = ", ".join(f"`{name}`" for name in implementations)
        rows.append([f"`{engine}`", computes, names, place])
    return table(["engine", "computes", "implementations", "described in"], rows)
