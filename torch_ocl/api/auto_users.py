"""The modules and optimisers that take part in a function of torch.ocl.graphs.auto(), as a part of
its forms (auto_forms.py).
"""

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as nn_module
from torch.optim import optimizer as optim

from torch_ocl.api.auto_forms import EXACT, PARTS_OF_MODULES, Refused, Values

#: Parameters are compared for all modules and optimisers at once.
_LEFT_OUT = PARTS_OF_MODULES | {"_parameters"}
_MODULE_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class Users:
    """The modules that run and the optimisers that step while the function does."""

    def __init__(self) -> None:
        self.modules: dict[int, torch.nn.Module] = {}
        self.optimizers: dict[int, torch.optim.Optimizer] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Adds those of the calling thread."""
        thread = threading.get_ident()

        def of_module(module: torch.nn.Module, _: Any) -> None:
            if threading.get_ident() == thread:
                self.modules[id(module)] = module

        def of_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if threading.get_ident() == thread:
                self.optimizers[id(optimizer)] = optimizer

        hooks = [
            nn_module.register_module_forward_pre_hook(of_module),
            optim.register_optimizer_step_pre_hook(of_optimizer),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def add(self, other: "Users") -> None:
        self.modules.update(other.modules)
        self.optimizers.update(other.optimizers)

    def parameters(self) -> dict[int, torch.Tensor]:
        of_modules = (m._parameters.values() for m in self.modules.values())
        found = {id(p): p for ps in of_modules for p in ps if p is not None}
        for optimizer in self.optimizers.values():
            found.update((id(p), p) for g in optimizer.param_groups for p in g["params"])
        return found

    def form(self, values: Values) -> Hashable:
        """Their part of a form, whose other values are there."""
        parts: list[Hashable] = []
        of = values.of
        for module in self.modules.values():
            kind = type(module)
            parts += kind, values.members(kind, 0)
            _add_attributes(parts, module.__dict__, of)
        for optimizer in self.optimizers.values():
            if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
                raise Refused("an optimiser has hooks, which a replay would not run")
            for group in optimizer.param_groups:
                parts.extend(of(v) for k, v in group.items() if k != "params")
            for state in optimizer.state.values():
                parts.extend(v.data_ptr() for v in state.values() if isinstance(v, torch.Tensor))
        for p in self.parameters().values():
            if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
                raise Refused("a parameter has hooks, which a replay would not run")
            parts.append((p.data_ptr(), p.requires_grad, p.grad is None))
        return tuple(parts)

    def check(self) -> None:
        """Raises Refused for what no capture can have."""
        if nn_module._has_any_global_hook() or (
            optim._global_optimizer_pre_hooks or optim._global_optimizer_post_hooks
        ):
            raise Refused("there are hooks of all modules, which a replay would not run")
        for optimizer in self.optimizers.values():
            for p, state in optimizer.state.items():
                for name, value in state.items():
                    if isinstance(value, torch.Tensor) and value.device != p.device:
                        kind = type(optimizer).__name__
                        raise Refused(
                            f"{kind} keeps {name!r} on the host: give it capturable=True or "
                            "fused=True"
                        )


def _add_attributes(
    parts: list[Hashable], owned: dict[str, Any], of: Callable[[Any], Hashable]
) -> None:
    """A module's mode and numbers, such as a dropout's, its parts and buffers."""
    if any(map(owned.get, _MODULE_HOOKS)):
        raise Refused("a module has hooks, which a replay would not run")
    for name, value in owned.items():
        if name in _LEFT_OUT:
            continue
        if type(value) in EXACT:
            parts.append(value)
        elif name == "_modules":
            parts.append(tuple(map(id, value.values())))  # which the module keeps
        elif name == "_buffers":
            parts.extend(b.data_ptr() if b is not None else None for b in value.values())
        else:
            parts.append(of(value))
