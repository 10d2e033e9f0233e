"""Whether a program's own text gives `ocl` to something, wherever that goes: `device = "ocl"`,
`Model(**{"device": "ocl"})`, `add_argument("--device", default="ocl")`.

Constants count that name the device where something called a device gets them, in code that is sure
to run, or that such code names. None does where the text names another device, too, but in a list
of choices or a comparison: the program may have taken that one.
"""

import ast
import contextlib
import re
import sys
from collections.abc import Iterator

_OCL = re.compile(r"ocl(:\d*)?")
_OTHERS = re.compile(r"(cpu|cuda|hpu|mps|npu|xpu)(:\d*)?")
_NAME = re.compile(r"\w*(device|accelerator)\w*|dev|accel", re.IGNORECASE)
_OPTION = re.compile(r"-{1,2}([\w.-]*(device|accelerator)[\w.-]*|d|dev|accel)", re.IGNORECASE)
#: Arguments that choose no device to compute on.
_NO_CHOICE = frozenset({"choices", "map_location"})
_ASKS = frozenset({"is_available", "device_count", "current_accelerator"})
_COLLECTION = (ast.List, ast.Tuple, ast.Set)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def line(text: str) -> int:
    """The line of the first such constant; 0 if there is none."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        program = _Program(ast.parse(text))
        if not program.names_others():
            return min((value.lineno for value in program.values()), default=0)
    return 0


def command_line_chooses() -> bool:
    """Whether an argument names a device, or is an option for one."""
    for one in sys.argv[1:]:
        option, _, value = one.partition("=")
        if _OTHERS.fullmatch(value or one.lstrip("-")) or _OPTION.fullmatch(option):
            return True
    return False


def asks_for_devices(text: str) -> bool:
    """Whether the program looks at what there is, and so may do without."""
    return any(name in text for name in _ASKS)


class _Program:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._parents = {c: p for p in ast.walk(tree) for c in ast.iter_child_nodes(p)}
        self._sure = set(self._nodes_that_run())
        #: Variables that something called a device gets.
        self._given: set[str] = set()
        for node in self._sure:
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Load)
                and self._is_given(node)
            ):
                self._given.add(node.id)

    def names_others(self) -> bool:
        return any(
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _OTHERS.fullmatch(node.value)
            and not self._is_no_choice(node)
            for node in ast.walk(self._tree)
        )

    def values(self) -> Iterator[ast.expr]:
        """The constants that name the device where something called a device gets them."""
        for node in self._sure:
            if (
                isinstance(node, ast.expr)
                and _OCL.fullmatch(_beginning(node))
                and self._is_given(node)
            ):
                yield node

    def _is_no_choice(self, node: ast.AST) -> bool:
        parent = self._parents[node]
        while isinstance(parent, _COLLECTION):
            parent = self._parents[parent]
        if isinstance(parent, ast.keyword):
            return parent.arg in _NO_CHOICE
        return isinstance(parent, ast.Compare)

    def _is_given(self, node: ast.expr) -> bool:
        parent = self._parents.get(node)
        if isinstance(parent, ast.Call) and _written(parent.func) in ("torch.device", "device"):
            return node in parent.args[:1] and self._is_given(parent)
        if isinstance(parent, _COLLECTION) and len(parent.elts) == 1:
            above = self._parents[parent]
            if isinstance(above, (ast.For, ast.comprehension)):
                return above.iter is parent and self._is_named(above.target)
            return isinstance(above, ast.keyword) and self._is_given(parent)
        if isinstance(parent, ast.keyword):
            call = self._parents[parent]
            if _written(getattr(call, "func", call)).startswith(("torch.", "torch_ocl.")):
                return False  # which takes it, or raises
            options = [a for a in getattr(call, "args", []) if _OPTION.fullmatch(_beginning(a))]
            return bool(_NAME.fullmatch(parent.arg or "") or parent.arg == "default" and options)
        if isinstance(parent, ast.Dict):
            return any(v is node and _NAME.fullmatch(_beginning(k))
                       for k, v in zip(parent.keys, parent.values, strict=True) if k)  # fmt: skip
        if isinstance(parent, ast.Assign):
            return parent.value is node and any(map(self._is_named, parent.targets))
        if isinstance(parent, (ast.AnnAssign, ast.NamedExpr)):
            return parent.value is node and self._is_named(parent.target)
        if isinstance(parent, ast.arguments):
            names = [a.arg for a in (*parent.posonlyargs, *parent.args)]
            defaults = list(zip(reversed(names), reversed(parent.defaults), strict=False))
            kinds = zip(parent.kwonlyargs, parent.kw_defaults, strict=True)
            defaults += [(a.arg, d) for a, d in kinds if d is not None]
            return any(d is node and _NAME.fullmatch(name) for name, d in defaults)
        return False

    def _is_named(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Subscript):
            return bool(_NAME.fullmatch(_beginning(target.slice)))
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        return bool(_NAME.fullmatch(name)) or name in self._given

    def _nodes_that_run(self) -> Iterator[ast.AST]:
        """Those at the top level, and of functions whose names stand in what runs. What is below a
        condition may not run."""
        waiting: dict[str, list[ast.AST]] = {}
        named: set[str] = set()
        stack: list[ast.AST] = [self._tree]
        while stack:
            node = stack.pop()
            yield node
            if isinstance(node, _FUNCTION):
                stack += [*node.decorator_list, node.args]
                is_special = node.name.startswith("__")  # it goes with its class
                if is_special or node.name in named:
                    stack += node.body
                else:
                    waiting.setdefault(node.name, []).extend(node.body)
                continue
            if isinstance(node, ast.ClassDef):
                stack += node.decorator_list + node.bases
                if node.name in named:
                    stack += node.body
                else:
                    waiting.setdefault(node.name, []).extend(node.body)
                continue
            name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)
            if isinstance(name, str) and name not in named:
                named.add(name)
                stack += waiting.pop(name, [])
            stack += _children_that_run(node)


def _children_that_run(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.If):
        return [node.test, *(node.body if _is_sure(node.test) else ())]
    if isinstance(node, ast.IfExp):
        return [node.test, *([node.body] if _is_sure(node.test) else ())]
    if isinstance(node, ast.BoolOp):
        return [node.values[0]]
    if isinstance(node, (ast.ExceptHandler, ast.match_case)):
        return []
    return list(ast.iter_child_nodes(node))


def _is_sure(test: ast.expr) -> bool:
    """Whether a condition is true in the program: that it is one, or a constant."""
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    return "__name__" in names or isinstance(test, ast.Constant) and bool(test.value)


def _beginning(node: ast.AST | None) -> str:
    """A constant's text, or that of an f-string before its first value."""
    if isinstance(node, ast.JoinedStr):
        node = node.values[0] if node.values else None
    value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def _written(function: ast.AST) -> str:
    with contextlib.suppress(Exception):
        return ast.unparse(function)
    return ""
