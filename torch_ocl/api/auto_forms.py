"""Forms of calls: torch.ocl.graphs.auto() compares them, and so knows what a replay can stand for.

A form is a tuple that is hashed and compared. Objects are in it by identity, and tensors by their
memory. What makes a replay impossible raises Refused instead.
"""

import collections
import contextlib
import contextvars
import functools
import inspect
import operator
import sys
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._device import DeviceContext

from torch_ocl import _C
from torch_ocl.api.auto_watch import BY_NAME, Ran, state_of

PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
EXACT = frozenset({int, bool, str, bytes, type(None), torch.dtype, torch.device})
_MOST_VALUES = 2000  # of a form: comparing more would take longer than the work
_DEEPEST = 40  # values within values
_MOST_CALLS = 4  # functions that functions name: those that run are compared by themselves
_MOST_BYTES = 4096  # of an array that is compared
#: PyTorch's modules and classes are not the program's, and their state is in modes().
_NOT_COMPARED = frozenset({"torch", "torch_ocl", "builtins", "numpy"})
#: Attributes that each module has, but those that its code reads.
PARTS_OF_MODULES = frozenset(torch.nn.Module().__dict__) - {
    "training", "_modules", "_buffers", "_parameters",
}  # fmt: skip
_NUMPYS = "it may draw NumPy's random numbers, which a replay would not"
_BY_IDENTITY = (
    types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type, staticmethod,
    classmethod, property, types.MemberDescriptorType, types.GetSetDescriptorType,
)  # fmt: skip
_DESCRIPTORS = (property, types.MemberDescriptorType, types.GetSetDescriptorType)


class Refused(Exception):
    """Why a call can't be a replay."""


def on_device(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "ocl"


def is_dense(tensor: torch.Tensor) -> bool:
    return on_device(tensor) and tensor.layout == torch.strided


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class _Same:
    """An object's part of a form. Another one at its address is not the same."""

    __slots__ = ("_key", "_reference")

    def __init__(self, value: Any) -> None:
        self._key = id(value)
        try:
            self._reference = weakref.ref(value)
        except TypeError:
            self._reference = lambda: value

    def __hash__(self) -> int:
        return self._key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same) or self._key != other._key:
            return False
        value = self._reference()
        return value is not None and value is other._reference()


def modes() -> Hashable:
    """Modes that decide what an op does."""
    for i in range(torch._C._len_torch_function_stack()):
        if not isinstance(torch._C._get_function_stack_at(i), DeviceContext):
            raise Refused("a TorchFunctionMode is active, which a replay would pass by")
    if torch._C._len_torch_dispatch_stack() > 0:
        raise Refused("a TorchDispatchMode is active, which a replay would pass by")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise Refused("a transform of torch.func is active")
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        raise Refused("hooks of saved tensors are active, which a replay would pass by")
    if torch.is_autocast_enabled("ocl") and torch.is_autocast_cache_enabled():
        raise Refused("autocast around it caches weights: cache_enabled=False doesn't")
    contexts = range(torch._C._len_torch_function_stack())
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("ocl"),
        torch.get_autocast_dtype("ocl"),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.get_float32_matmul_precision(),
        _C.float32_precision("matmul"),
        _C.float32_precision("conv"),
        torch._C._get_flash_sdp_enabled(),
        torch._C._get_mem_efficient_sdp_enabled(),
        torch._C._get_math_sdp_enabled(),
        torch.get_default_dtype(),
        torch._C._get_default_device(),
        tuple(torch._C._get_function_stack_at(i).device for i in contexts),
        torch.ocl.current_stream().stream_id,
        torch.ocl.current_device(),
    )


def _owned(value: Any) -> list[tuple[str, Any]]:
    """An object's attributes, in its dictionary and in slots."""
    owned = getattr(value, "__dict__", None)
    found = list(owned.items()) if isinstance(owned, dict) else []
    for one in type(value).__mro__:
        if "__slots__" in (own := vars(one)):
            for name, slot in own.items():
                if isinstance(slot, types.MemberDescriptorType):
                    with contextlib.suppress(AttributeError):  # it isn't set yet
                        found.append((name, slot.__get__(value)))
    return found


class _Each:
    """A part of a form: the objects that it has, one by one."""

    __slots__ = ("_hash", "_objects")

    def __init__(self, objects: tuple[Any, ...]) -> None:
        self._objects = objects
        self._hash = hash(tuple(map(id, objects)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Each) or len(self._objects) != len(other._objects):
            return False
        return all(map(operator.is_, self._objects, other._objects))


class Values:
    """Values of a form, as they are at one time. What is met again was compared before."""

    def __init__(self, names: frozenset[str] = frozenset(), every_name: bool = False) -> None:
        self.left = _MOST_VALUES
        #: Names that the code around reads: of classes and modules these members count.
        self.names = names
        #: Whether it may read any other, too.
        self.every_name = every_name
        #: The memory of the device's tensors among them.
        self.storages: set[int] = set()
        #: Those that gradients are summed up in.
        self.leaves: list[torch.Tensor] = []
        self._met: dict[int, Any] = {}
        self._calls = 0
        self._functions: set[int] = set()
        self._owners: set[Any] = set()

    def of(self, value: Any, depth: int = 0) -> Hashable:
        """Itself where it is plain, the memory of a tensor, what it holds, or which one it is."""
        kind = type(value)
        if kind in EXACT:
            return kind, value
        if kind is float:
            return value.hex()  # which tells zeros apart, and finds NaN
        self.left -= 1
        if self.left < 0:
            raise Refused(f"it reads more than {_MOST_VALUES} values from around it")
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if value is sys.modules:
            raise Refused(BY_NAME)
        if isinstance(value, Iterator):
            raise Refused("it reads an iterator, which a replay would not move on")
        if depth > _DEEPEST:
            raise Refused(f"it reads values that are nested more than {_DEEPEST} deep")
        if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
            return _Same(getattr(value, "__func__", value)), self.function(value, depth)
        if not isinstance(value, (tuple, frozenset)):
            if id(value) in self._met:
                return _Same(value)
            self._met[id(value)] = value
        if isinstance(value, dict):
            return kind, tuple((_Same(k) if type(k) not in EXACT else k, self.of(v, depth + 1))
                               for k, v in value.items())  # fmt: skip
        if isinstance(value, (list, tuple, collections.deque)):
            return kind, tuple(self.of(v, depth + 1) for v in value)
        if isinstance(value, (set, frozenset)):
            return kind, frozenset(self.of(v, depth + 1) for v in value)
        if isinstance(value, bytearray):
            return kind, bytes(value)
        if isinstance(value, torch.Generator) and value.device.type == "cpu":
            return _Same(value), state_of(value)
        if isinstance(value, contextvars.ContextVar):
            return _Same(value), self.of(value.get(None), depth + 1)
        if kind.__module__.partition(".")[0] == "numpy":
            return self._of_numpy(value)
        if isinstance(value, PLAIN):
            return kind, value
        if isinstance(value, (type, types.ModuleType)):
            return _Same(value), self.members(value, depth)
        if isinstance(value, torch.optim.Optimizer):
            return _Same(value)
        return _Same(value), kind, self.attributes(value, depth), self.members(kind, depth)

    def _of_numpy(self, value: Any) -> Hashable:
        if "random" in type(value).__module__:
            raise Refused("it reads a generator of NumPy's, which a replay would not move on")
        if getattr(value, "nbytes", _MOST_BYTES + 1) > _MOST_BYTES or value.dtype.hasobject:
            raise Refused("it reads data of NumPy's, which a replay would not read again")
        return value.dtype.str, value.shape, value.tobytes()

    def members(self, owner: Any, depth: int) -> Hashable:
        """The members of a class or a module of the program's under the names that are read, and
        all functions of a class: PyTorch calls forwards by their names, and Python methods."""
        if owner in self._owners:
            return ()
        found: list[Hashable] = []
        for one in owner.__mro__ if isinstance(owner, type) else (owner,):
            home = one.__module__ if isinstance(one, type) else one.__name__
            if home == "numpy.random" or (home == "numpy" and "random" in self.names):
                raise Refused(_NUMPYS)
            if one in self._owners:
                continue
            self._owners.add(one)
            if home.partition(".")[0] in _NOT_COMPARED:
                continue
            own = vars(one)
            if isinstance(one, type):
                found.append(_Each(tuple(v for v in own.values() if isinstance(v, _BY_IDENTITY))))
            if self.every_name:
                found.append(self.others(own))
            for name in sorted(own.keys() & self.names):
                value = own[name]
                if isinstance(value, (staticmethod, classmethod)):
                    value = value.__func__
                if not isinstance(value, _DESCRIPTORS):
                    found.append((name, self.of(value, depth + 1)))
            if isinstance(one, type) and issubclass(one, torch.autograd.Function):
                # The backward runs in other threads.
                methods = (getattr(f, "__func__", f) for f in own.values())
                found.extend(
                    self.function(f, depth) for f in methods if isinstance(f, types.FunctionType)
                )
        return tuple(found)

    def others(self, own: Mapping[str, Any]) -> Hashable:
        """Values under names that don't stand in the code. Functions that run are compared."""
        return tuple(
            (name, _Same(value) if isinstance(value, _BY_IDENTITY) else self.of(value))
            for name, value in list(own.items())
            if name not in self.names and not name.startswith("__")
        )

    def tensor(self, tensor: torch.Tensor) -> Hashable:
        """The parts of a tensor that isn't copied which a captured kernel knows."""
        kind = type(tensor)
        if kind is not torch.Tensor and kind is not torch.nn.Parameter:
            return _Same(tensor)
        if tensor.layout != torch.strided:
            return _Same(tensor)
        if tensor.is_cpu:
            # One number is an argument of a kernel.
            return tensor.dtype, tensor.item() if tensor.dim() == 0 else tensor.data_ptr()
        at, start = tensor.data_ptr(), tensor.storage_offset()
        self.storages.add(at - start * tensor.element_size() if start else at)
        needs = tensor.requires_grad
        if needs and tensor.is_leaf:
            self.leaves.append(tensor)
            needs = tensor.grad is None, needs
        return at, tensor.shape, tensor.stride(), tensor.dtype, needs

    def attributes(self, value: Any, depth: int) -> Hashable:
        """An object's plain attributes and containers; those of PyTorch's own objects are not."""
        is_module = isinstance(value, torch.nn.Module)
        if is_module:
            self.left += 4  # it and its dictionaries: a large model is no reason to refuse
        if type(value).__module__.startswith(("torch.", "torch_ocl")):
            inner = getattr(value, "_surroundings", None)  # of another function of auto()
            if isinstance(inner, Surroundings):
                return inner.parts(self, depth + 1)
            return value.training if is_module else None
        return tuple(
            (name, self.of(v, depth + 1))
            for name, v in _owned(value)
            if not (is_module and name in PARTS_OF_MODULES)
        )

    def function(self, function: Any, depth: int) -> Hashable:
        """The inputs of a function that this one may call; none of a library's."""
        plain = inspect.unwrap(getattr(function, "__func__", function))
        name = getattr(plain, "__module__", None) or ""
        if name.startswith("numpy.random"):
            raise Refused(_NUMPYS)
        if id(plain) in self._functions or name.partition(".")[0] in ("torch", "torch_ocl"):
            return None
        if self._calls >= _MOST_CALLS:
            return None
        self._functions.add(id(plain))
        self._calls += 1
        parts = Surroundings(function, ()).parts(self, depth + 1)
        self._calls -= 1
        return parts


@functools.lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Global names that the code and the functions defined in it may read."""
    nested = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return tuple(sorted(set(code.co_names).union(*(_names(c) for c in nested))))


class Surroundings:
    """A function's inputs besides its arguments, as far as they show: variables of the functions
    around it, globals, defaults, the attributes of its object, and those of functions that it
    finds there."""

    def __init__(self, function: Callable[..., Any], watch: Iterable[Any]) -> None:
        self._watch = tuple(watch)
        self._bound: list[Any] = []
        while isinstance(function, functools.partial):
            self._bound += [function.args, function.keywords]
            function = function.func
        self._object = getattr(function, "__self__", None)
        if isinstance(function, torch.nn.Module):
            self._object, function = function, type(function).forward
        elif not isinstance(function, (types.FunctionType, types.MethodType)):
            self._object, function = function, type(function).__call__
        plain = inspect.unwrap(getattr(function, "__func__", function))
        self._cells = tuple(getattr(plain, "__closure__", None) or ())
        self._bound += [
            getattr(plain, "__defaults__", None),
            getattr(plain, "__kwdefaults__", None),
        ]
        code = getattr(plain, "__code__", None)
        self._globals = getattr(plain, "__globals__", {})
        self._names = _names(code) if code is not None else ()
        #: Code that was seen to run, with what it reads.
        self._ran: dict[types.CodeType, Ran] = {}
        self._all_names = frozenset(self._names)

    def add(self, ran: dict[types.CodeType, Ran]) -> bool:
        """Has forms compare what such code reads, too; False if they do."""
        new = {
            code: one
            for code, one in ran.items()
            if code not in self._ran or one.reads_more(self._ran[code])
        }
        self._ran.update(new)
        self._all_names = self._all_names.union(*(one.names for one in new.values()))
        return bool(new)

    def form(self) -> tuple[Hashable, Values]:
        values = Values(self._all_names, any(one.every_name for one in self._ran.values()))
        parts = [self.parts(values, 0)]
        for one in self._ran.values():
            space = one.namespace
            parts.append(tuple((n, values.of(space[n])) for n in one.names if n in space))
            # No namespace has what the code itself imports.
            imported = (n for n in one.imports if n not in space)
            parts.extend(values.of(sys.modules[n]) for n in imported if n in sys.modules)
            if one.every_global:
                parts.append(values.others(space))
            parts.extend(values.function(f, 0) for r in one.functions if (f := r()) is not None)
        return tuple(parts), values

    def parts(self, values: Values, depth: int) -> Hashable:
        of = values.of
        parts = [of(w() if isinstance(w, (types.FunctionType, types.MethodType)) else w)
                 for w in self._watch]  # fmt: skip
        parts.extend(of(bound, depth) for bound in self._bound)
        for cell in self._cells:
            with contextlib.suppress(ValueError):  # it isn't set yet
                parts.append(of(cell.cell_contents, depth))
        found = self._globals
        parts.extend(of(found[n], depth) for n in self._names if n in found)
        if not isinstance(self._object, types.ModuleType):
            parts.extend((name, of(v, depth)) for name, v in _owned(self._object))
        return tuple(parts)
