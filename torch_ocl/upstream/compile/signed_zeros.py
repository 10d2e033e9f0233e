"""Compiled functions tell -0.0 from 0.0.

Dynamo's guard on a number is `==`, to which both zeros are equal. So a function that was compiled
for one was called for the other, and copysign or a quotient had the wrong sign. Symbols have one
zero only. So a zero is no symbol, as NaN and infinities are none (wrap_symfloat() of
torch/_dynamo/variables/builder.py). Programs that do not use ocl keep upstream's guards.
"""

import functools
import math
from types import ModuleType
from typing import Any

import torch


def _signs(value: Any) -> Any:
    """The signs of a value's zeros; None where it has none."""
    if isinstance(value, float):
        return math.copysign(1.0, value) if value == 0 else None
    if isinstance(value, complex):
        return _signs((value.real, value.imag))
    if isinstance(value, (tuple, list)):
        signs = tuple(map(_signs, value))
        return signs if any(sign is not None for sign in signs) else None
    return None


def change_guards(module: ModuleType) -> None:
    """A guard on a number that is zero compares the sign, after upstream's guard has passed."""
    kind = module.GuardBuilder
    upstream = kind.EQUALS_MATCH

    @functools.wraps(upstream)
    def EQUALS_MATCH(self: Any, guard: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N802
        upstream(self, guard, *args, **kwargs)
        if not torch.ocl.is_initialized():
            return
        signs = _signs(self.get(guard))
        if signs is None:
            return
        code = [f"the signs of the zeros in {self.arg_ref(guard)} are {signs}"]
        self.get_guard_manager(guard).add_lambda_guard(
            _check(signs), module.get_verbose_code_parts(code, guard), guard.user_stack
        )

    kind.EQUALS_MATCH = EQUALS_MATCH


def _check(signs: Any) -> Any:
    if isinstance(signs, float):  # the frequent case: a module may have many zeros
        copysign = math.copysign
        return lambda value: copysign(1.0, value) == signs
    return lambda value: _signs(value) == signs


def change_symbols(module: ModuleType) -> None:
    """A float that is zero is a constant, which has the guard on its sign."""
    kind = module.VariableBuilder
    upstream = kind.wrap_symfloat

    @functools.wraps(upstream)
    def wrap_symfloat(self: Any, value: float) -> Any:
        if value != 0 or not torch.ocl.is_initialized():
            return upstream(self, value)
        with torch._dynamo.config.patch(specialize_float=True):
            return upstream(self, value)

    kind.wrap_symfloat = wrap_symfloat


#: Modules of torch, each with what changes it once it is imported.
PATCHES = {
    "torch._dynamo.guards": change_guards,
    "torch._dynamo.variables.builder": change_symbols,
}
