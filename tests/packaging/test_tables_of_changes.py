"""The tables of what is changed in torch and in libraries: each module has a row, and the test that
says when a change is no longer needed is there."""

import ast
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
        "as_cuda/tensor_types",
        "compile/replacement",
    },
    "integrations": {"_choice", "_gguf", "_patches", "_stand_in"},
}
#: Files that set something of others' all the same, and what. They name the device to torch, set up
#: a program, or say why there is no device. The rest are objects of one graph, and counts.
OTHERS_OWN = {
    "__main__.py": ("sys.argv", "sys.path", "sys.modules", "sys.stdout", "sys.stderr"),
    "_import_hook.py": ("sys.meta_path",),
    "_registration.py": ("torch.nn.parameter.UninitializedTensorMixin._allowed_methods",),
    "api/names.py": ("torch.version.ocl", "torch.backends.ocl", "sys.modules"),
    "api/unavailable.py": ("torch", "sys.modules"),
    "cli/console_scripts.py": ("sys.argv", "sys.path"),
    "cli/peaks.py": ("torch.backends.ocl",),
    "inductor/call/replay.py": ("counters",),
    "inductor/templates/fusion.py": ("V.graph",),
    "inductor/templates/prologue.py": ("V.graph",),
    "notices/unused_children.py": ("os.environ",),
}
CHANGING = {"append", "clear", "extend", "insert", "pop", "setdefault", "update"}
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
    files = [TESTS[name].read_text() for name in ("test_upstream.py", "test_upstream_results.py")]
    tests = re.findall(r"^def (test_\w+)\(", "".join(files), re.MULTILINE)
    assert [test for test in tests if f"::{test}`" not in named] == []
    words = re.findall(r" -k ([\w.]+)`", named)
    assert [c for c in PROGRAMS if not any(c.startswith(word + ".") for word in words)] == []


def imported_names(tree):
    """The names in a file of modules, and of their parts, that are not this package's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias for alias in node.names if not alias.name.startswith("torch_ocl")]
            yield from (alias.asname or alias.name.split(".")[0] for alias in modules)
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("torch_ocl"):
            yield from (alias.asname or alias.name for alias in node.names)


def places_set(tree):
    """Attributes and elements that a file sets, removes, or changes by a method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.Delete):
            for target in node.targets:
                yield from target.elts if isinstance(target, ast.Tuple) else [target]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            yield node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in CHANGING:
                yield node.func
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            yield ast.Attribute(node.args[0], "any")


def changes(text):
    """Places of others' modules that a file's text sets."""
    tree = ast.parse(text)
    names = set(imported_names(tree))
    for place in places_set(tree):
        root = place
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if root is not place and isinstance(root, ast.Name) and root.id in names:
            yield ast.unparse(place)


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.exit = print",
        "def f():\n    from torch._inductor import conv as c\n    c.convolution.bind = print",
        "from torch._inductor.lowering import lowerings\nfor op in 1, 2: lowerings[op] = print",
        "import torch\nsetattr(torch.Tensor, name, print)",
        "import torch\ntorch.nn.Module.hooks.append(print)",
        "import torch\ndel torch.Tensor.cuda",
    ],
)
def test_changes_are_found(text):
    assert len(list(changes(text))) == 1


def test_nothing_is_changed_elsewhere():
    """A change has a row, so it belongs into the two folders: or into the list above."""
    package, found = ROOT / "torch_ocl", {}
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        if name.split("/")[0] not in HELPERS:
            known = OTHERS_OWN.get(name, ())
            places = changes(path.read_text(encoding="utf-8"))
            found[name] = [p for p in places if not p.startswith(known)]
    assert not {name: places for name, places in found.items() if places}
