"""ForeachFunctions.cpp: functions over lists of tensors, `each` of the table.

A function runs a functor of kernels/multi_tensor/each.cl over its lists, many tensors per launch,
where they fit; else upstream's function, which goes tensor by tensor.
"""

from __future__ import annotations

from torchgen.api.types import kernel_signature
from torchgen.context import native_function_manager
from torchgen.model import BackendIndex, NativeFunction

from codegen.aten import OURS, UPSTREAM, Aten, Registered
from codegen.registration import BANNER


def foreach_source(registered: list[Registered], aten: Aten, index: BackendIndex) -> str:
    """The file's text."""
    roots = sorted({r.root for r in registered})
    return "\n".join(
        [
            BANNER + "#include <ATen/core/Tensor.h>",
            *(f"#include <ATen/ops/{root}_native.h>" for root in roots),
            "",
            '#include "ops/optimizer/Foreach.h"',
            *(f'#include "ops/{root}.h"' for root in roots),
            f"\nnamespace {OURS} {{\n",
            *(_function(r, aten, index) for r in registered),
            f"}}  // namespace {OURS}\n",
        ]
    )


def _function(registered: Registered, aten: Aten, index: BackendIndex) -> str:
    function: NativeFunction = registered.primary
    arguments = function.func.arguments.flat_all
    lists = [a.name for a in arguments if str(a.type) == "Tensor[]"]
    # A number, numbers or a tensor of one element; flags decide nothing here.
    extra = "".join(a.name for a in arguments if str(a.type) in ("Scalar", "Scalar[]", "Tensor"))
    slow = aten.composite[function.func.name].kernel
    with native_function_manager(function):
        head = kernel_signature(function, index).defn(name=registered.kernel.kernel)
    # A copy doesn't read what it writes.
    inputs = lists[1:] if function.func.name.name.base == "_foreach_copy" else lists
    out = "self, " if function.func.name.name.inplace else ""
    functor, operands = registered.entry.each, f"{{{', '.join(inputs)}}}"
    every = ", ".join(a.name for a in arguments)
    return (
        f"{head} {{\n"
        f"  const foreach::Extra extra{{{extra}}};\n"
        f"  if (!foreach::fits({{{', '.join(lists)}}}, extra)) {{\n"
        f"    return {UPSTREAM}::{slow}({every});\n"
        "  }\n"
        f'  return foreach::run("{functor}", {out}{operands}, extra);\n'
        "}\n"
    )
