"""Finds where a program's own text gives `ocl` to a library: `Library(device="ocl")`.

Only calls that are sure to run count: at a file's top level, and in functions that are called from
there. What is below an `if` may not run, except of `if __name__ == "__main__"`.
"""

import ast
import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

_KEYWORD = re.compile(r"\w*(device|accelerator)\w*", re.IGNORECASE)
_VALUE = re.compile(r"ocl(:\d+)?")


@dataclass(frozen=True)
class Call:
    """A call with the device as a keyword."""

    name: str  # as it is written
    library: str
    keyword: str
    value: str
    line: int


def find(text: str) -> Call | None:
    """The first such call of a function that isn't torch's: torch takes the device."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        return next(_Program(ast.parse(text)).calls(), None)
    return None


class _Program:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._functions: dict[str, ast.FunctionDef] = {}
        self._libraries: dict[str, str] = {}  # by the name that is bound to a part of it
        self._strings: dict[str, set[str]] = {}  # by the name, all that are assigned to it
        for node in ast.walk(tree):
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef):
            self._functions[node.name] = node
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                self._libraries[alias.asname or top] = top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                self._libraries[alias.asname or alias.name] = node.module.partition(".")[0]
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                self._strings.setdefault(target.id, set()).add(str(value.value))
            elif isinstance(target, ast.Name):
                self._strings.setdefault(target.id, set()).add("")  # something else
                # An object of a library's class: its methods are the library's, too.
                root = _root(value.func) if isinstance(value, ast.Call) else ""
                if root in self._libraries:
                    self._libraries.setdefault(target.id, self._libraries[root])

    def calls(self) -> Iterator[Call]:
        for node in self._certain(self._tree.body, set()):
            library = self._libraries.get(_root(node.func), "torch")
            if library in ("torch", "torch_ocl") or library in sys.stdlib_module_names:
                continue
            for keyword in node.keywords:
                value = self._string(keyword.value)
                if keyword.arg and _KEYWORD.fullmatch(keyword.arg) and _VALUE.fullmatch(value):
                    name = ast.unparse(node.func)
                    yield Call(name, library, keyword.arg, value, node.lineno)

    def _string(self, value: ast.expr) -> str:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
        given = self._strings.get(value.id, set()) if isinstance(value, ast.Name) else set()
        return next(iter(given)) if len(given) == 1 else ""

    def _certain(self, body: list[ast.stmt], seen: set[str]) -> Iterator[ast.Call]:
        """The calls that run, with those of functions that these call."""
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            yield from self._of_expressions(statement, seen)
            if not isinstance(statement, ast.If) or _is_main(statement.test):
                yield from self._certain(getattr(statement, "body", []), seen)

    def _of_expressions(self, statement: ast.stmt, seen: set[str]) -> Iterator[ast.Call]:
        for part in ast.iter_child_nodes(statement):
            if isinstance(part, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                continue
            for node in ast.walk(part):
                if not isinstance(node, ast.Call):
                    continue
                yield node
                name = node.func.id if isinstance(node.func, ast.Name) else ""
                if name in self._functions and name not in seen:
                    seen.add(name)
                    yield from self._certain(self._functions[name].body, seen)


def _is_main(test: ast.expr) -> bool:
    return "__name__" in {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}


def _root(function: ast.expr) -> str:
    """The name with which `a.b(...).c` begins."""
    while isinstance(function, (ast.Attribute, ast.Call, ast.Subscript)):
        function = function.func if isinstance(function, ast.Call) else function.value
    return function.id if isinstance(function, ast.Name) else ""
