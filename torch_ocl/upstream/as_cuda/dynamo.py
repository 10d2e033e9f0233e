"""Dynamo, where "cuda" is `ocl`: compiled code sees what the code sees when it is run.

What a program asks a tensor or a device for is a constant to Dynamo. Dynamo works most of them out
in its own modules, to which a device is `ocl`.
"""

import functools
import operator
import types
from typing import Any

import torch

from torch_ocl.upstream.as_cuda import tensor_types
from torch_ocl.upstream.as_cuda.converting import is_of_torch


def _change_devices(module: types.ModuleType) -> None:
    """A device's type."""
    kind = module.ConstantVariable
    upstream = kind.const_getattr

    @functools.wraps(upstream)
    def const_getattr(self: Any, tx: Any, name: str) -> Any:
        if name == "type" and type(self.value) is torch.device and self.value.type == "ocl":
            return "ocl" if _traces_torch(tx) else "cuda"
        return upstream(self, tx, name)

    kind.const_getattr = const_getattr


def _change_texts(module: types.ModuleType) -> None:
    """A device's string. It is made once more, by code that counts as the program's."""
    kind = module.BuiltinVariable
    upstream = kind.call_function
    makers = (str, format, str.format, operator.mod, operator.imod)
    as_program = eval("lambda make, args, kwargs: make(*args, **kwargs)", {"__name__": "program"})

    @functools.wraps(upstream)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        made = upstream(self, tx, args, kwargs)
        if not any(self.fn is maker for maker in makers):
            return made
        if not all(v.is_python_constant() for v in (made, *args, *kwargs.values())):
            return made
        text = made.as_python_constant()
        if type(text) is not str or "ocl" not in text or _traces_torch(tx):
            return made
        values = [v.as_python_constant() for v in args]
        named = {name: v.as_python_constant() for name, v in kwargs.items()}
        return module.ConstantVariable.create(as_program(self.fn, values, named))

    kind.call_function = call_function


def _change_tensors(module: types.ModuleType) -> None:
    """x.is_cuda and x.type(), as names.py has them for tensors: whoever asks."""
    kind = module.TensorVariable
    on_cuda, name_type = kind.method_attr_is_cuda, kind.method_type

    @functools.wraps(on_cuda)
    def method_attr_is_cuda(self: Any, tx: Any) -> Any:
        if self.device is not None and self.device.type == "ocl":
            return module.VariableTracker.build(tx, True)
        return on_cuda(self, tx)

    @functools.wraps(name_type)
    def method_type(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        made = name_type(self, tx, *args, **kwargs)
        if made is None or not made.is_python_constant():
            return made
        return module.VariableTracker.build(tx, tensor_types.cudas(made.as_python_constant()))

    kind.method_attr_is_cuda = method_attr_is_cuda
    kind.method_type = method_type


def _traces_torch(tx: Any) -> bool:
    return is_of_torch(tx.f_globals.get("__name__", ""))


#: Modules of torch, each with what changes it once it is imported.
PATCHES = {
    "torch._dynamo.variables.builtin": _change_texts,
    "torch._dynamo.variables.constant": _change_devices,
    "torch._dynamo.variables.tensor": _change_tensors,
}
