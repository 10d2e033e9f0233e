"""Loads and stores as OpenCL C: of one element, of neighbours, or of places apart."""

from __future__ import annotations

import torch
from torch._inductor.virtualized import V

from torch_ocl.inductor.text.indices import needs_one_value
from torch_ocl.inductor.text.operands import Operands
from torch_ocl.inductor.types import TAGS, c_type, compute_dtype, converted, mask_for
from torch_ocl.inductor.values import Store, Value


class Memory:
    """Writes what operands read and store."""

    def __init__(self, operands: Operands) -> None:
        self._of = operands

    def load(self, value: Value, width: int) -> str:
        name = value.attrs["name"]
        dtype = value.attrs.get("memory_dtype") or V.graph.get_dtype(name)
        tag, pointer, index = TAGS[dtype], self._of.names.pointer_of(name), value.index
        mask = self._of.mask()
        if width == 1:
            text = f"LOAD({tag}, {pointer}, {self._of.index(index, value.args, False)})"
        elif self._of.lanes.stride(index) == 1 and not any(map(self._of.varies, value.args)):
            place = self._of.index(index, value.args, False)
            if mask is not None:
                self._of.need(f"DEFINE_MASKED_READ({tag}, {width})")
                allowed = self._of.operand(mask, width)
                text = f"masked_read_{tag}_{width}({pointer}, {place}, {allowed})"
            else:
                text = f"READ({tag}, {width}, {pointer}, {place})"
        else:
            places = self._of.index(index, value.args, True)
            if needs_one_value(index):
                places = f"({self._of.index_type(width)})({places})"
            if mask is not None:
                allowed = mask_for(self._of.operand(mask, width), self._of.index_dtype, width)
                places = f"({allowed} ? {places} : ({self._of.index_type(width)})(0))"
            size = "long" if self._of.index_dtype == torch.int64 else "int"
            self._of.need(f"DEFINE_GATHER({tag}, {width}, {size})")
            text = f"gather_{tag}_{width}_{size}({pointer}, {places})"
        if dtype == torch.bool:
            return f"(-convert_int{width}({text}))" if width > 1 else text
        return text

    def stored(self, value: Value, dtype: torch.dtype, width: int) -> str:
        """A value as dtype.clh's stores take it."""
        text = self._of.operand(value, width)
        if dtype == torch.bool:
            text = converted(text, value.dtype, torch.bool, width)
            return f"convert_uchar{width}({text} & 1)" if width > 1 else f"(uchar)({text} != 0)"
        return converted(text, value.dtype, compute_dtype(dtype), width)

    def store(self, store: Store) -> list[str]:
        """The statements of a store."""
        dtype = store.memory_dtype or V.graph.get_dtype(store.name)
        tag, pointer = TAGS[dtype], self._of.names.pointer_of(store.name)
        index = store.index
        varies = any(map(self._of.varies, (store.value, *store.args)))
        stride = self._of.lanes.stride(index)
        if store.mode == "atomic_add":
            return self._atomic(store, tag, pointer, varies or stride != 0)
        if self._of.width == 1 or (stride == 0 and not varies):
            place = self._of.index(index, store.args, False)
            return [f"STORE({tag}, {pointer}, {place}, {self.stored(store.value, dtype, 1)});"]
        text = self.stored(store.value, dtype, self._of.width)
        if stride == 1 and not any(map(self._of.varies, store.args)):
            place = self._of.index(index, store.args, False)
            return [f"WRITE({tag}, {self._of.width}, {pointer}, {place}, {text});"]
        if stride == 0 and not any(map(self._of.varies, store.args)):
            place = self._of.index(index, store.args, False)
            return [f"STORE({tag}, {pointer}, {place}, ({text}).s{self._of.width - 1:x});"]
        places = self._of.index(index, store.args, True)
        if needs_one_value(index):
            places = f"({self._of.index_type(self._of.width)})({places})"
        size = "long" if self._of.index_dtype == torch.int64 else "int"
        self._of.need(f"DEFINE_SCATTER({tag}, {self._of.width}, {size})")
        return [f"scatter_{tag}_{self._of.width}_{size}({pointer}, {places}, {text});"]

    def _atomic(self, store: Store, tag: str, pointer: str, wide: bool) -> list[str]:
        def update(place: str, text: str) -> str:
            at = f"{pointer} + STORAGE_SIZE({tag}) * (ulong)({place})"
            return f"ATOMIC(add, {tag})({at}, {text});"

        dtype = V.graph.get_dtype(store.name)
        if self._of.width == 1 or not wide:
            place = self._of.index(store.index, store.args, False)
            return [update(place, self.stored(store.value, dtype, 1))]
        places = self._of.index(store.index, store.args, True)
        text = self.stored(store.value, dtype, self._of.width)
        lines = [f"const {self._of.index_type(self._of.width)} places_ = {places};"]
        kind = "uchar" if dtype == torch.bool else c_type(compute_dtype(dtype))
        lines.append(f"const {kind}{self._of.width} values_ = {text};")
        lines += [update(f"places_.s{i:x}", f"values_.s{i:x}") for i in range(self._of.width)]
        return ["{", *lines, "}"]
