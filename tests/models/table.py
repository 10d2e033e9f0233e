"""How far the tests' networks are from CPU torch: the tables of docs/measurements/networks.md.

    python -m tests.models.table [NAME ...]

Without names all networks, and the tables are written; with names those rows are only printed.
"""

import os
import pathlib
import sys
import time

import torch

from tests.models import test_language, test_vision
from tests.models.comparison import distances

os.environ.setdefault("HF_HUB_OFFLINE", "1")

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "measurements" / "networks.md"
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
#: name of a table -> {column: (what, dtype) of distances()}
TABLES = {
    "double precision": {
        "losses": ("losses", torch.float64),
        "parameters after the steps": ("parameters", torch.float64),
    },
    "single precision": {
        "outputs": ("outputs", torch.float32),
        "largest difference": ("largest output", torch.float32),
        "gradients": ("gradients", torch.float32),
        "largest difference of a gradient": ("largest gradient", torch.float32),
        "parameters after 3 steps": ("parameters", torch.float32),
    },
    "half types": {
        f"{what}, {name}": (what, dtype)
        for name, dtype in HALVES.items()
        for what in ("outputs", "gradients")
    },
}


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


def measure(model, inputs, call):
    """distances(), and how many operations ran on the host meanwhile."""
    torch.ocl.reset_fallback_counts()
    torch.ocl.reset_host_staged_counts()
    found = distances(model, inputs, call)
    counts = (*torch.ocl.fallback_counts().values(), *torch.ocl.host_staged_counts().values())
    return found, sum(counts)


def cell(distance):
    """The device's, and in parentheses CPU torch's own."""
    ours, *own = (f"{d:.1e}" for d in distance)
    return f"{ours} ({own[0]})" if own else ours


def lines(table, results):
    """`results` is {network: (parameters, distances, operations on the host)}."""
    first = table == next(iter(TABLES))
    head = [*TABLES[table]]
    head = ["network", *(["parameters", *head, "on the host"] if first else head)]
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---" for _ in head) + " |"
    for name, (parameters, found, host) in results.items():
        cells = [cell(found[key]) for key in TABLES[table].values()]
        if first:
            cells = [f"{parameters / 1e6:.2f} M", *cells, str(host)]
        yield "| " + " | ".join([name, *cells]) + " |"


def main(wanted):
    results = {}
    for name, model, *rest in networks():
        if wanted and not any(name.startswith(w) for w in wanted):
            continue
        start = time.monotonic()
        parameters = sum(p.numel() for p in model.parameters())
        results[name] = parameters, *measure(model, *rest)
        for table in TABLES:
            print(table, *list(lines(table, {name: results[name]}))[2:])
        print(f"{time.monotonic() - start:.0f} s", flush=True)
    if wanted:
        return
    text = DOCUMENT.read_text(encoding="utf-8")
    for table in TABLES:
        begin, end = f"<!-- networks: {table} -->\n", f"<!-- end networks: {table} -->\n"
        before, after = text.split(begin)[0], text.split(end)[1]
        text = before + begin + "\n".join(lines(table, results)) + "\n" + end + after
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
