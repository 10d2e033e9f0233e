"""The page of names for generate.py: names(), a table for each of upstream's modules.

Public are the names of a module's `__all__`, or where there is none its classes and functions
without an underscore, and submodules without one. They are read from the sources of the torch that
is installed. Which of them torch.ocl has otherwise or not at all is in torch_ocl/api/names.py;
tests/packaging/test_names.py holds both to what is really there.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path

from coverage_tables import table

NAMES = Path(__file__).resolve().parents[2] / "torch_ocl" / "api" / "names.py"
#: Upstream's modules, and what has their names here.
MODULES = {
    "torch.cuda": "torch.ocl",
    "torch.cuda.amp": "torch.ocl.amp",
    "torch.cuda.graphs": "torch.ocl.graphs",
    "torch.cuda.memory": "torch.ocl.memory",
    "torch.cuda.nvtx": "torch.ocl.nvtx",
    "torch.cuda.profiler": "torch.ocl.profiler",
    "torch.cuda.random": "torch.ocl.random",
    "torch.cuda.streams": "torch.ocl.streams",
    "torch.cuda.tunable": "torch.ocl.tunable",
    "torch.xpu": "torch.ocl",
    "torch.xpu.graphs": "torch.ocl.graphs",
    "torch.xpu.memory": "torch.ocl.memory",
    "torch.xpu.random": "torch.ocl.random",
    "torch.xpu.streams": "torch.ocl.streams",
    "torch.mps": "torch.ocl",
    "torch.mps.profiler": "torch.ocl.profiler",
    "torch.accelerator": "torch.accelerator",
    "torch.accelerator.memory": "torch.accelerator",
}


def source_of(module: str) -> Path:
    """Without an import of torch, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0], *module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def listed(tree: ast.Module) -> list[str] | None:
    """The names in `__all__`; None without one."""
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__" and node.value is not None:
            return ast.literal_eval(node.value) or None
    return None


def public_names(module: str) -> list[str]:
    source = source_of(module)
    tree = ast.parse(source.read_text(encoding="utf-8"))
    names = set(listed(tree) or ())
    if not names:
        defined = (n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef)))
        names = {name for name in defined if not name.startswith("_")}
    if source.name == "__init__.py":
        inside = {p.stem for p in source.parent.glob("*.py")}
        inside |= {p.parent.name for p in source.parent.glob("*/__init__.py")}
        names |= {name for name in inside if not name.startswith("_")}
    return sorted(names, key=lambda name: (name.lower(), name))


@functools.cache
def tables() -> tuple[dict[str, str], dict[str, str]]:
    """RENAMED and NOT_APPLICABLE of torch_ocl/api/names.py, which would load torch."""
    tree = ast.parse(NAMES.read_text(encoding="utf-8"))
    texts: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            code = compile(ast.Expression(node.value), str(NAMES), "eval")
            texts[node.targets[0].id] = eval(code, {}, texts)
    return texts["RENAMED"], texts["NOT_APPLICABLE"]  # type: ignore[return-value]


def status(module: str, name: str) -> str:
    renamed, reasons = tables()
    full = f"{module}.{name}"
    if full in renamed:
        return f"is `{renamed[full]}`"
    return f"not applicable. {reasons[full]}" if full in reasons else "works"


def counts() -> str:
    """A row for each of upstream's modules: how many of its names work, and how."""
    rows = []
    for module in MODULES:
        found = [status(module, name) for name in public_names(module)]
        named = sum(text.startswith("is ") for text in found)
        missing = sum(text.startswith("not ") for text in found)
        numbers = (len(found), len(found) - named - missing, named, missing)
        rows.append((f"`{module}`", *numbers))
    total = ("**all**", *(sum(row[i] for row in rows) for i in range(1, 5)))
    cells = [[str(cell) for cell in row] for row in (*rows, total)]
    return table(["module", "names", "works", "another name", "not applicable"], cells)


def names() -> str:
    text = ""
    for module, ours in MODULES.items():
        rows = [[f"`{name}`", status(module, name)] for name in public_names(module)]
        text += f"\n## {module}\n\n" + table([module, ours], rows)
    return text
