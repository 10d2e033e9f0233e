"""The Python that calls a graph's kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.codegen.wrapper import (
    EnterDeviceContextManagerLine,
    PythonWrapperCodegen,
    SubgraphPythonWrapperCodegen,
)
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V

from torch_ocl.inductor.call import runtime


class _Calls:
    """How kernels are called and tensors made, in a graph and in its subgraphs."""

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Any, *, device: Any = None, **kwargs: Any
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        if device.type != "ocl":
            super()._generate_kernel_call_helper(  # type: ignore[misc]
                kernel_name, call_args, device=device, **kwargs
            )
            return
        self.writeline(f"{kernel_name}({', '.join(map(str, call_args))})")  # type: ignore[attr-defined]

    # --- products and convolutions (templates/template.py)
    def call_template(
        self, name: str, inputs: list[str | None], tensors: list[str], numbers: list[str]
    ) -> None:
        """Calls one with an epilogue: of its inputs, and of what the epilogue takes."""
        arguments = [*map(str, inputs), *tensors, *numbers]
        self.writeline(f"{name}({', '.join(arguments)})")  # type: ignore[attr-defined]

    def call_product(
        self, op: str, out: str, inputs: list[str], scalars: tuple[float, float]
    ) -> None:
        """Calls the eager op of a, b, and c where there is one."""
        a, b, *c = inputs
        arguments = [*c, a, b]
        if c:
            arguments += [f"alpha={scalars[0]!r}", f"beta={scalars[1]!r}"]
        call = f"extern_kernels.{op}({', '.join(arguments)}, out={out})"
        self.writeline(call)  # type: ignore[attr-defined]

    def call_convolution(self, out: str, inputs: list[str], arguments: dict[str, Any]) -> None:
        """Calls the eager op of an input, a weight, and a bias where there is one."""
        x, weight, *bias = inputs
        axes = len(arguments["stride"])
        keywords = dict(arguments, transposed=False, output_padding=(0,) * axes)
        words = [x, weight, *(bias or ["None"])]
        words += [f"{name}={value!r}" for name, value in keywords.items()]
        call = f"{out} = extern_kernels.convolution({', '.join(words)})"
        self.writeline(call)  # type: ignore[attr-defined]

    def make_allocation(
        self,
        name: str,
        device: torch.device,
        dtype: torch.dtype,
        shape: Any,
        stride: Any,
        allocation_shape: Any = None,
        is_pinned: bool = False,
    ) -> str:
        if device.type != "ocl":
            return super().make_allocation(  # type: ignore[misc, no-any-return]
                name, device, dtype, shape, stride, allocation_shape, is_pinned
            )
        text = self.codegen_python_shape_tuple  # type: ignore[attr-defined]
        made = text(allocation_shape if allocation_shape is not None else shape)
        line = f"{name} = empty_strided_ocl({made}, {text(stride)}, {dtype}, {device.index or 0})"
        if made != text(shape):
            line += f".as_strided({text(shape)}, {text(stride)})"
        return line


class _OneDevice(EnterDeviceContextManagerLine):
    """In place of a device guard, where it would take longer than a launch and change nothing."""

    def codegen(self, code: IndentedBuffer) -> None:
        code.writeline("if True:")
        code.do_indent()


class OclWrapper(_Calls, PythonWrapperCodegen):
    """The wrapper of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.ocl_kernels: dict[int, list[str]] = {}
        self.ocl_products: list[str] = []

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: PythonWrapperCodegen | None,
        partition_signatures: Any = None,
    ) -> PythonWrapperCodegen:
        if is_subgraph:
            assert subgraph_name is not None and parent_wrapper is not None
            return OclSubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return OclWrapper()

    def write_header(self) -> None:
        super().write_header()
        self.imports.writeline("from torch_ocl.inductor.call import runtime as ocl_runtime")
        self.header.writeline("empty_strided_ocl = ocl_runtime.empty_strided")
        if config.max_autotune or config.max_autotune_gemm:
            self.header.writeline("ocl_runtime.tune_products()")

    def codegen_device_guard_enter(self, device_idx: int, *args: Any, **kwargs: Any) -> None:
        if torch.ocl.device_count() > 1 or args or kwargs:
            super().codegen_device_guard_enter(device_idx, *args, **kwargs)
        else:
            self.writeline(_OneDevice(device_idx, self.last_seen_device_guard_index))
            self.last_seen_device_guard_index = device_idx

    def add_kernel(self, device: int, kernel: runtime.Kernel, comments: list[str]) -> None:
        """Takes a kernel, and what is said of it."""
        values = {f.name: getattr(kernel, f.name) for f in dataclasses.fields(kernel)}
        source = values.pop("source").replace("\\", "\\\\")
        lines = [*comments, "ocl_program.add("]
        lines += [f"    {name}={value!r}," for name, value in values.items()]
        lines += ["    source='''", *source.splitlines(), "''')"]
        self.ocl_kernels.setdefault(device, []).append("\n".join(lines))

    def add_template(
        self,
        kind: str,
        name: str,
        origin: str,
        epilogue: Any,
        settings: tuple[Any, ...],
        comments: list[str],
    ) -> None:
        """Takes a product or convolution with an epilogue, and what is said of it."""
        source = epilogue.source.replace("\\", "\\\\")
        head = f"{name} = ocl_runtime.{kind}({name!r}, {origin!r}, "
        numbers = (epilogue.lanes, len(epilogue.tensors), len(epilogue.numbers), *settings)
        lines = [*comments, f"{head}'''{source}''',", f"    {', '.join(map(repr, numbers))})"]
        self.ocl_products.append("\n".join(lines))

    def generate_after_suffix(self, result: IndentedBuffer) -> None:
        for text in self.ocl_products:
            result.splice(text)
        for device, kernels in self.ocl_kernels.items():
            result.writeline(f"ocl_program = ocl_runtime.Program({device})")
            for text in kernels:
                result.splice(text)
            result.writeline("ocl_program.finish(globals())")
        super().generate_after_suffix(result)


class OclSubgraphWrapper(_Calls, SubgraphPythonWrapperCodegen):
    """The wrapper of a part of a graph, such as a branch of torch.cond: its kernels are the whole
    graph's."""

    def add_kernel(self, device: int, kernel: runtime.Kernel, comments: list[str]) -> None:
        self.parent_wrapper.add_kernel(device, kernel, comments)

    def add_template(self, *arguments: Any) -> None:
        self.parent_wrapper.add_template(*arguments)
