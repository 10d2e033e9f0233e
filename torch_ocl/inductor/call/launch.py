"""A kernel's description, and the line that calls it."""

from __future__ import annotations

from typing import Any, Protocol

import sympy
import torch
from torch._inductor.virtualized import V

from torch_ocl.inductor.forms.form import Layout
from torch_ocl.inductor.text.program import Parameters


class Launched(Protocol):
    """A kernel that is complete."""

    device: torch.device
    parts: set[str]
    sites: Any

    @property
    def layout(self) -> Layout:
        """The text, and how it is launched."""

    @property
    def parameters(self) -> Parameters:
        """Lists what a call passes."""


def description_of(kernel: Launched) -> dict[str, Any]:
    """A kernel as runtime.Kernel has it, without its name, source and origin."""
    layout, parameters = kernel.layout, kernel.parameters
    return {
        "parts": tuple(sorted(kernel.parts)),
        "tensors": len(parameters.tensors),
        "kinds": parameters.kinds,
        "sites": tuple(kernel.sites),
        "form": layout.form,
        "width": layout.width,
        "group": layout.group,
        "lines": layout.lines,
        "sizes": parameters.places(layout.sizes),
        "work": layout.work,
    }


def write_call(name: str, parameters: Parameters, device: torch.device) -> None:
    """Writes the call of a kernel into the graph's code."""
    wrapper = V.graph.wrapper_code
    args: list[Any] = [outer for _, outer in parameters.tensors]
    # C++ gets, for what is no tensor, a kind and the dtype of the tensor that it is read from.
    types: list[Any] = [None] * len(args)
    for number in parameters.numbers:
        if isinstance(number.outer, sympy.Expr):
            for symbol in number.outer.free_symbols:
                wrapper.ensure_size_computed(symbol)
            args.append(wrapper.codegen_sizevar(number.outer))
        else:
            args.append(str(number.outer))
        types.append((number.kind, number.dtype))
    wrapper.generate_kernel_call(name, args, device=device, triton=False, arg_types=types)
