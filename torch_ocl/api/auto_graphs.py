"""A function that captures itself after some equal calls: torch.ocl.graphs.auto().

A replay runs none of the function's Python. So it may take the place of a call only where Python
would do the same again. What decides that is compared at every call: the arguments' layouts, plain
values and tensors that the function reads, the modules and optimisers that it was seen to use, and
PyTorch's modes. They are a call's form, and each form has a graph of its own.
"""

import collections
import contextlib
import inspect
import logging
import types
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten, tree_unflatten

from torch_ocl.api.graphs import OclGraph, graph, graph_pool_handle, is_current_stream_capturing

_log = logging.getLogger("torch_ocl.graphs")
_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
_CONTAINERS = (list, tuple, dict)
_FUNCTIONS = (types.FunctionType, types.MethodType)
_MOST_WAITING = 64  # forms that were seen too seldom for a capture


class _Refused(Exception):
    """Why a form can't be replayed."""


def _on_device(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "ocl"


def _is_dense(tensor: torch.Tensor) -> bool:
    return _on_device(tensor) and tensor.layout == torch.strided


def _place(tensor: torch.Tensor) -> Hashable:
    """The parts of a tensor that isn't copied which a captured kernel knows."""
    if tensor.layout != torch.strided:
        return id(tensor)
    if tensor.is_cpu and tensor.dim() == 0:
        return tensor.dtype, tensor.item()  # an argument of a kernel
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _modes() -> Hashable:
    """Modes that decide what an op does."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("ocl"),
        torch.get_autocast_dtype("ocl"),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.get_default_dtype(),
        torch.ocl.current_stream().stream_id,
        torch.ocl.current_device(),
    )


class _Users:
    """The modules that run and the optimisers that step while the function does."""

    def __init__(self) -> None:
        self.modules: dict[int, torch.nn.Module] = {}
        self.optimizers: dict[int, torch.optim.Optimizer] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        def of_module(module: torch.nn.Module, _: Any) -> None:
            self.modules[id(module)] = module

        def of_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            self.optimizers[id(optimizer)] = optimizer

        hooks = [
            torch.nn.modules.module.register_module_forward_pre_hook(of_module),
            register_optimizer_step_pre_hook(of_optimizer),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def parameters(self) -> dict[int, torch.Tensor]:
        found = {id(p): p for m in self.modules.values() for p in m.parameters(recurse=False)}
        for optimizer in self.optimizers.values():
            found.update((id(p), p) for g in optimizer.param_groups for p in g["params"])
        return found

    def form(self) -> Hashable:
        parts: list[Hashable] = []
        for module in self.modules.values():
            parts.append(module.training)
            parts.extend(b.data_ptr() for b in module._buffers.values() if b is not None)
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                parts.extend(_value(v) for k, v in group.items() if k != "params")
            for state in optimizer.state.values():
                parts.extend(v.data_ptr() for v in state.values() if isinstance(v, torch.Tensor))
        for p in self.parameters().values():
            parts.append((p.data_ptr(), p.requires_grad, p.grad is None))
        return tuple(parts)

    def check(self) -> None:
        for optimizer in self.optimizers.values():
            for p, state in optimizer.state.items():
                for name, value in state.items():
                    if isinstance(value, torch.Tensor) and value.device != p.device:
                        kind = type(optimizer).__name__
                        raise _Refused(
                            f"{kind} keeps {name!r} on the host: give it capturable=True or "
                            "fused=True"
                        )


def _value(value: Any) -> Hashable:
    """A value's part of a form: itself where it is plain, the memory of a tensor."""
    if isinstance(value, torch.Tensor):
        return _place(value)
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, _CONTAINERS):
        leaves, form = tree_flatten(value)
        return str(form), tuple(_value(leaf) for leaf in leaves)
    return id(value)


def _names(code: types.CodeType) -> set[str]:
    """Global names that the code and the functions defined in it may read."""
    nested = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*(_names(c) for c in nested))


class _Surroundings:
    """A function's inputs besides its arguments, as far as they show: variables of the functions
    around it, globals, and the attributes of its object."""

    def __init__(self, function: Callable[..., Any], watch: Iterable[Any]) -> None:
        self._watch = tuple(watch)
        self._object = getattr(function, "__self__", None)
        if isinstance(function, torch.nn.Module):
            self._object, function = function, type(function).forward
        plain = inspect.unwrap(getattr(function, "__func__", function))
        self._cells = tuple(getattr(plain, "__closure__", None) or ())
        code = getattr(plain, "__code__", None)
        self._globals = getattr(plain, "__globals__", {})
        self._names = sorted(_names(code)) if code is not None else []

    def form(self) -> Hashable:
        parts: list[Hashable] = [
            _value(w() if isinstance(w, _FUNCTIONS) else w) for w in self._watch
        ]
        for cell in self._cells:
            with contextlib.suppress(ValueError):  # it isn't set yet
                parts.append(_value(cell.cell_contents))
        parts.extend(_value(self._globals[n]) for n in self._names if n in self._globals)
        attributes = getattr(self._object, "__dict__", {})
        parts.extend(_value(v) for v in attributes.values())
        return tuple(parts)


class _Captured:
    """A form's graph, its inputs and its results."""

    def __init__(self, owner: "AutoGraph", leaves: list[Any], form: Any, fixed: set[int]) -> None:
        self.fixed = fixed  # arguments that are the same tensors at all calls
        self.parameters = list(owner.users.parameters().values())
        before = [p.grad for p in self.parameters]
        tensors = {i: t for i, t in enumerate(leaves) if isinstance(t, torch.Tensor)}
        self.static = {i: t if i in fixed else t.detach().clone() for i, t in tensors.items()}
        versions = {i: t._version for i, t in self.static.items()}
        given = [self.static.get(i, leaf) for i, leaf in enumerate(leaves)]
        arguments, named = tree_unflatten(given, form)
        self.graph = OclGraph()
        try:
            with graph(self.graph, owner.pool, torch.ocl.current_stream()):
                results = owner.function(*arguments, **named)
            self.results, self.form = tree_flatten(results)
            self.written = [i for i, t in self.static.items() if t._version != versions[i]]
            self._check(tensors)
        except BaseException:
            for p, gradient in zip(self.parameters, before, strict=True):
                p.grad = gradient
            raise
        self.gradients = [p.grad for p in self.parameters]
        # A sum goes on in the memory of before. Others begin with None, or were dropped.
        self.sums = [a is not None and a is b for a, b in zip(before, self.gradients, strict=True)]
        self.sources = {id(t): i for i, t in self.static.items()}

    def _check(self, tensors: dict[int, torch.Tensor]) -> None:
        for result in self.results:
            if not isinstance(result, torch.Tensor):
                continue
            if result.requires_grad or not _on_device(result):
                raise _Refused("a result has a history of gradients, or isn't on the device")
        copied = [i for i in self.written if i not in self.fixed]
        memory = [t.untyped_storage().data_ptr() for t in tensors.values()]
        if copied and len(set(memory)) != len(memory):
            raise _Refused("arguments that are written share memory")

    def takes(self) -> bool:
        """Whether sums of gradients lie where they did."""
        rows = zip(self.parameters, self.gradients, self.sums, strict=True)
        return all(p.grad is gradient for p, gradient, is_sum in rows if is_sum)

    def replay(self, leaves: list[Any]) -> Any:
        for i, static in self.static.items():
            if static is not leaves[i]:
                static.copy_(leaves[i])
        self.graph.replay()
        for i in self.written:
            if self.static[i] is not leaves[i]:
                leaves[i].copy_(self.static[i])
        for p, gradient in zip(self.parameters, self.gradients, strict=True):
            if p.grad is not gradient:
                p.grad = gradient
        results = [
            t
            if not isinstance(t, torch.Tensor)
            else leaves[self.sources[id(t)]]
            if id(t) in self.sources
            else t.clone()
            for t in self.results
        ]
        return tree_unflatten(results, self.form)


class AutoGraph:
    """The callable that torch.ocl.graphs.auto() returns."""

    def __init__(
        self, function: Callable[..., Any], after: int, watch: Iterable[Any], most: int
    ) -> None:
        if after < 1 or most < 1:
            raise ValueError(f"auto: after and most must be positive, got {after} and {most}")
        self.function = function
        self.after = after
        self.most = most
        #: Calls that were replays.
        self.replays = 0
        #: The memory of all its graphs.
        self.pool = graph_pool_handle()
        #: Modules and optimisers that were seen at work.
        self.users = _Users()
        #: Why the last form that was refused can't be replayed; None if none was.
        self.reason: str | None = None
        self._surroundings = _Surroundings(function, watch)
        self._graphs: dict[Hashable, _Captured | None] = {}  # None: it is never captured
        self._seen: collections.OrderedDict[Hashable, tuple[int, list[Any]]] = (
            collections.OrderedDict()
        )

    @property
    def graphs(self) -> int:
        """How many graphs there are."""
        return sum(g is not None for g in self._graphs.values())

    def reset(self) -> None:
        """Forgets all graphs and gives their memory back."""
        for captured in self._graphs.values():
            if captured is not None:
                captured.graph.reset()
        self._graphs.clear()
        self._seen.clear()
        self.reason = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling() or is_current_stream_capturing():
            return self.function(*arguments, **named)
        leaves, form = tree_flatten((arguments, named))
        try:
            key = self._key(leaves, form)
        except _Refused as why:
            return self._eager(str(why), arguments, named)
        if key in self._graphs:
            captured = self._graphs[key]
            if captured is None:
                return self.function(*arguments, **named)
            if any(leaves[i] is not captured.static[i] for i in captured.fixed):
                return self._capture(key, leaves, form, set())
            if captured.takes():
                self.replays += 1
                return captured.replay(leaves)
            return self.function(*arguments, **named)
        count, fixed = self._look_up(key, leaves)
        if count >= self.after and self.graphs < self.most:
            return self._capture(key, leaves, form, fixed)
        return self._warm_up(key, arguments, named)

    def _key(self, leaves: list[Any], form: Any) -> Hashable:
        parts: list[Hashable] = []
        memory: dict[int, int] = {}
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                if not isinstance(leaf, _PLAIN):
                    raise _Refused(f"an argument is {type(leaf).__name__}")
                parts.append((type(leaf), leaf))
            elif type(leaf) is not torch.Tensor or not _is_dense(leaf):
                raise _Refused("an argument isn't a dense tensor of the device")
            elif leaf.requires_grad and torch.is_grad_enabled():
                raise _Refused("an argument needs a gradient: see make_graphed_callables()")
            else:
                # Which arguments share memory, and so may be written through each other.
                owner = memory.setdefault(leaf.untyped_storage().data_ptr(), len(memory))
                parts.append((leaf.shape, leaf.stride(), leaf.dtype, leaf.device.index, owner))
        if torch.is_autocast_enabled("ocl") and torch.is_autocast_cache_enabled():
            raise _Refused("autocast around it caches weights: cache_enabled=False doesn't")
        return form, tuple(parts), _modes(), self._surroundings.form(), self.users.form()

    def _look_up(self, key: Hashable, leaves: list[Any]) -> tuple[int, set[int]]:
        """How often the form was seen, and the arguments that were the same tensors."""
        count, last = self._seen.pop(key, (0, []))
        fixed = {i for i, known in enumerate(last) if known is not None and known() is leaves[i]}
        known = [
            weakref.ref(t) if isinstance(t, torch.Tensor) and (count == 0 or i in fixed) else None
            for i, t in enumerate(leaves)
        ]
        self._seen[key] = count + 1, known
        if len(self._seen) > _MOST_WAITING:
            self._seen.popitem(last=False)
        return count, fixed

    def _warm_up(self, key: Hashable, arguments: Any, named: Any) -> Any:
        """A call that shows who takes part, and whether the host waits."""
        mode = torch.ocl.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught, self.users.watched():
            warnings.simplefilter("always")
            torch.ocl.set_sync_debug_mode("warn")
            try:
                results = self.function(*arguments, **named)
            finally:
                torch.ocl.set_sync_debug_mode(mode)
        waits = [w for w in caught if "synchroniz" in str(w.message)]
        for w in caught:
            if w not in waits or mode != 0:
                warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
        if waits:
            self._refuse(key, "the host waits for the device, or reads from it")
        return results

    def _capture(self, key: Hashable, leaves: list[Any], form: Any, fixed: set[int]) -> Any:
        self._seen.pop(key, None)
        arguments, named = tree_unflatten(leaves, form)
        try:
            self.users.check()
            captured = _Captured(self, leaves, form, fixed)
        except (_Refused, RuntimeError) as why:
            self._refuse(key, str(why))
            return self.function(*arguments, **named)
        self._graphs[key] = captured
        self.replays += 1
        return captured.replay(leaves)

    def _refuse(self, key: Hashable, reason: str) -> None:
        self._graphs[key] = None
        self._say(reason)

    def _eager(self, reason: str, arguments: Any, named: Any) -> Any:
        self._say(reason)
        return self.function(*arguments, **named)

    def _say(self, reason: str) -> None:
        if reason != self.reason:
            self.reason = reason
            _log.info("not captured: %s", reason)
