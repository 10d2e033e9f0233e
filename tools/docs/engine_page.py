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
    "convolution": "conv",
}
#: The words for engines that share a folder: its README says what all of them are for.
COMPUTES = {
    "average_pool": "means of windows",
    "backward_average_pool": "the gradient of means of windows",
    "backward_max_pool": "the gradient of maxima of windows",
    "backward_nearest": "the gradient of nearest-neighbour resampling",
    "linalg_cholesky": "A = L L^H",
    "linalg_condense": "a matrix's tridiagonal or bidiagonal form, before the iteration",
    "linalg_implicit_qr": "eigenvalues or singular values of two diagonals, by implicit QR steps",
    "linalg_lu": "P A = L U of a panel, with row pivoting",
    "linalg_qr": "A = Q R of a panel, by Householder reflections",
    "linalg_reflect": "products with Q, which is kept as reflections",
    "linalg_triangular": "X with L X = B, or with U",
    "max_pool": "maxima of windows, and where they are",
}
OF_OPS = {
    "backward_embedding_bag": ("EmbeddingBag.cpp", "the weight's gradient of embedding bags"),
    "backward_grid_sample": ("spatial/GridSampler.cpp", "the input's gradient of grid sampling"),
    "backward_vision": (
        "vision/sums.cpp",
        "the inputs' gradients of torchvision's pooling of boxes and deformable convolution",
    ),
    "col2im": ("spatial/Im2Col.cpp", "columns summed to an image, as fold does"),
    "distance": ("Distance.cpp", "distances between rows"),
    "lstm": ("rnn/LSTM.cpp", "a step of an LSTM's cell"),
    "unique": ("Unique.cpp", "duplicates of a vector"),
    "sdpa": ("attention/Attention.cpp", "scaled dot product attention: the engine, or its formula"),
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
            computes = COMPUTES.get(engine, bold[1].rstrip("."))
            place = f"[{folder}](../../csrc/engine/{folder}/README.md)"
        names = ", ".join(f"`{name}`" for name in implementations)
        rows.append([f"`{engine}`", computes, names, place])
    return table(["engine", "computes", "implementations", "described in"], rows)
