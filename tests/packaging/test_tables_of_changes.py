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
        "as_cuda/graphs",
        "as_cuda/cuda_runtime",
        "as_cuda/tensor_types",
        "compile/replacement",
        "device_functions",
    },
    "integrations": {"_checkpoints", "_choice", "_gguf", "_patches", "_stand_in"},
}
#: Files that set something of others' all the same, and what: they set up a program. The rest are
#: objects of one graph, counts, and this package's own settings.
OTHERS_OWN = {
    "__main__.py": ("sys.argv", "sys.path", "sys.modules", "sys.stdout", "sys.stderr"),
    "_import_hook.py": ("sys.meta_path",),
    "cli/console_scripts.py": ("sys.argv", "sys.path"),
    "cli/peaks.py": ("torch.backends.ocl",),
    "inductor/call/replay.py": ("counters",),
    "inductor/call/cpp_wrapper.py": ("constants.",),
    "inductor/scheduling.py": ("wrapper.",),
    "inductor/templates/fusion.py": ("V.graph", "wrapper."),
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


def root_of(place):
    """The name that a place or a part is of, as `torch` in vars(torch.cuda)["comm"]."""
    while isinstance(place, ast.Attribute | ast.Subscript | ast.Call):
        if not isinstance(place, ast.Call):
            place = place.value
        elif place.args and ast.unparse(place.func) in ("getattr", "vars"):
            place = place.args[0]
        else:
            return None
    return place.id if isinstance(place, ast.Name) else None


def bindings(tree):
    """Names that a file binds, each with what it may be afterwards."""
    for node in ast.walk(tree):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        value = getattr(node, "value", None) or getattr(node, "iter", None)
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
        for target in targets:
            if isinstance(target, ast.Name):
                yield from ((target.id, value) for value in values if value is not None)


def others_names(tree):
    """Names of what isn't this package's: what a file imports, and what it calls parts of that."""
    names, before = set(imported_names(tree)), None
    while names != before:
        before = set(names)
        names |= {name for name, value in bindings(tree) if root_of(value) in names}
    return names


def changes(text):
    """Places of others' modules that a file's text sets."""
    tree = ast.parse(text)
    names = others_names(tree)
    for place in places_set(tree):
        if not isinstance(place, ast.Name) and root_of(place) in names:
            yield ast.unparse(place)


def unnamed_changes(text):
    """Calls that set an attribute of what a file got from elsewhere, and of what it has others
    change once it is loaded."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            on = ast.unparse(node.args[0]) if node.args else ""
            if function in ("setattr", "delattr") and on not in ("self", "cls"):
                yield ast.unparse(node)
            if function in ("_import_hook.after", "_import_hook.before"):
                yield ast.unparse(node)


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.exit = print",
        "def f():\n    from torch._inductor import conv as c\n    c.convolution.bind = print",
        "from torch._inductor.lowering import lowerings\nfor op in 1, 2: lowerings[op] = print",
        "import torch\nsetattr(torch.Tensor, name, print)",
        "import torch\ntorch.nn.Module.hooks.append(print)",
        "import torch\ndel torch.Tensor.cuda",
        "import torch\nfor owner in (torch.Tensor, torch.nn.Module):\n    owner.ocl = print",
        "import torch\nours = torch.cuda.comm\nvars(ours)['broadcast'] = print",
        "from torch import _tensor_str as t\nkind = getattr(t, name)\nkind.__init__ = print",
    ],
)
def test_changes_are_found(text):
    assert len(list(changes(text))) == 1


@pytest.mark.parametrize("folder", HELPERS)
def test_helpers_change_nothing(folder):
    for name in HELPERS[folder]:
        path = ROOT / "torch_ocl" / folder / f"{name}.py"
        places = [p for p in changes(path.read_text(encoding="utf-8")) if "os.environ" not in p]
        assert places == [], name


def test_nothing_is_changed_elsewhere():
    """A change has a row, so it belongs into the two folders: or into the list above."""
    package, found = ROOT / "torch_ocl", {}
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        if name.split("/")[0] not in HELPERS:
            known = OTHERS_OWN.get(name, ())
            text = path.read_text(encoding="utf-8")
            places = [*changes(text), *unnamed_changes(text)]
            found[name] = [p for p in places if not p.startswith(known)]
    assert not {name: places for name, places in found.items() if places}
