"""Rows whose lanes run along them: passes, accumulators, what is behind the last vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy
from torch._inductor.utils import IndentedBuffer

from torch_ocl.inductor.accumulate import Accumulator
from torch_ocl.inductor.render import Renderer
from torch_ocl.inductor.stages import Item
from torch_ocl.inductor.types import c_type
from torch_ocl.inductor.values import Assert, Reduction, Store, Value

if TYPE_CHECKING:
    from torch_ocl.inductor.emit import Emitter

# Accumulators of a reduction in turns, so that a sum needn't wait for the one before.
UNROLL = 4


class Rows:
    """The part of Emitter that is about rows."""

    def row(self: Emitter) -> IndentedBuffer:
        """What is done with one row."""
        out = IndentedBuffer()
        one = self.renderer(1)
        plan = self.plan
        for value in plan.kept:
            self._declare_kept(value, out)
        for stage in range(plan.count):
            self._once(plan.outside[stage], one, out)
            self._pass(stage, one, out)
        self._once(plan.outside[plan.count], one, out)
        lines = self.declare_symbols(one, lambda root: not root.is_reduction)
        for symbol in list(self.outer_symbols):
            if not self.kernel.range_tree_nodes[symbol].root.is_reduction:
                one.symbols = {symbol: None}
                line = self.declare_symbols(one, lambda root: not root.is_reduction)
                lines += [text for text in line if text not in lines]
        whole = IndentedBuffer()
        whole.writelines(lines)
        whole.splice(out)
        return whole

    def _once(self: Emitter, items: list[Item], r: Renderer, out: IndentedBuffer) -> None:
        """What is computed once a row; of a work-group, one work-item stores it."""
        if not self.kernel.is_gpu_form:
            self.statements(items, r, out)
            return
        effects = [i for i in items if isinstance(i, Store | Assert)]
        self.statements([i for i in items if i not in effects], r, out)
        if not effects:
            return
        if self.lines > 1:
            # Another line may not have read yet what is stored over.
            out.writeline("barrier(CLK_GLOBAL_MEM_FENCE);")
        first = "lid == 0" if self.lines == 1 else "line == 0 && inside"
        with self.block(f"if ({first})", out):
            self.statements(effects, r, out)

    @property
    def _length(self: Emitter) -> int | None:
        """Of a row, if it is known."""
        assert self._row_tree is not None
        numel = self._row_tree.numel
        return int(numel) if isinstance(numel, sympy.Integer) else None

    def _chunks(self: Emitter) -> int:
        """Of a kept row: vectors that a work-item has."""
        assert self._length is not None
        return -(-(self._length // self.width) // self.group)

    def _declare_kept(self: Emitter, value: Value, out: IndentedBuffer) -> None:
        wide = self.renderer(self.width).width_of(value)
        chunks, name = self._chunks(), value.name
        if chunks:
            out.writeline(f"{c_type(value.dtype, wide)} kept_{name}[{chunks}];")
        assert self._length is not None
        tail = self._length % self.width
        if tail:
            rest = -(-tail // self.group)
            out.writeline(f"{c_type(value.dtype)} kept_{name}_rest[{rest}];")

    def _pass(self: Emitter, stage: int, one: Renderer, out: IndentedBuffer) -> None:
        items = self.plan.passes[stage]
        reductions = [i for i in items if isinstance(i, Reduction)]
        made = {red: self._accumulator(red) for red in reductions}
        length, width = self._length, self.width
        turns = UNROLL if self.kernel.is_cpu_form else 1
        if length is not None and length // width < UNROLL:
            turns = 1
        if any(red.kind.startswith(("welford", "arg")) for red in reductions):
            turns = 1
        has_tail = width > 1 and (length is None or length % width != 0)
        has_main = width == 1 or length is None or length >= width
        for accumulator in made.values():
            for part in accumulator.parts:
                at = 1 if part.is_one else width
                t, start = c_type(part.dtype, at), accumulator.start_of(part, at)
                if turns > 1:
                    out.writeline(f"{t} {part.name}_[{turns}] = {{{', '.join([start] * turns)}}};")
                else:
                    out.writeline(f"{t} {part.name}_ = {start};")
                if has_tail:
                    out.writeline(f"{c_type(part.dtype)} {part.name}_rest = {part.start};")
        if has_main:
            self._main_loop(stage, made, turns, out)
        if has_tail:
            self._rest_loop(stage, made, out)
        for accumulator in made.values():
            self._finish(accumulator, turns, has_tail, out)
        if self.kernel.is_gpu_form:
            self._across_group([*made.values()], out)
        for red, accumulator in made.items():
            self._results(red, accumulator, one, out)

    def _loop_body(
        self: Emitter,
        stage: int,
        made: dict[Reduction, Accumulator],
        width: int,
        turns: int,
        rest: bool,
    ) -> tuple[IndentedBuffer, bool]:
        r = self.renderer(width)
        end = "_rest" if rest else ""
        place = "k"
        inner = IndentedBuffer()
        items = self.plan.passes[stage]
        for value, at in self.plan.kept.items():
            if at < stage:
                r.names[value] = f"kept_{value.name}{end}[{place}]"
        self.statements(items, r, inner)
        for red, accumulator in made.items():
            suffix = "_rest" if rest else "_[u]" if turns > 1 else "_"
            names = [p.name + suffix for p in accumulator.parts]
            self._update(red, accumulator, names, r, inner, width)
        kept = [v for v, at in self.plan.kept.items() if at == stage]
        for value in kept:
            inner.writeline(f"kept_{value.name}{end}[{place}] = {value.name};")
        lines = self.declare_symbols(r, lambda root: root.is_reduction)
        whole = IndentedBuffer()
        whole.writelines(lines)
        whole.splice(inner)
        return whole, bool(self.plan.kept)

    def _main_loop(
        self: Emitter,
        stage: int,
        made: dict[Reduction, Accumulator],
        turns: int,
        out: IndentedBuffer,
    ) -> None:
        assert self._row_tree is not None
        p, width = self._row_tree.prefix, self.width
        body, _ = self._loop_body(stage, made, width, turns, False)
        t = c_type(self.kernel.index_torch_dtype)
        length = self._length
        if self.kernel.is_gpu_form:
            whole = f"({p}numel - {p}numel % {width})" if width > 1 else f"{p}numel"
            step = self.group * width
            chunks = f"({whole} + {step - 1}) / {step}" if length is None else str(self._chunks())
            if self.plan.kept:  # in registers, which have no index
                out.writeline("#pragma unroll")
            with self.block(f"for ({t} k = 0; k < {chunks}; ++k)", out):
                out.writeline(f"const {t} {p}index = (k * {self.group} + lid) * {width};")
                exact = length is not None and length // width % self.group == 0
                if exact:
                    out.splice(body)
                else:
                    with self.block(f"if ({p}index < {whole})", out):
                        out.splice(body)
            return
        chunks = str(length // width) if length is not None else f"{p}numel / {width}"
        if turns == 1:
            with self.block(f"for ({t} k = 0; k < {chunks}; ++k)", out):
                out.writeline(f"const {t} {p}index = k * {width};")
                out.splice(body)
            return
        exact = length is not None and length // width % turns == 0
        with self.block(f"for ({t} k0 = 0; k0 + {turns - 1} < {chunks}; k0 += {turns})", out):
            out.writeline("#pragma unroll")
            with self.block(f"for (int u = 0; u < {turns}; ++u)", out):
                out.writeline(f"const {t} k = k0 + u, {p}index = k * {width};")
                out.splice(body)
        if not exact:
            start = f"{chunks} / {turns} * {turns}"
            with self.block(f"for ({t} k = {start}, u = 0; k < {chunks}; ++k)", out):
                out.writeline(f"const {t} {p}index = k * {width};")
                out.splice(body)

    def _rest_loop(
        self: Emitter, stage: int, made: dict[Reduction, Accumulator], out: IndentedBuffer
    ) -> None:
        """The elements behind the last whole vector, one at a time."""
        assert self._row_tree is not None
        p, width = self._row_tree.prefix, self.width
        body, _ = self._loop_body(stage, made, 1, 1, True)
        t = c_type(self.kernel.index_torch_dtype)
        first = f"{p}numel - {p}numel % {width}"
        start, step = ("lid", str(self.group)) if self.kernel.is_gpu_form else ("0", "1")
        head = f"for ({t} k = 0, {p}index = {first} + {start}; {p}index < {p}numel; "
        with self.block(head + f"++k, {p}index += {step})", out):
            out.splice(body)

    def _finish(
        self: Emitter, accumulator: Accumulator, turns: int, has_tail: bool, out: IndentedBuffer
    ) -> None:
        """From the accumulators of a row's lanes to one, whose variables are the parts' names."""
        width, parts = self.width, accumulator.parts
        if turns > 1:
            with self.block(f"for (int u = 1; u < {turns}; ++u)", out):
                out.writelines(
                    accumulator.combine(
                        [f"{p.name}_[0]" for p in parts], [f"{p.name}_[u]" for p in parts], width
                    )
                )
        names = [f"{p.name}_[0]" if turns > 1 else f"{p.name}_" for p in parts]
        for part, name in zip(parts, names, strict=True):
            out.writeline(f"{c_type(part.dtype)} {part.name};")
        with self.block("", out):
            self._fold(accumulator, names, out)
        if has_tail:
            with self.block("", out):
                rest = [f"{p.name}_rest" for p in parts]
                out.writelines(accumulator.combine([p.name for p in parts], rest, 1))

    def _fold(
        self: Emitter, accumulator: Accumulator, names: list[str], out: IndentedBuffer
    ) -> None:
        """Halves the lanes until one is left."""
        width, parts = self.width, accumulator.parts
        names = list(names)
        for i, part in enumerate(parts):
            if part.is_one and width > 1:
                t = c_type(part.dtype, width)
                out.writeline(f"const {t} {part.name}_all = ({t})({names[i]});")
                names[i] = f"{part.name}_all"
        while width > 1:
            width //= 2
            for part, name in zip(parts, names, strict=True):
                out.writeline(f"{c_type(part.dtype, width)} {part.name}_{width} = {name}.lo;")
            with self.block("", out):
                out.writelines(
                    accumulator.combine(
                        [f"{p.name}_{width}" for p in parts], [f"{n}.hi" for n in names], width
                    )
                )
            names = [f"{p.name}_{width}" for p in parts]
        for part, name in zip(parts, names, strict=True):
            out.writeline(f"{part.name} = {name};")

    def _across_group(self: Emitter, accumulators: list[Accumulator], out: IndentedBuffer) -> None:
        """Combines those of a group's work-items: by a few of them, whose results all combine. A
        tree would meet at a barrier for each of its levels."""
        if not accumulators:
            return
        side = 16 if self.group >= 128 else 8
        parts = [part for accumulator in accumulators for part in accumulator.parts]
        for part in parts:
            self.locals.append(f"local {c_type(part.dtype)} {part.name}_shared[{self.group}];")
            out.writeline(f"{part.name}_shared[lid] = {part.name};")

        def combine(start: str, end: int, step: int) -> None:
            with self.block(f"for (int i = {start}; i < {end}; i += {step})", out):
                for accumulator in accumulators:
                    mine = [part.name for part in accumulator.parts]
                    others = [f"{part.name}_shared[i]" for part in accumulator.parts]
                    with self.block("", out):
                        out.writelines(accumulator.combine(mine, others, 1))

        out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        with self.block(f"if (lid < {side})", out):
            combine(f"lid + {side}", self.group, side)
            for part in parts:
                out.writeline(f"{part.name}_shared[lid] = {part.name};")
        out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        for part in parts:
            out.writeline(f"{part.name} = {part.name}_shared[0];")
        combine("1", side, 1)
