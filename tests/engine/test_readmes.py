"""The engines' READMEs name the implementations that there are."""

import re
from pathlib import Path

import pytest

from torch_ocl import testing

ENGINES = Path(__file__).parents[2] / "csrc" / "engine"
#: Engines in folders of another name.
FOLDERS = {"convolution": "conv", "backward_nearest": "spatial"}
#: Engines in csrc/ops.
FOLDERS |= dict.fromkeys(
    (
        "backward_embedding_bag",
        "backward_grid_sample",
        "backward_vision",
        "col2im",
        "distance",
        "lstm",
        "sdpa",
        "unique",
    ),
)
FOLDERS |= {name: "spatial" for name in testing.engines() if name.endswith("pool")}


def implementations_by_folder():
    found = {}
    for engine, names in testing.engines().items():
        folder = FOLDERS.get(engine, engine.split("_")[0])
        if folder is not None:
            found.setdefault(folder, set()).update(names)
    return found


def table_rows(text):
    """The cells of the columns "name" of tables that say who takes what."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        lines = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
        if "who" in lines[0]:
            yield from (line[lines[0].index("who") - 1] for line in lines[2:])


@pytest.mark.parametrize("folder, names", implementations_by_folder().items())
def test_a_readme_names_the_implementations(folder, names):
    text = (ENGINES / folder / "README.md").read_text(encoding="utf-8")
    in_tables = {word for cell in table_rows(text) for word in re.findall(r"\w+", cell)}
    assert in_tables <= names, "a table has implementations that are not there"
    told = in_tables | set(re.findall(r"`(\w+)`", text)) | set(re.findall(r"\*\*(\w+)\*\*", text))
    headers = re.findall(r"^\|(.*)\|\n\| *-", text, re.M)
    told |= {word for header in headers for word in re.findall(r"\w+", header)}
    assert names <= told, "the README does not name them all"
