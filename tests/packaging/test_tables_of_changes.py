"""The tables of what is changed in torch and in libraries: each module has a row, and the test that
says when a change is no longer needed is there."""

import re
from pathlib import Path

import pytest

from tests.python.test_upstream_changes import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
HEAD = ["File", "What is changed", "Why", "Needed by", "Mended in", "Test"]
#: Modules that change nothing themselves.
HELPERS = {
    "upstream": {
        "as_cuda/converting",
        "as_cuda/cuda_runtime",
        "as_cuda/native",
        "as_cuda/stand_in",
        "as_cuda/tensor_types",
        "compile/replacement",
    },
    "integrations": {"_choice", "_patches"},
}
TESTS = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}


def rows(folder):
    """The cells of each row, by the module's path without its ending."""
    table = {}
    for line in (ROOT / "torch_ocl" / folder / "README.md").read_text(encoding="utf-8").split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if found := re.match(r"\[([\w/]+)\.py\]\(([\w/]+)\.py\)$", cells[0]):
            assert found[1] == found[2]
            table[found[1]] = dict(zip(HEAD, cells, strict=True))
        elif cells[0] == "File":
            assert cells == HEAD
    return table


@pytest.mark.parametrize("folder", HELPERS)
def test_each_module_has_a_row(folder):
    folder_path = ROOT / "torch_ocl" / folder
    files = {
        p.relative_to(folder_path).with_suffix("").as_posix() for p in folder_path.rglob("*.py")
    }
    modules = {file for file in files if not file.endswith("__init__")} - HELPERS[folder]
    table = rows(folder)
    assert set(table) == modules
    for name, row in table.items():
        for column in HEAD:
            assert row[column] or column == "Mended in", f"{name} doesn't say: {column}"
        assert re.fullmatch(r"\d[\d.]*(, \d[\d.]*)*", row["Needed by"]), row["Needed by"]


def exists(test):
    """Whether there is such a test: a file, a function of it, its cases with a word, or the checks
    of an integration."""
    if found := re.fullmatch(r"(test_\w+\.py)(?:::(\w+))?", test):
        path = TESTS.get(found[1])
        return path is not None and (
            found[2] is None or f"def {found[2]}(" in path.read_text(encoding="utf-8")
        )
    if found := re.fullmatch(r"test_upstream_changes\.py -k ([\w.]+)", test):
        return any(change.startswith(found[1] + ".") for change in PROGRAMS)
    found = re.fullmatch(r"(\w+\.py): (\w+)", test)
    path = ROOT / "tests" / "integrations" / "checks" / found[1]
    return path.exists() and f'integration="{found[2]}"' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", HELPERS)
def test_the_tests_exist(folder):
    named = {name: re.findall(r"`([^`]+)`", row["Test"]) for name, row in rows(folder).items()}
    assert all(named.values())
    missing = {n: [t for t in tests if not exists(t)] for n, tests in named.items()}
    assert not {name: tests for name, tests in missing.items() if tests}


def test_each_test_of_a_change_is_named():
    """Those of Inductor are by function, the others by module."""
    named = " ".join(row["Test"] for row in rows("upstream").values())
    tests = re.findall(r"^def (test_\w+)\(", TESTS["test_upstream.py"].read_text(), re.MULTILINE)
    assert [test for test in tests if f"::{test}`" not in named] == []
    words = re.findall(r" -k ([\w.]+)`", named)
    assert [c for c in PROGRAMS if not any(c.startswith(word + ".") for word in words)] == []
