"""Finds where a program's own text gives `ocl` to a library: `Library(device="ocl")`, or
`Library(model, "ocl")` where the library's second parameter is its device.

Only calls that are sure to run count: at a file's top level, and in functions that are called from
there. What is below an `if` may not run, except of `if __name__ == "__main__"`.
"""

import ast
import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_KEYWORD = re.compile(r"\w*(device|accelerator)\w*", re.IGNORECASE)
_VALUE = re.compile(r"ocl(:\d+)?")


@dataclass(frozen=True)
class Call:
    """A call with the device as an argument; `keyword` is its name."""

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


def libraries(text: str) -> list[str]:
    """Those that the program imports and that aren't Python's or torch's."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        found = _Program(ast.parse(text))._imported.values()
        tops = dict.fromkeys(module.partition(".")[0] for module, _ in found)
        return [name for name in tops if not _is_known(name)]
    return []


def _is_known(library: str) -> bool:
    return library in ("torch", "torch_ocl") or library in sys.stdlib_module_names


class _Program:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._functions: dict[str, ast.FunctionDef] = {}
        self._libraries: dict[str, str] = {}  # by the name that is bound to a part of it
        self._strings: dict[str, set[str]] = {}  # by the name, all that are assigned to it
        self._imported: dict[str, tuple[str, str]] = {}  # by the name, the module and what of it
        self._made_by: dict[str, ast.expr] = {}  # by the name, the class of its object
        for node in ast.walk(tree):
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef):
            self._functions[node.name] = node
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                self._libraries[alias.asname or top] = top
                self._imported[alias.asname or top] = (alias.name if alias.asname else top, "")
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                self._libraries[alias.asname or alias.name] = node.module.partition(".")[0]
                self._imported[alias.asname or alias.name] = (node.module, alias.name)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                self._strings.setdefault(target.id, set()).add(str(value.value))
            elif isinstance(target, ast.Name):
                self._strings.setdefault(target.id, set()).add("")  # something else
                # An object of a library's class: its methods are the library's, too.
                root = _root(value.func) if isinstance(value, ast.Call) else ""
                if root in self._libraries:
                    other = target.id in self._made_by  # of one of two classes
                    self._made_by[target.id] = ast.Constant(None) if other else value.func
                    self._libraries.setdefault(target.id, self._libraries[root])

    def calls(self) -> Iterator[Call]:
        for node in self._certain(self._tree.body, set()):
            library = self._libraries.get(_root(node.func), "torch")
            if _is_known(library):
                continue
            for name, given in self._arguments(node):
                value = self._string(given)
                if _VALUE.fullmatch(value) and _KEYWORD.fullmatch(name()):
                    yield Call(ast.unparse(node.func), library, name(), value, node.lineno)

    def _arguments(self, call: ast.Call) -> Iterator[tuple[Callable[[], str], ast.expr]]:
        """A function for each argument's name, and the argument."""
        for keyword in call.keywords:
            yield (lambda k=keyword: k.arg or ""), keyword.value  # type: ignore[misc]
        for position, argument in enumerate(call.args):
            if isinstance(argument, ast.Starred):
                return
            yield (lambda p=position: self._parameter(call.func, p)), argument  # type: ignore[misc]

    def _parameter(self, function: ast.expr, position: int) -> str:
        """The name of a library function's positional parameter; empty where it doesn't show."""
        with contextlib.suppress(Exception):  # of the library's own attributes
            parameters = list(inspect.signature(self._object(function)).parameters.values())
            root = function.value if isinstance(function, ast.Attribute) else function
            if isinstance(root, ast.Name) and root.id in self._made_by:
                parameters = parameters[1:]  # the object itself
            one = parameters[position]
            return one.name if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) else ""
        return ""

    def _object(self, function: ast.expr) -> Any:
        """The object that an expression of names stands for: of a library that the program
        imported, or of an object's class."""
        if isinstance(function, ast.Attribute):
            return getattr(self._object(function.value), function.attr)
        if not isinstance(function, ast.Name):
            raise LookupError
        if function.id in self._made_by:
            return self._object(self._made_by[function.id])
        module, attribute = self._imported[function.id]
        found = sys.modules[module]
        return getattr(found, attribute) if attribute else found

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
                if name in self._functions:
                    self._pass_on(node, self._functions[name].args)
                if name in self._functions and name not in seen:
                    seen.add(name)
                    yield from self._certain(self._functions[name].body, seen)

    def _pass_on(self, call: ast.Call, parameters: ast.arguments) -> None:
        """Enters what a call of the program's own function gives to its parameters."""
        names = [a.arg for a in (*parameters.posonlyargs, *parameters.args)]
        defaults = dict(zip(reversed(names), reversed(parameters.defaults), strict=False))
        keyword_only = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
        defaults.update({a.arg: d for a, d in keyword_only if d is not None})
        given = defaults | dict(zip(names, call.args, strict=False))
        given |= {k.arg: k.value for k in call.keywords if k.arg}
        for name, value in given.items():
            self._strings.setdefault(name, set()).add(self._string(value))


def _is_main(test: ast.expr) -> bool:
    return "__name__" in {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}


def _root(function: ast.expr) -> str:
    """The name with which `a.b(...).c` begins."""
    while isinstance(function, (ast.Attribute, ast.Call, ast.Subscript)):
        function = function.func if isinstance(function, ast.Call) else function.value
    return function.id if isinstance(function, ast.Name) else ""
