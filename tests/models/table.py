"""What the networks of the tests differ by from CPU torch: the table of docs/networks.md.

    python -m tests.models.table [NAME ...]

Without names all networks, and the table is written; with names those rows are only printed.
"""

import pathlib
import sys
import time

import torch

from tests.models import conftest, test_language, test_vision
from tests.models.comparison import distances

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "networks.md"
BEGIN, END = "<!-- networks -->\n", "<!-- end networks -->\n"
COLUMNS = [
    "network",
    "parameters",
    "outputs",
    "gradients",
    "CPU torch's own",
    "losses of 3 steps, float64",
    "outputs, float16",
    "outputs, bfloat16",
    "on the host",
]


def networks():
    """name, model, inputs, call of each."""
    for name, size in test_vision.NETWORKS.items():
        yield name, test_vision.make(name), test_vision.images(size), test_vision.classify
    yield "U-Net", *test_vision.unet()
    yield "diffusion U-Net with attention", *test_vision.diffusion()
    yield "character LSTM", *test_language.character_lstm()
    for name in test_language.NETWORKS:
        model, inputs = test_language.make(name), test_language.inputs_of(name)
        yield f"{name} (transformers)", model, inputs, test_language.call


def row(name, model, inputs, call):
    torch.ocl.reset_fallback_counts()
    torch.ocl.reset_host_staged_counts()
    found = distances(model, inputs, call)
    host = sum(torch.ocl.fallback_counts().values()) + sum(torch.ocl.host_staged_counts().values())
    parameters = sum(p.numel() for p in model.parameters())
    return [name, f"{parameters / 1e6:.2f} M", *(f"{d:.1e}" for d in found), str(host)]


def main(wanted):
    lines = ["| " + " | ".join(COLUMNS) + " |", "| " + " | ".join("---" for _ in COLUMNS) + " |"]
    for name, *rest in networks():
        if wanted and not any(name.startswith(w) for w in wanted):
            continue
        start = time.monotonic()
        lines.append("| " + " | ".join(row(name, *rest)) + " |")
        print(lines[-1], f"{time.monotonic() - start:.0f} s", flush=True)
    if wanted:
        return
    text = DOCUMENT.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    DOCUMENT.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    assert conftest  # declares torchvision's operators
    main(sys.argv[1:])
