"""The API page's contents for generate.py: api(), which lists every public name for Sphinx.

Public are the names of `__all__` in torch_ocl/api/ocl.py, in the modules among them, and in MORE;
where there is no `__all__`, what has no underscore. They are read from the sources, so that nothing
has to be built. Sphinx gets their docstrings itself.
"""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "torch_ocl"
#: Public modules beside torch.ocl, and their names.
MORE = {"api.backends": "torch.backends.ocl", "testing": "torch_ocl.testing"}
#: These stand first. Others follow by name.
ORDER = ("device", "memory", "snapshots", "pools", "random", "streams", "diagnostics", "packed")


def source(module: str) -> Path:
    return PACKAGE.joinpath(*module.split(".")).with_suffix(".py")


def parse(module: str) -> ast.Module:
    return ast.parse(source(module).read_text(encoding="utf-8"))


def public_names(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    defined = (n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef)))
    return sorted(name for name in defined if not name.startswith("_"))


def modules_of_names(tree: ast.Module) -> dict[str, str]:
    """Which module of the package each imported name comes from."""
    return {
        alias.asname or alias.name: node.module.removeprefix("torch_ocl").lstrip(".")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch_ocl")
        for alias in node.names
    }


def definitions(module: str) -> dict[str, ast.stmt]:
    """The classes and functions of a module, also those that it imports from the package."""
    found: dict[str, ast.stmt] = {}
    for name, origin in modules_of_names(parse(module)).items():
        if source(origin).exists():
            found |= {n: d for n, d in definitions(origin).items() if n == name}
    tree = parse(module)
    found |= {n.name: n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    return found


def directive(name: str, defined: dict[str, ast.stmt]) -> str:
    if isinstance(defined.get(name), ast.ClassDef):
        return f".. autoclass:: {name}\n   :members:\n"
    if isinstance(defined.get(name), ast.FunctionDef):
        return f".. autofunction:: {name}\n"
    raise ValueError(f"{name} is neither a class nor a function of its module")


def section(module: str, names: list[str], shown_as: str) -> str:
    """Heading, the module's docstring, and a directive for each name."""
    tree = parse(module)
    defined = definitions(module)
    title, _, text = (ast.get_docstring(tree) or module).partition("\n")
    heading, _, rest = title.partition(": ")
    about = (rest[:1].upper() + rest[1:]) + text
    body = "\n".join(directive(name, defined) for name in names)
    return (
        f"\n## {heading.rstrip('.')}\n\n"
        + (f"```{{eval-rst}}\n{about.strip()}\n```\n\n" if about.strip() else "")
        + f"```{{eval-rst}}\n.. currentmodule:: {shown_as}\n\n{body}```\n"
    )


def api() -> str:
    tree = parse("api.ocl")
    origins = modules_of_names(tree)
    by_module: dict[str, list[str]] = {}
    submodules = []
    for name in public_names(tree):
        if origins.get(name) == "api":
            submodules.append(name)
        elif name in origins:
            by_module.setdefault(origins[name], []).append(name)

    def place(module: str) -> tuple[int, str]:
        name = module.rpartition(".")[2]
        return ORDER.index(name) if name in ORDER else len(ORDER), name

    ordered = sorted(by_module, key=place)
    text = "".join(section(module, by_module[module], "torch.ocl") for module in ordered)
    for module in submodules:
        names = public_names(parse(f"api.{module}"))
        text += section(f"api.{module}", names, f"torch.ocl.{module}")
    for module, shown_as in MORE.items():
        if source(module).exists():
            text += section(module, public_names(parse(module)), shown_as)
    return text
