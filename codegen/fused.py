"""FusedOptimizers.cpp: the fused optimisers, `fused` of the table.

Each takes its learning rate as a number or, in an overload, as a tensor. Both call the function
that the table names, with the lists, the other numbers in the schema's order, and the options.
"""

from __future__ import annotations

from torchgen.api.types import kernel_signature
from torchgen.context import native_function_manager
from torchgen.model import BackendIndex, NativeFunction

from codegen.aten import OURS, Registered
from codegen.registration import BANNER

_OPTIONS = ("lr", "maximize", "grad_scale", "found_inf")


def fused_source(registered: list[Registered], index: BackendIndex) -> str:
    """The file's text."""
    return "\n".join(
        [
            BANNER + "#include <ATen/core/Tensor.h>",
            "",
            *(f'#include "ops/{root}.h"' for root in sorted({r.root for r in registered})),
            '#include "ops/optimizer/FusedOptimizer.h"',
            f"\nnamespace {OURS} {{\n",
            *(_function(r, index) for r in registered),
            f"}}  // namespace {OURS}\n",
        ]
    )


def _function(registered: Registered, index: BackendIndex) -> str:
    function: NativeFunction = registered.primary
    arguments = function.func.arguments.flat_all
    lists = [a.name for a in arguments if str(a.type) == "Tensor[]"]
    numbers = [a.name for a in arguments if a.name not in (*lists, *_OPTIONS)]
    is_tensor = any(a.name == "lr" and str(a.type) == "Tensor" for a in arguments)
    rate = "0, lr" if is_tensor else "lr, {}"
    with native_function_manager(function):
        head = kernel_signature(function, index).defn(name=registered.kernel.kernel)
    return (
        f"{head} {{\n"
        f'  fused::{registered.entry.fused}("{function.func.name.name}", {{{", ".join(lists)}}},\n'
        f"    {{{', '.join(numbers)}}}, {{{rate}, grad_scale, found_inf, maximize}});\n"
        "}\n"
    )
