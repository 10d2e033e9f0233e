"""TorchScript, where "cuda" is `ocl`.

Operators that name devices are replaced (csrc/python/script_names.cpp). Two are instructions of the
interpreter, which can't be. What they say is said by other operators, in each graph that was
compiled or loaded. All of them are upstream's, so a saved script can be loaded without this
package.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch


def install() -> None:
    """Changes the interpreter, and the functions that compile and load scripts."""
    from torch_ocl import _C

    _C.show_scripts_cuda()
    core: Any = torch._C
    for name in ("_jit_script_compile", "_jit_script_compile_overload"):
        setattr(core, name, _after(getattr(core, name), lambda made, *args: rewrite(made.graph)))
    for name in ("import_ir_module", "import_ir_module_from_buffer"):
        changed = _after(getattr(core, name), lambda made, unit, *args: _rewrite(unit))
        changed.__qualname__ = name  # pybind11's is no place to find it at
        for owner in (core, torch):
            setattr(owner, name, changed)
    unit, kind = core.CompilationUnit, core.ConcreteModuleType
    unit.define = _after(unit.define, lambda made, unit, *args: _rewrite(unit))
    unit.__init__ = _after(unit.__init__, lambda made, unit, *args: _rewrite(unit))
    # It has the methods of a class, and an object of the class lists them.
    kind._create_methods_and_properties = _after(
        kind._create_methods_and_properties,
        lambda made, kind, *args: _rewrite(core._create_module_with_type(kind.jit_type)),
    )


def _after(upstream: Callable[..., Any], change: Callable[..., None]) -> Callable[..., Any]:
    """The function with a call of change(its result, *its arguments) at its end."""

    @functools.wraps(upstream)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        made = upstream(*args, **kwargs)
        change(made, *args)
        return made

    return wrapper


def _rewrite(owner: Any) -> None:
    """All graphs of a compilation unit or a module."""
    if isinstance(owner, torch._C.CompilationUnit):
        functions = owner.get_functions()
    else:
        functions = [owner._get_method(name) for name in owner._method_names()]
    for function in functions:
        rewrite(function.graph)


def rewrite(graph: torch._C.Graph) -> None:
    """Says x.is_cuda, and a device in a string, by operators that are replaced."""
    for node in graph.findAllNodes("prim::is_cuda", recurse=True):
        with graph.insert_point_guard(node):
            device = graph.insert("prim::device", [node.inputsAt(0)])
            of_cuda = graph.insertConstant("cuda")
            is_cuda = graph.insert("aten::eq", [of_cuda, graph.insert("prim::type", [device])])
        node.output().replaceAllUsesWith(is_cuda)
        node.destroy()
    for node in graph.findAllNodes("aten::format", recurse=True):
        for index, value in enumerate(list(node.inputs())):
            if value.type().kind() == "DeviceObjType":
                with graph.insert_point_guard(node):
                    node.replaceInput(index, graph.insert("aten::str", [value]))
