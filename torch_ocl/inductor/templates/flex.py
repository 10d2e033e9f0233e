"""flex_attention, on the attention engine: the user's functions in front of its kernels.

Upstream's lowerings (torch/_inductor/kernel/flex) fill in templates of Triton. Here ops of this
package take their source (csrc/ops/attention/FlexAttention.cpp). What it has to define is in
kernels/attention/modification.clh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.codegen.common import Kernel, KernelArgs
from torch._inductor.kernel.flex import common
from torch._inductor.kernel.flex.flex_attention import process_joint_outputs, validate_joint_graph
from torch._inductor.lowering import fallback_handler, lowerings, to_dtype
from torch._inductor.virtualized import V

from torch_ocl.inductor import device as devices
from torch_ocl.inductor.call import runtime
from torch_ocl.inductor.collect.collector import Collector
from torch_ocl.inductor.collect.expressions import cast, unwrap
from torch_ocl.inductor.collect.ops import Overrides
from torch_ocl.inductor.plan.access import Lanes
from torch_ocl.inductor.text.code import Code
from torch_ocl.inductor.text.indices import Names
from torch_ocl.inductor.text.program import helpers_of
from torch_ocl.inductor.text.render import Renderer
from torch_ocl.inductor.types import c_type, compute_dtype
from torch_ocl.inductor.values import Value, temporaries

# The parameters of the user's functions, as upstream calls them.
_PLACES = {"b": "b", "h": "h", "m": "q", "n": "k"}
_MOST_COLUMNS = 256  # of a head


class _Function(Collector, Kernel):
    """One of the user's functions."""

    def __init__(self, device: torch.device, args: KernelArgs, dtype: torch.dtype) -> None:
        super().__init__(args, increase_kernel_count=False)
        self.start()
        self.device, self.dtype = device, dtype
        self.index_torch_dtype = torch.int64

    @staticmethod
    def prepare_indexing(index: sympy.Expr) -> sympy.Expr:
        return index

    def create_cse_var(self, name: str, *args: Any, **kwargs: Any) -> Value:
        return Value(name, kwargs.get("dtype") or torch.float32, "constant", attrs={"value": 0})

    def load(self, name: str, index: sympy.Expr) -> Value:
        if name in _PLACES:
            # Lanes are queries side by side.
            return self.emit("parameter", torch.int32, name=_PLACES[name], lanes=name == "m")
        if name in ("score", "slope"):
            return self.emit("parameter", self.dtype, name=name, lanes=True)
        return super().load(name, index)

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        """Indices past an end are that end's: nothing is read outside of what is captured."""
        if not (lower or upper) or expr not in temporaries(expr):
            return
        value = self.cse.varname_map[expr.name]
        if value.name in self.checked:
            return
        last = self.index_value(size - 1, torch.int64)
        index = Overrides.minimum(cast(value, torch.int64), last)
        self.checked[value.name] = unwrap(Overrides.maximum(index, 0))

    def run(self, buffer: Any) -> Any:
        """The value that a graph's output is computed by."""
        data = buffer.data
        if isinstance(data, ir.InputBuffer):
            return unwrap(data.make_loader()(()))
        return unwrap(data.inner_fn(()))

    def add_to(self, buffer: Any) -> None:
        """Adds to the gradient of a captured tensor, which is new and contiguous."""

        def place(index: Sequence[sympy.Expr]) -> sympy.Expr:
            return sum(i * stride for i, stride in zip(index, buffer.get_stride(), strict=True))

        buffer.data.store_output(buffer.name, place, [])


@dataclass
class _Modification:
    """The source of a modification, and what its functions read besides scores and places."""

    source: str
    captured: list[Any]
    numbers: list[sympy.Expr]


class _Functions:
    """The functions of one modification."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, compute_dtype(dtype)
        self.args = KernelArgs()
        self.parts: set[str] = set()
        self.texts: list[str] = []
        index = device.index or 0
        # The queries of a vector, where scores have them in their lanes.
        self.width = 1
        if devices.is_cpu_form(index):
            self.width = devices.vector_bytes(index) // self.dtype.itemsize

    def placeholders(self, *names: str) -> list[Any]:
        """The parameters of a graph."""
        dtypes = {"score": self.dtype, "slope": self.dtype}
        return [
            common.create_placeholder(name, dtypes.get(name, torch.int32), self.device)
            for name in names
        ]

    def add(self, name: str, parameters: str, buffer: Any, to: torch.dtype | None) -> None:
        """A function that gives a graph's output, or adds to the gradients that `buffer` lists."""
        function = _Function(self.device, self.args, self.dtype)
        result = None
        with V.graph.set_current_device(self.device), function:
            if to is None:
                for gradient in buffer:
                    function.add_to(gradient)
            else:
                result = cast(function.run(buffer), to)
        self.parts |= function.parts
        self._write(name, parameters, function, result, 1)
        if self.width > 1 and result is not None:
            self._write(f"{name}_lanes", parameters, function, result, self.width)

    def _write(
        self, name: str, parameters: str, function: _Function, result: Value | None, width: int
    ) -> None:
        names = Names(
            torch.int64, function.pointer_of, function.memory_of, function.rename_indexing
        )
        r, lines = Renderer(Lanes({}, None, width), names), Code(initial_indent=1)
        r.statements(function.items, lines)
        if result is not None:
            lines.writeline(f"return {r.operand(result, width)};")
        kind = "void" if result is None else c_type(result.dtype, width)
        queries = c_type(torch.int32, width)
        places = f"const int b, const int h, const {queries} q, const int k"
        scores = c_type(self.dtype, width)
        signature = f"{parameters.format(T=scores, places=places)} CAPTURED_SIGNATURE"
        self.texts.append(f"static inline {kind} {name}({signature}) {{\n{lines.getvalue()}}}")

    def modification(self, **defines: bool) -> _Modification:
        """All of them."""
        defines["MODIFIED_LANES"] = self.width > 1
        read = {str(inner): name for name, inner in self.args.input_buffers.items()}
        written = [str(a) for a in self.args.output_buffers.values()]
        numbers = {name: expression for expression, name in self.args.sizevars.items()}
        pointers = [*((p, "const ") for p in read), *((p, "") for p in written)]
        signature = [f"global {const}char* {p}" for p, const in pointers]
        parameters = [f"global const char *{p}_base, const ulong {p}_offset" for p in read]
        added = [
            f"global char *{p}_base, const ulong {p}_offset, const ulong {p}_copy" for p in written
        ]
        declared = [f"global const char* const {p} = {p}_base + {p}_offset;" for p in read]
        declared += [
            f"global char* const {p} = {p}_base + {p}_offset + OWN_COPY * {p}_copy;"
            for p in written
        ]
        longs = [f"const long {name}" for name in numbers]
        lists = {
            "SIGNATURE": [*signature, *longs],
            "PARAMETERS": [*parameters, *added, *longs],
            "": [*(p for p, _ in pointers), *numbers],
        }
        lines = runtime.prelude_lines(sorted(self.parts))
        for suffix, words in lists.items():
            name = f"CAPTURED_{suffix}".rstrip("_")
            lines.append(f"#define {name} {''.join(f', {word}' for word in words)}".rstrip())
        lines.append(f"#define CAPTURED_DECLARATIONS {' '.join(declared)}".rstrip())
        lines += [f"#define {name} 1" for name, there in defines.items() if there]
        source = "\n".join([*lines, *helpers_of("".join(self.texts)), *self.texts, ""])
        return _Modification(
            source, [_buffer(name) for name in read.values()], list(numbers.values())
        )


def _buffer(name: str) -> Any:
    """A buffer of the graph, as it lies in memory."""
    graph = V.graph
    if name in graph.name_to_buffer:
        return ir.TensorBox.create(graph.name_to_buffer[name])
    if name in graph.graph_inputs:
        return graph.graph_inputs[name]
    constant = graph.constants[name]
    sizes, strides = graph.static_sizes_strides(constant)
    layout = ir.FixedLayout(constant.device, constant.dtype, sizes, strides)
    return ir.TensorBox.create(ir.ConstantBuffer(name=name, layout=layout))


@dataclass
class _BlockMask:
    """The parts of upstream's tuple that kernels take."""

    tensors: list[Any]  # counts, indices; those of the full blocks, or None
    sizes: list[int]
    graph: Any

    def __init__(self, block_mask: Sequence[Any]) -> None:
        # After two lengths, those by queries, then those by keys, then what other backends take.
        self.tensors = list(block_mask[2:6])
        self.sizes = [V.graph.sizevars.guard_int(size) for size in block_mask[-3:-1]]
        self.graph = block_mask[-1]


def _order(node: Any) -> list[int]:
    """The dimensions of a result that lies as `node` does, from the outermost one on. The last one
    is innermost, as upstream has it."""
    inner_first = ir.get_fill_order(node.get_stride(), V.graph.sizevars.shape_env)
    return [d for d in reversed(inner_first) if d != 3] + [3]


def _check(query: Any, key: Any, value: Any) -> None:
    dtypes = {node.get_dtype() for node in (query, key, value)}
    if len(dtypes) > 1:
        raise ValueError(f"flex_attention on ocl takes one dtype, got {sorted(map(str, dtypes))}")
    for node in (query, value):
        columns = V.graph.sizevars.guard_int(node.get_size()[-1])
        if columns > _MOST_COLUMNS:
            raise NotImplementedError(
                f"flex_attention on ocl: heads of {columns} columns, of {_MOST_COLUMNS} at most"
            )


def _read(others: Sequence[Any]) -> list[Any]:
    """The tensors that functions capture, in memory and as they will lie there."""
    realized = common.maybe_realize(list(others))
    common.freeze_irnodes(realized)
    return list(realized)


def _mask(functions: _Functions, graph: Any, others: Sequence[Any]) -> None:
    places = functions.placeholders(*_PLACES)
    buffer = common.build_subgraph_buffer([*places, *others], graph)
    functions.add("mask_mod", "{places}", buffer, torch.bool)


def _score(functions: _Functions, graph: Any, others: Sequence[Any]) -> None:
    inputs = functions.placeholders("score", *_PLACES)
    buffer = common.build_subgraph_buffer([*inputs, *others], graph)
    functions.add("score_mod", "const {T} score, {places}", buffer, functions.dtype)


def forward(
    query: Any,
    key: Any,
    value: Any,
    subgraph: Any,
    block_mask: Sequence[Any],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Sequence[Any],
    mask_mod_other_buffers: Sequence[Any],
) -> tuple[Any, Any, Any]:
    """The lowering of torch.ops.higher_order.flex_attention: out, logsumexp, maxima."""
    _check(query, key, value)
    mask = _BlockMask(block_mask)
    query, key, value, *blocks = common.maybe_realize([query, key, value, *mask.tensors])
    score_others, mask_others = _read(score_mod_other_buffers), _read(mask_mod_other_buffers)
    functions = _Functions(query.get_device(), query.get_dtype())
    _score(functions, subgraph, score_others)
    _mask(functions, mask.graph, mask_others)
    maxima = bool(kernel_options.get("OUTPUT_MAX", False))
    made = functions.modification(MODIFIED_MAXIMA=maxima)
    op = fallback_handler(torch.ops.ocl.flex_attention.default, add_to_fallback_set=False)
    return tuple(
        op(
            query, key, value, float(scale), made.source, *blocks, *mask.sizes,
            made.captured or None, made.numbers or None, _order(query), maxima,
        )
    )  # fmt: skip


def backward(
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    grad_out: Any,
    grad_logsumexp: Any,
    fw_graph: Any,
    joint_graph: Any,
    block_mask: Sequence[Any],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Sequence[Any],
    mask_mod_other_buffers: Sequence[Any],
) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    """The lowering of torch.ops.higher_order.flex_attention_backward: the gradients of query, key,
    value and of what score_mod captures, None where none is wanted."""
    _check(query, key, value)
    mask = _BlockMask(block_mask)
    if grad_out is None:
        grad_out = lowerings[torch.ops.aten.zeros_like.default](out)
    nodes = [query, key, value, out, logsumexp, grad_out, grad_logsumexp, *mask.tensors]
    query, key, value, *rest = common.maybe_realize(nodes)
    of_results, blocks = rest[:4], rest[4:]
    score_others, mask_others = _read(score_mod_other_buffers), _read(mask_mod_other_buffers)

    functions = _Functions(query.get_device(), query.get_dtype())
    _score(functions, fw_graph, score_others)
    _mask(functions, mask.graph, mask_others)
    joint_graph.graph_module.graph.eliminate_dead_code()
    validate_joint_graph(joint_graph.graph_module.graph)
    inputs = functions.placeholders("score", *_PLACES, "slope")
    outputs = common.build_subgraph_buffer([*inputs, *score_others], joint_graph)
    joint = process_joint_outputs(outputs, len(inputs))
    parameters = "const {T} score, {places}, const {T} slope"
    functions.add("score_slope", parameters, joint.grad_input, functions.dtype)
    wanted = [i for i, gradient in enumerate(joint.captured_grads) if gradient is not None]
    if wanted:
        functions.add("add_captured_slopes", parameters, joint.captured_grads_compute, None)
    made = functions.modification(
        MODIFIED_SLOPES=True,
        MODIFIED_LSE=grad_logsumexp is not None,
        CAPTURED_SLOPES=bool(wanted),
    )

    op = fallback_handler(torch.ops.ocl.flex_attention_backward.default, add_to_fallback_set=False)
    grad_query, grad_key, grad_value, captured = op(
        query, key, value, *of_results, float(scale), made.source, *blocks, *mask.sizes,
        made.captured, [score_others[i] for i in wanted], made.numbers,
        _order(query), _order(key), _order(value),
    )  # fmt: skip
    if not V.graph.sizevars.evaluate_expr(sympy.Eq(query.get_size()[0], key.get_size()[0])):
        total = lowerings[torch.ops.aten.sum.dim_IntList]
        grad_key, grad_value = (total(g, [0], keepdims=True) for g in (grad_key, grad_value))
    gradients: list[Any] = [None] * len(joint.captured_grads)
    for i, gradient in zip(wanted, captured, strict=True):
        gradients[i] = to_dtype(gradient, score_others[i].get_dtype())
    return grad_query, grad_key, grad_value, tuple(gradients)


def _dense(like: torch.Tensor, sizes: Sequence[Any], order: Sequence[int]) -> torch.Tensor:
    strides, stride = [1] * len(sizes), 1
    for d in reversed(order):
        strides[d] = stride
        stride = stride * sizes[d]
    return like.new_empty_strided(sizes, strides)


@torch.library.register_fake("ocl::flex_attention")
def _forward_fake(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, ...]:
    rows, order = query.shape[:3], rest[-2]
    out = _dense(query, (*rows, value.shape[3]), order)
    statistics = (query.new_empty(rows, dtype=torch.float32) for _ in range(2))
    return out, *statistics


@torch.library.register_fake("ocl::flex_attention_backward")
def _backward_fake(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any
) -> tuple[Any, ...]:
    sinks, _, *orders = rest[-5:]
    gradients = [
        _dense(x, (query.shape[0], *x.shape[1:]), order)
        for x, order in zip((query, key, value), orders, strict=True)
    ]
    return *gradients, [x.new_empty(x.shape, dtype=torch.float32) for x in sinks]
