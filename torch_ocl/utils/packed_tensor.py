"""Weights that stay packed on a device: tensors that linear() reads as they are.

A kind of them is a class that derives from PackedTensor, and ops of the name torch_ocl::<kind>_*,
which take what a weight is made of one after the other. register() traces, differentiates and
computes them on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.nn import functional
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

_aten = torch.ops.aten

#: The dtypes that a packed tensor's numbers may have.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class PackedTensor(torch.Tensor):
    """A tensor whose numbers are made from packed parts.

    As the weight of ``linear()`` it is read as it is. Gradients go through it to the input; it has
    none itself. It can be moved, copied and saved. Other operations take its numbers, which are
    unpacked for each call. ``dtype`` is that of the numbers, and ``to(dtype)`` changes no more.

    A class is made from its parts, then its traits, then the dtype.
    """

    #: Attributes that are tensors, or None; and those that are not.
    parts: ClassVar[tuple[str, ...]]
    traits: ClassVar[tuple[str, ...]]
    #: Operations that keep a tensor packed, and functions of torch that read it, beside those here.
    packed_operations: ClassVar[dict[Any, Callable[..., Any]]] = {}
    functions: ClassVar[dict[Any, Callable[..., Any]]] = {}

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The numbers, as a plain tensor of this dtype or of the given one."""
        raise NotImplementedError

    def as_weight_of(self, input: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """The result of linear()."""
        raise NotImplementedError

    def like(
        self, change: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype | None = None
    ) -> Any:
        """A tensor with changed parts."""
        parts = [getattr(self, name) for name in self.parts]
        changed = [None if part is None else change(part) for part in parts]
        return type(self)(*changed, *self._traits(), dtype or self.dtype)

    def _traits(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.traits)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        there = [name for name in self.parts if getattr(self, name) is not None]
        return there, (*self._traits(), self.dtype)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(*(inner.get(name) for name in cls.parts), *context)

    def _stable_hash_for_caching(self) -> str:
        """Compiled code depends on this: a key for its cache."""
        there, context = self.__tensor_flatten__()
        parts = [getattr(self, name) for name in there]
        shapes = [(part.dtype, tuple(part.shape)) for part in parts]
        return f"{there}, {shapes}, {context}, {tuple(self.shape)}"

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        traits = "".join(f"{trait}, " for trait in self._traits())
        return (
            f"{type(self).__name__}({traits}shape={tuple(self.shape)}, dtype={self.dtype}, "
            f"device='{self.device}')"
        )

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        parts = tuple(getattr(self, name) for name in self.parts)
        made_from = (*parts, *self._traits(), self.dtype)
        is_parameter = isinstance(self, torch.nn.Parameter)
        return _rebuild, (_kind(self), made_from, self.requires_grad, is_parameter)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Upstream's own would make packed tensors of all results.
        with torch._C.DisableTorchFunctionSubclass():
            if func is functional.linear:
                return _linear(*args, **(kwargs or {}))
            return cls.functions.get(func, func)(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operation = cls.packed_operations.get(func) or _PACKED.get(func)
        packed = operation(*args, **kwargs) if operation else NotImplemented
        if packed is not NotImplemented:
            return return_and_correct_aliasing(func, args, kwargs, packed)
        written = [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        if any(isinstance(given.get(name), PackedTensor) for name in written):
            raise NotImplementedError(f"{func}: a packed tensor's numbers can't be written")
        plain = tree_map_only(PackedTensor, lambda tensor: tensor.dequantize(), (args, kwargs))
        return func(*plain[0], **plain[1])


def _kind(tensor: PackedTensor) -> type[PackedTensor]:
    """Its class, without what nn.Parameter may have put on top of it."""
    return next(kind for kind in type(tensor).__mro__ if "parts" in vars(kind))


def _rebuild(
    kind: type[PackedTensor], made_from: Any, requires_grad: bool, is_parameter: bool
) -> PackedTensor:
    tensor = kind(*made_from)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


torch.serialization.add_safe_globals([_rebuild])


# Operations that keep a tensor packed. NotImplemented: with these arguments they don't.


def _to_copy(tensor: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    if dtype is not None and dtype not in DTYPES:
        return NotImplemented
    kept = {name: options[name] for name in ("non_blocking",) if name in options}
    return tensor.like(lambda part: _aten._to_copy(part, device=device, **kept), dtype)


def _copy(to: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(to, PackedTensor) or not isinstance(source, PackedTensor):
        return NotImplemented
    ours, theirs = to.__tensor_flatten__(), source.__tensor_flatten__()
    if type(to) is not type(source) or (ours[0], ours[1][:-1]) != (theirs[0], theirs[1][:-1]):
        raise NotImplementedError(f"copy_: {source!r} into {to!r}")
    for name in ours[0]:
        getattr(to, name).copy_(getattr(source, name), non_blocking)
    return to


def _same_shape(tensor: Any, sizes: Any) -> Any:
    asked = [b if a == -1 else a for a, b in zip(sizes, tensor.shape, strict=False)]
    if len(sizes) != tensor.dim() or asked != list(tensor.shape):
        return NotImplemented
    return tensor.like(lambda part: part.view(part.shape))


def _like(op: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    return lambda tensor, **options: tensor.like(op)


_PACKED: dict[Any, Callable[..., Any]] = {
    _aten._to_copy.default: _to_copy,
    _aten.alias.default: _like(_aten.alias.default),
    _aten.clone.default: _like(_aten.clone.default),
    _aten.copy_.default: _copy,
    _aten.detach.default: _like(_aten.detach.default),
    _aten.view.default: _same_shape,
}


def _linear(input: Any, weight: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
    if not isinstance(weight, PackedTensor) or isinstance(input, PackedTensor):
        operands = tree_map_only(PackedTensor, lambda t: t.dequantize(), (input, weight, bias))
        return functional.linear(*operands)
    if torch.is_autocast_enabled(input.device.type):
        input = input.to(torch.get_autocast_dtype(input.device.type))
        bias = None if bias is None else bias.to(input.dtype)
    return weight.as_weight_of(input, bias)


def register(
    kind: str, sizes_of: Callable[..., tuple[Any, ...]], unpack: Callable[..., torch.Tensor]
) -> None:
    """Traces and differentiates the ops of a kind, and computes them on CPU tensors:
    <kind>_dequantize(*weight, dtype), <kind>_linear(input, *weight, bias) and
    <kind>_linear_gradient(grad, *weight).

    Args:
        kind: the name in front.
        sizes_of: the sizes of the numbers, from `weight`.
        unpack: <kind>_dequantize on the CPU.
    """
    dequantize, linear = f"torch_ocl::{kind}_dequantize", f"torch_ocl::{kind}_linear"
    gradient = f"{linear}_gradient"
    run_linear = getattr(torch.ops.torch_ocl, f"{kind}_linear")
    run_gradient = getattr(torch.ops.torch_ocl, f"{kind}_linear_gradient")

    def fake_dequantize(*given):
        *weight, dtype = given
        return weight[0].new_empty(sizes_of(*weight), dtype=dtype)

    def fake_linear(input, *given):
        return input.new_empty((*input.shape[:-1], sizes_of(*given[:-1])[0]))

    def fake_gradient(grad, *weight):
        return grad.new_empty((*grad.shape[:-1], sizes_of(*weight)[1]))

    def keep(ctx, weight):
        ctx.save_for_backward(*(part for part in weight if isinstance(part, torch.Tensor)))
        ctx.others = [None if isinstance(part, torch.Tensor) else (part,) for part in weight]

    def kept(ctx):
        tensors = iter(ctx.saved_tensors)
        return [next(tensors) if other is None else other[0] for other in ctx.others]

    def linear_backward(ctx, grad):
        weight = kept(ctx)
        of_input = of_bias = None
        if ctx.needs_input_grad[0]:
            of_input = run_gradient(grad, *weight)
        if ctx.needs_input_grad[-1]:
            of_bias = grad.flatten(0, -2).sum(0) if grad.dim() > 1 else grad
        return of_input, *[None] * len(weight), of_bias

    def gradient_backward(ctx, grad):
        weight = kept(ctx)
        return run_linear(grad, *weight, None), *[None] * len(weight)

    for name, fake in (
        (dequantize, fake_dequantize),
        (linear, fake_linear),
        (gradient, fake_gradient),
    ):
        torch.library.register_fake(name, fake)
    torch.library.register_autograd(
        linear, linear_backward, setup_context=lambda ctx, inputs, output: keep(ctx, inputs[1:-1])
    )
    torch.library.register_autograd(
        gradient, gradient_backward, setup_context=lambda ctx, inputs, output: keep(ctx, inputs[1:])
    )

    def linear_on_cpu(input, *given):
        *weight, bias = given
        return functional.linear(input, unpack(*weight, input.dtype), bias)

    def gradient_on_cpu(grad, *weight):
        return grad @ unpack(*weight, grad.dtype)

    for name, kernel in (
        (dequantize, unpack),
        (linear, linear_on_cpu),
        (gradient, gradient_on_cpu),
    ):
        torch.library.register_kernel(name, "cpu", kernel)
