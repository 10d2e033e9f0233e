"""docs/measurements/networks.md: what it says of one network, and that all networks are there."""

import torch

from tests.models import table, test_language, test_vision


def rows(name):
    """The cells of a table of the document, by network."""
    text = table.DOCUMENT.read_text(encoding="utf-8")
    text = text.split(f"<!-- networks: {name} -->\n")[1].split("<!-- end")[0]
    cells = [line.strip("| ").split(" | ") for line in text.splitlines()]
    return cells[0], {row[0]: row[1:] for row in cells[2:]}


def test_the_document_has_every_network_and_column():
    names = [
        *test_vision.NETWORKS,
        "U-Net",
        "diffusion U-Net with attention",
        "character LSTM",
        *(f"{name} (transformers)" for name in test_language.NETWORKS),
    ]
    for name in table.TABLES:
        head, found = rows(name)
        assert list(found) == names
        assert head == next(table.lines(name, {})).strip("| ").split(" | ")


def test_a_row():
    """A network's distances are of CPU torch's size."""
    model, inputs, call = test_vision.unet()
    found, host = table.measure(model, inputs, call)
    assert host == 0
    assert found["losses", torch.float64][0] < 1e-12 > found["parameters", torch.float64][0]
    for (what, dtype), distance in found.items():
        if dtype != torch.float64:
            ours, own = distance
            assert 0 < ours < 4 * own, (what, dtype)
    for name in table.TABLES:
        *_, row = table.lines(name, {"U-Net": (1000, found, host)})
        assert len(row.strip("| ").split(" | ")) == len(rows(name)[0])
