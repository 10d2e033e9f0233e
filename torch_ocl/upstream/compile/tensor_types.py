"""isinstance(x, torch.FloatTensor) and its kin in compiled code.

Dynamo compares the dtype alone, so a tensor of any device is one of the CPU's types, and none of
its device's. For tensors on `ocl` the answer is that of the code when it is run.
"""

import functools
import types
import typing
from typing import Any

from torch_ocl.api.tensor_types import TensorType


def _flattened(kinds: Any) -> list[Any]:
    """isinstance()'s second argument as a list of types."""
    if isinstance(kinds, types.UnionType):
        kinds = typing.get_args(kinds)
    if not isinstance(kinds, tuple):
        return [kinds]
    return [one for kind in kinds for one in _flattened(kind)]


def change_builtins(module: types.ModuleType) -> None:
    """Dynamo's isinstance()."""
    kind = module.BuiltinVariable
    upstream = kind.call_isinstance
    of_the_cpu = module.tensortype_to_dtype

    @functools.wraps(upstream)
    def call_isinstance(self: Any, tx: Any, arg: Any, kinds_variable: Any) -> Any:
        is_tensor = isinstance(arg, module.variables.TensorVariable)
        if not is_tensor or getattr(arg.device, "type", "") != "ocl":
            return upstream(self, tx, arg, kinds_variable)
        kinds = _flattened(kinds_variable.as_python_constant())
        if any(isinstance(one, TensorType) and one.describes(arg) for one in kinds):
            return module.VariableTracker.build(tx, True)
        others = [one for one in kinds if not isinstance(one, TensorType) and one not in of_the_cpu]
        if len(others) == len(kinds):
            return upstream(self, tx, arg, kinds_variable)
        if not others:
            return module.VariableTracker.build(tx, False)
        return upstream(self, tx, arg, module.VariableTracker.build(tx, tuple(others)))

    kind.call_isinstance = call_isinstance


#: Modules of torch, each with what changes it once it is imported.
PATCHES = {"torch._dynamo.variables.builtin": change_builtins}
