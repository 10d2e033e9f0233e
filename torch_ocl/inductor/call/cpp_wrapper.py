"""The C++ that calls a graph's kernels: torch.compile's cpp_wrapper, and AOTInductor's models.

It calls the C interface of csrc/aoti, whose header kernels.h has what is written here by name.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V

from torch_ocl.inductor.call import cache, runtime

try:  # a buffer that knows whether the code is for a package
    from torch._inductor.utils import make_codegen_buffer
except ImportError:  # a torch that create() refuses
    make_codegen_buffer = IndentedBuffer

# The ends of raw string literals: no kernel has them in it.
_OPEN, _CLOSE = 'R"OCL(', ')OCL"'
# Compilers must take literals of 64 KiB, and join adjacent ones.
_LONGEST_LITERAL = 60_000


class OclCppWrapper(CppWrapperCpu):
    """See CppWrapperCpu, which knows one device beside the CPU: self.device."""

    def __init__(self) -> None:
        self.device = "ocl"
        super().__init__()
        self.ocl_programs: dict[int, runtime.Program] = {}
        self.ocl_comments: dict[str, list[str]] = {}
        self.ocl_templates: list[str] = []

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: PythonWrapperCodegen | None,
        partition_signatures: Any = None,
    ) -> OclCppWrapper:
        """Raises RuntimeError where torch's own wrapper lacks the places for a device's kernels."""
        if not hasattr(CppWrapperCpu, "_codegen_entry_impl_prologue"):
            raise RuntimeError(
                "on ocl, inductor's cpp_wrapper and AOTInductor need PyTorch 2.13 or a newer one: "
                f"this is {torch.__version__}"
            )
        # Subgraphs are written into their graph's function, as upstream has it.
        return OclCppWrapper()

    # --- headers
    @staticmethod
    def get_device_include_path_jit(device: str) -> str:
        # Ours goes first, whatever devices there are: it has torch's own class of models with this
        # device in it (csrc/aoti/model.h).
        ours = f"#include <torch_ocl/aoti/wrapper.h>  // {cache.cpp_interface()}"
        theirs = "" if device == "ocl" else CppWrapperCpu.get_device_include_path_jit(device)
        return f"{ours}\n{theirs}"

    @staticmethod
    def get_device_include_path_aot(device: str) -> str:
        ours = "#include <torch_ocl/aoti/model.h>"
        theirs = "" if device == "ocl" else CppWrapperCpu.get_device_include_path_aot(device)
        return f"{ours}\n{theirs}"

    # --- kernels
    def add_kernel(self, device: int, kernel: runtime.Kernel, comments: list[str]) -> None:
        """Takes a kernel, and what is said of it."""
        program = self.ocl_programs.setdefault(device, runtime.Program(device))
        program.kernels.append(kernel)
        self.ocl_comments[kernel.name] = [f"//{line.lstrip('#')}" for line in comments]

    def _codegen_entry_impl_prologue(self) -> None:
        for device, program in self.ocl_programs.items():
            groups = program.groups()
            for members in groups:  # while the compiler is at work
                runtime.start_building(device, members, expanded=V.graph.aot_mode)
            if len(groups) < 2:
                continue  # built by the first launch
            texts = ", ".join(f"{members[0].name}_program" for members in groups)
            index = "this->device_idx_" if V.graph.aot_mode else device
            self.prefix.writeline(f"static const AOTIOclProgram programs_{device}[] = {{{texts}}};")
            self.prefix.writeline(f"static std::atomic<uint64_t> built_{device}{{0}};")
            self.prefix.writeline(
                f"torch_ocl::build_once(built_{device}, {index}, programs_{device}, {len(groups)});"
            )

    def finalize_prefix(self) -> None:
        super().finalize_prefix()
        prior, self.prefix = self.prefix, make_codegen_buffer()
        for program in self.ocl_programs.values():
            for members in program.groups():
                self._declare(members)
        for lines in self.ocl_templates:
            self.prefix.splice(lines)
        self.prefix.splice(prior)

    def _declare(self, members: list[runtime.Kernel]) -> None:
        """A program's text, and what is to be known of its kernels."""
        program = f"{members[0].name}_program"
        self.prefix.writeline(f"static const AOTIOclProgram {program} = {{")
        self.prefix.writeline(f"    {_text(members[0].name)},")
        # A model's text is whole: the library that loads it may have other headers.
        source = runtime.source_of(members, expanded=V.graph.aot_mode)
        for start in range(0, len(source), _LONGEST_LITERAL):
            _verbatim(self.prefix, source[start : start + _LONGEST_LITERAL])
        self.prefix.writeline("};")
        for kernel in members:
            self.prefix.writelines(self.ocl_comments[kernel.name])
            checks = [f"{{{_text(text)}, {int(message)}}}" for text, message in kernel.sites]
            if checks:
                joined = ", ".join(checks)
                self.prefix.writeline(
                    f"static const AOTIOclCheck {kernel.name}_checks[] = {{{joined}}};"
                )
            sizes = ", ".join(f"{{{value}, {int(number)}}}" for number, value in kernel.sizes)
            fields = [
                _text(kernel.name),
                f"&{program}",
                _text(kernel.origin),
                kernel.tensors,
                _text(kernel.kinds),
                f"{kernel.name}_checks" if checks else "nullptr",
                len(checks),
                _text(kernel.form),
                kernel.width,
                kernel.group,
                kernel.lines,
                sizes,
                kernel.work,
            ]
            values = ", ".join(map(str, fields))
            self.prefix.writeline(f"static const AOTIOclKernel {kernel.name}_info = {{{values}}};")
            # Never destroyed: what it holds on to may be gone when the process ends. A model has
            # its kernels as members.
            self.prefix.writeline_jit(
                f"static auto& {kernel.name} = *new torch_ocl::Kernel(nullptr);"
            )

    def _generate_kernel_call_helper(
        self,
        kernel_name: str,
        call_args: Any,
        *,
        device: Any = None,
        arg_types: Any = None,
        **kwargs: Any,
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        if device.type != "ocl":
            super()._generate_kernel_call_helper(
                kernel_name, call_args, device=device, arg_types=arg_types, **kwargs
            )
            return
        tensors, numbers = [], []
        for argument, kind in zip(call_args, arg_types, strict=True):
            if kind is None:
                tensors.append(str(argument))
                continue
            letter, dtype = kind
            value = str(argument)
            if dtype is not None:
                value = f"number_{next(self.arg_var_id)}"
                self.codegen_tensor_item(dtype, str(argument), value)
            numbers.append(f"torch_ocl::{'number' if letter == 'l' else 'real'}({value})")
        aot = V.graph.aot_mode
        kernel = f"kernels.{kernel_name}" if aot else kernel_name
        index = "this->device_idx_" if aot else device.index or 0
        self.writeline(
            f"{kernel}.launch({kernel_name}_info, {index}, "
            f"{{{', '.join(tensors)}}}, {{{', '.join(numbers)}}});"
        )

    # --- products and convolutions (templates/template.py)
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
        code = make_codegen_buffer()
        code.writelines([f"//{line.lstrip('#')}" for line in comments])
        if kind == "fused_product":
            own = [*map(_number, settings), "0, nullptr, nullptr, nullptr, 0, 0"]
        else:
            *lists, groups, channels_last = settings
            names = [f"{name}_{part}" for part in ("stride", "padding", "dilation")]
            for array, values in zip(names, lists, strict=True):
                joined = ", ".join(map(str, values))
                code.writeline(f"static const int64_t {array}[] = {{{joined}}};")
            own = ["1, 0", str(len(lists[0])), *names, str(groups), str(int(channels_last))]
        code.writeline(f"static torch_ocl::Fused {name}({{{_text(name)}, {_text(origin)},")
        for start in range(0, len(epilogue.source), _LONGEST_LITERAL):
            _verbatim(code, epilogue.source[start : start + _LONGEST_LITERAL])
        code.writeline(f", {epilogue.lanes}, {', '.join(own)}}});")
        self.ocl_templates.append(code.getvalue())

    def call_template(
        self, name: str, inputs: list[str | None], tensors: list[str], numbers: list[str]
    ) -> None:
        given = ", ".join(x or "nullptr" for x in inputs)
        lists = f"{{{', '.join(tensors)}}}, {{{', '.join(numbers)}}}"
        self.writeline(f"{name}.run({given}, {lists});")

    def call_product(
        self, op: str, out: str, inputs: list[str], scalars: tuple[float, float]
    ) -> None:
        a, b, *c = inputs
        arguments = [out, *c, a, b]
        if c:
            arguments += map(_number, reversed(scalars))  # beta, alpha
        self._call_op(f"{op}_out", arguments)

    def call_convolution(self, out: str, inputs: list[str], arguments: dict[str, Any]) -> None:
        x, weight, *bias = inputs
        if bias:
            self.writeline(f"auto&& {out}_addend = {bias[0]};")  # which may be a temporary
            self.writeline(f"AtenTensorHandle {out}_bias = {out}_addend;")
        words = [x, weight, f"&{out}_bias" if bias else "nullptr"]
        axes = len(arguments["stride"])
        lists = [arguments["stride"], arguments["padding"], arguments["dilation"], (0,) * axes]
        texts = [
            f"torch_ocl::Integers<{axes}>{{{', '.join(map(str, values))}}}.values, {axes}"
            for values in lists
        ]
        words += [*texts[:3], "0", texts[3], str(arguments["groups"]), f"&{out}_handle"]
        self.writeline(f"AtenTensorHandle {out}_handle;")
        self._call_op("convolution", words)
        self.writeline(f"RAIIAtenTensorHandle {out}({out}_handle);")

    def _call_op(self, name: str, arguments: list[str]) -> None:
        call = f"aoti_torch_ocl_{name}({', '.join(arguments)})"
        self.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK({call});")

    # --- tensors
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
        same = allocation_shape is None or tuple(allocation_shape) == tuple(shape)
        if device.type != "ocl" or is_pinned or not same:
            return super().make_allocation(
                name, device, dtype, shape, stride, allocation_shape, is_pinned
            )
        sizes, strides = (
            self.codegen_int_array_var(
                self.codegen_shape_tuple(values),
                self.wrapper_call.writeline,
                known_statically=self.is_statically_known_list_of_ints(values),
                graph=self.get_codegened_graph(),
            )
            for values in (shape, stride)
        )
        index = self._device_index(device)
        self.wrapper_call.writeline(f"AtenTensorHandle {name}_handle;")
        self.wrapper_call.writeline(
            f"AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_ocl_empty_strided({len(shape)}, {sizes}, "
            f"{strides}, {self.codegen_dtype(dtype)}, {index}, &{name}_handle));"
        )
        return f"RAIIAtenTensorHandle {name}({name}_handle);"

    def _device_index(self, device: torch.device) -> str:
        index = str(device.index or 0)
        if hasattr(self, "codegen_device_idx"):
            return self.codegen_device_idx(device, index)
        return "this->device_idx_" if V.graph.aot_mode else index  # before torch 2.13

    # --- ops
    def _generate_scatter_fallback(self, *args: Any, **kwargs: Any) -> None:
        with self._checked():
            super()._generate_scatter_fallback(*args, **kwargs)

    def _generate_index_put_fallback(self, *args: Any, **kwargs: Any) -> None:
        with self._checked():
            super()._generate_index_put_fallback(*args, **kwargs)

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        """Looks at the error codes of calls that upstream leaves alone."""
        prior = self.writeline

        def writeline(line: Any) -> None:
            if isinstance(line, str) and line.startswith("aoti_torch_") and line.endswith(");"):
                line = f"AOTI_TORCH_ERROR_CODE_CHECK({line[:-1]});"
            prior(line)

        self.writeline = writeline
        try:
            yield
        finally:
            self.writeline = prior

    def write_wrapper_decl(self) -> None:
        # Models count a device's constants by their place among all: those on the CPU come last.
        constants = V.graph.constants
        on_device = {n: t for n, t in constants.items() if t.device.type != "cpu"}
        rest = {n: t for n, t in constants.items() if n not in on_device}
        constants.clear()
        constants.update(on_device | rest)
        super().write_wrapper_decl()

    def make_zero_buffer(self, name: str) -> str:
        return f"AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_zero_({name}.get()));"


def _text(value: str) -> str:
    """A literal of C."""
    return json.dumps(value)


def _number(value: float) -> str:
    """This writes the same double."""
    if math.isfinite(value):
        return repr(float(value))
    return "NAN" if math.isnan(value) else ("-" if value < 0 else "") + "INFINITY"


def _verbatim(code: IndentedBuffer, text: str) -> None:
    """A raw literal, whose lines stay as they are."""
    code.writeline(_OPEN + text + _CLOSE)
