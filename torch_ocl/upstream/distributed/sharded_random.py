"""Random numbers of DTensors: those that one device makes of the whole tensor with the same seed.

Upstream gives each shard counters of its own, so a sharded tensor has other numbers than a whole
one. Here an element's number depends on its place in the whole tensor alone: a rank draws the rows
up to the end of its shard, and keeps the shard."""

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN = torch.ops.aten
_FACTORIES = (_ATEN.rand.default, _ATEN.randn.default)
#: Ops whose results lie as their first argument does.
_LIKE = (
    _ATEN.native_dropout.default,
    _ATEN.rand_like.default,
    _ATEN.randn_like.default,
    _ATEN.randint_like.default,
    _ATEN.randint_like.low_dtype,
    _ATEN.bernoulli.default,
)
_IN_PLACE = (_ATEN.normal_.default, _ATEN.uniform_.default, _ATEN.bernoulli_.float)
#: Counters that an op takes, whatever the tensor's size (kIncrement of csrc/engine/random).
_COUNTERS = 4


def change_tracker(module: ModuleType) -> None:
    """`module` has upstream's tracker of generators, which DTensor's random ops run under."""
    from torch.distributed._local_tensor import local_tensor_mode

    kind = module.OffsetBasedRNGTracker
    region, before, after = (
        kind._distribute_region,
        kind._set_pre_op_offset,
        kind._set_post_op_offset,
    )

    def is_ours(tracker: Any, spec: Any) -> bool:
        return tracker._device.type == "ocl" and _is_box(spec) and local_tensor_mode() is None

    @contextlib.contextmanager
    @functools.wraps(region)
    def _distribute_region(self: Any, spec: Any, generator: Any = None) -> Iterator[None]:
        whole = self.distribute_region_enabled and is_ours(self, spec)
        with (
            region(self, spec, generator),
            _OfTheWhole(spec) if whole else contextlib.nullcontext(),
        ):
            yield

    @functools.wraps(before)
    def _set_pre_op_offset(self: Any, state: Any, spec: Any) -> None:
        if not is_ours(self, spec):
            before(self, state, spec)

    @functools.wraps(after)
    def _set_post_op_offset(self: Any, state: Any, spec: Any, old_offset: Any) -> None:
        if is_ours(self, spec):
            state.offset = old_offset + _COUNTERS
        else:
            after(self, state, spec, old_offset)

    kind._distribute_region = _distribute_region
    kind._set_pre_op_offset = _set_pre_op_offset
    kind._set_post_op_offset = _set_post_op_offset


def _is_box(spec: Any) -> bool:
    """Whether a rank's elements are a range in each dimension. Those of strided shards aren't."""
    return not any(type(placement).__name__ == "_StridedShard" for placement in spec.placements)


class _OfTheWhole(TorchDispatchMode):
    """A random op on a shard draws as the op on the whole tensor would."""

    def __init__(self, spec: Any) -> None:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        super().__init__()
        shape, start = compute_local_shape_and_global_offset(spec.shape, spec.mesh, spec.placements)
        self.shape, self.whole = tuple(shape), list(spec.shape)
        self.box = tuple(slice(at, at + n) for at, n in zip(start, shape, strict=True))
        if self.whole:
            self.whole[0] = self.box[0].stop  # nothing after the shard's last row is needed
        self.is_part = self.shape != tuple(self.whole) and 0 not in self.shape

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.is_part:
            return func(*args, **kwargs)
        if func in _FACTORIES and tuple(args[0]) == self.shape:
            return func(self.whole, *args[1:], **kwargs)[self.box].clone()
        if func not in (*_LIKE, *_IN_PLACE) or tuple(args[0].shape) != self.shape:
            return func(*args, **kwargs)
        shard = args[0]
        whole = shard.new_zeros(self.whole)
        if func in _IN_PLACE:
            func(whole, *args[1:], **kwargs)
            return shard.copy_(whole[self.box])
        whole[self.box] = shard
        results = func(whole, *args[1:], **kwargs)
        if isinstance(results, torch.Tensor):
            return self._part(results, shard)
        return tuple(self._part(result, shard) for result in results)

    def _part(self, result: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
        part = torch.empty_like(shard, dtype=result.dtype)
        return part.copy_(result[self.box])


#: Modules of torch, each with what changes it once it is imported.
PATCHES = {"torch.distributed.tensor._random": change_tracker}
