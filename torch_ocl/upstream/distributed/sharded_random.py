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
        return tracker._device.type == "ocl" and local_tensor_mode() is None

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


def _places(spec: Any) -> list[torch.Tensor]:
    """Which indices a rank has in each dimension, where some of its shards are strided."""
    places = [torch.arange(size) for size in spec.shape]
    at = spec.mesh.get_coordinate()
    for number, placement in enumerate(spec.placements):
        d = getattr(placement, "dim", None)
        if d is not None:
            row = places[d].view([1] * d + [-1])
            shards, _ = placement._split_tensor(row, spec.mesh.size(number), with_padding=False)
            places[d] = shards[at[number]].flatten()
    return places


class _OfTheWhole(TorchDispatchMode):
    """A random op on a shard draws as the op on the whole tensor would."""

    def __init__(self, spec: Any) -> None:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        super().__init__()
        self.whole = list(spec.shape)
        if any(type(placement).__name__ == "_StridedShard" for placement in spec.placements):
            places = _places(spec)
            self.shape = tuple(map(len, places))
            ends = [int(place.max()) + 1 if len(place) else 0 for place in places]
            # Each along its own dimension: indexing broadcasts them.
            shapes = ([-1] + [1] * (len(places) - 1 - d) for d in range(len(places)))
            columns = (place.view(shape) for place, shape in zip(places, shapes, strict=True))
            self.part = tuple(column.to(spec.mesh.device_type) for column in columns)
        else:
            found = compute_local_shape_and_global_offset(spec.shape, spec.mesh, spec.placements)
            self.shape = tuple(found[0])
            ends = [at + n for n, at in zip(*found, strict=True)]
            self.part = tuple(slice(at, at + n) for n, at in zip(*found, strict=True))
        if self.whole:
            self.whole[0] = ends[0]  # nothing after the shard's last row is needed
        self.is_part = self.shape != tuple(self.whole) and 0 not in self.shape

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.is_part:
            return func(*args, **kwargs)
        if func in _FACTORIES and tuple(args[0]) == self.shape:
            return func(self.whole, *args[1:], **kwargs)[self.part].clone()
        if func not in (*_LIKE, *_IN_PLACE) or tuple(args[0].shape) != self.shape:
            return func(*args, **kwargs)
        shard = args[0]
        whole = shard.new_zeros(self.whole)
        if func in _IN_PLACE:
            func(whole, *args[1:], **kwargs)
            return shard.copy_(whole[self.part])
        whole[self.part] = shard
        results = func(whole, *args[1:], **kwargs)
        if isinstance(results, torch.Tensor):
            return self._of_shard(results, shard)
        return tuple(self._of_shard(result, shard) for result in results)

    def _of_shard(self, result: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
        part = torch.empty_like(shard, dtype=result.dtype)
        return part.copy_(result[self.part])


#: Modules of torch, each with what changes it once it is imported.
PATCHES = {"torch.distributed.tensor._random": change_tracker}
