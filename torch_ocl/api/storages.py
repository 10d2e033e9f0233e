"""The typed storages of old, torch.ocl.FloatStorage and so on: TypedStorage asks a device's module
for them by name."""

import torch
from torch._utils import classproperty
from torch.storage import (
    _dtype_to_storage_type_map,
    _LegacyStorage,
    _warn_typed_storage_removal,
)


class _OclLegacyStorage(_LegacyStorage):
    """As torch.cuda's: nothing that shares or maps host memory."""

    @classproperty
    def dtype(cls) -> torch.dtype:
        _warn_typed_storage_removal()
        return cls._dtype

    @classmethod
    def from_buffer(cls, *args, **kwargs):
        _warn_typed_storage_removal()
        raise RuntimeError("from_buffer: Not available for ocl storage")

    @classmethod
    def _new_with_weak_ptr(cls, *args, **kwargs):
        raise RuntimeError("_new_with_weak_ptr: Not available for ocl storage")

    @classmethod
    def _new_shared_filename(cls, manager, obj, size, *, device=None, dtype=None):
        raise RuntimeError("_new_shared_filename: Not available for ocl storage")


def legacy_classes() -> dict[str, type]:
    """One for each dtype that has an old name. Their module is what tells their device."""
    return {
        name: type(name, (_OclLegacyStorage,), {"__module__": "torch.ocl", "_dtype": dtype})
        for dtype, name in _dtype_to_storage_type_map().items()
    }
