"""Kernels of the user's own: torch.ocl.compile_kernel."""

import dataclasses
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from torch_ocl import _C
from torch_ocl.source_kernels import preprocessing, signature
from torch_ocl.source_kernels.arguments import LocalMemory, converter, is_struct
from torch_ocl.source_kernels.programs import LABEL, OnDevice, Program, Sizes, checked_sizes
from torch_ocl.source_kernels.signature import Parameter

__all__ = ["Kernel", "compile_kernel", "local_memory"]


def _sized(convert: Callable[[Any], bytes], type_: str, size: int) -> Callable[[Any], bytes]:
    """The converter of a struct, with a check of its bytes."""

    def checked(value: Any) -> bytes:
        converted = convert(value)
        if len(converted) != size:
            raise ValueError(f"a {type_} has {size} bytes, got {len(converted)}")
        return converted

    return checked


def _launched(kernel: Any, count: int, device: int) -> list[int]:
    """The `count` numbers that a kernel of one argument writes, whatever modes (of fake tensors,
    say) are on."""
    with _disable_current_modes():
        numbers = torch.zeros(count, dtype=torch.int32, device=f"ocl:{device}")
        kernel.launch([1], [1], (numbers.data_ptr(), numbers.nbytes))
        return list(numbers.tolist())


@dataclasses.dataclass
class _Typed:
    """A kernel's parameters on one device, what makes bytes of arguments, and where its body
    begins, if its text can be changed."""

    parameters: tuple[Parameter, ...]
    converters: list[Any]
    body: int | None


_NO_OP = (
    "a kernel of torch.ocl.compile_kernel is not an op; torch.library.custom_op makes one of the "
    "function that calls it (docs/kernels/lesson6_op.md)"
)


def _is_traced() -> bool:
    """Whether make_fx, export or torch.jit.trace records what is computed."""
    if torch._C._get_tracing_state() is not None:
        return True
    key = torch._C._TorchDispatchModeKey.PROXY
    return torch._C._get_dispatch_mode(key) is not None  # type: ignore[attr-defined]


def _device_of(arguments: Sequence[Any]) -> int:
    """The device of the first tensor, else the current one."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor) and argument.device.type == "ocl":
            return argument.device.index
    return _C.current_device()


class Kernel:
    """A compiled kernel, to be called with its arguments; see compile_kernel()."""

    def __init__(self, program: Program, name: str, device: int) -> None:
        self.name = name
        self._program = program
        self._lock = threading.Lock()
        self._on_device: dict[tuple[int, bool], OnDevice] = {}
        # By device: types may depend on what the compiler defines there.
        self._signatures: dict[int, _Typed] = {}
        self.parameters = self._signature(device).parameters

    def _signature(self, device: int) -> "_Typed":
        if (known := self._signatures.get(device)) is None:
            known = self._signatures[device] = self._typed(device)
        return known

    def _typed(self, device: int) -> "_Typed":
        read, body = self._read_parameters(device)
        parameters = tuple(self._resolved(p, device) for p in read)
        converters = []
        for p in parameters:
            try:
                converters.append(converter(p))
            except TypeError as error:
                raise self._named(error, p) from None
        self._check_structs(parameters, converters, device)
        return _Typed(parameters, converters, body)

    def _resolved(self, p: Parameter, device: int) -> Parameter:
        """The parameter with the type that its typedef stands for in this program, where branches
        of #if give several. The compiler is asked: all of them are Clang."""
        found = signature.candidates(p.type, self._program.text)
        if len(found) < 2:
            return p
        name = f"{self.name}_ocl_type"
        for type_ in found:
            text = (
                f"{self._program.text}\nkernel void {name}(global uint* same) "
                f"{{ *same = __builtin_types_compatible_p({p.type}, {type_}); }}\n"
            )
            try:
                kernel = _C.SourceKernel(device, text, name, self._program.options, LABEL)
            except RuntimeError:
                continue  # a type that the device hasn't
            if _launched(kernel, 1, device) == [1]:
                return dataclasses.replace(p, type=type_)
        raise self._named(
            TypeError(f"what {p.type} stands for can't be found out: write the type itself"), p
        )

    def _check_structs(
        self, parameters: Sequence[Parameter], converters: list[Any], device: int
    ) -> None:
        """Has structs' converters check the size that the compiler knows: not all drivers do."""
        structs = [i for i, p in enumerate(parameters) if is_struct(p)]
        if not structs:
            return
        name = f"{self.name}_ocl_sizes"
        stores = " ".join(
            f"sizes[{at}] = sizeof({parameters[i].type});" for at, i in enumerate(structs)
        )
        text = f"{self._program.text}\nkernel void {name}(global uint* sizes) {{ {stores} }}\n"
        try:
            kernel = _C.SourceKernel(device, text, name, self._program.options, LABEL)
        except RuntimeError:
            return  # a type that has a name in the parameters alone
        for i, size in zip(structs, _launched(kernel, len(structs), device), strict=True):
            converters[i] = _sized(converters[i], parameters[i].type, size)

    def _read_parameters(self, device: int) -> tuple[tuple[Parameter, ...], int | None]:
        """From the source, with where the body begins; where that is not enough, from the
        driver."""
        program, read = self._program, None
        try:
            read = signature.read_signature(program.text, self.name, program.option_list)
        except signature.Unreadable:
            pass
        if read and len(read.parameters) != self._get(device).kernel.argument_count:
            read = None
        if read and all(p.type for p in read.parameters):
            return read.parameters, read.body
        told = _C.kernel_parameters(device, program.text, self.name, program.options, LABEL)
        if told is None:
            raise RuntimeError(
                f"kernel {self.name!r}: neither its source nor the driver tells its parameters; "
                "write them without macros"
            )
        parameters = tuple(signature.told_parameter(*one, program.text) for one in told)
        if read is None:
            return parameters, None
        places = zip(parameters, read.parameters, strict=True)
        return tuple(dataclasses.replace(p, span=at.span) for p, at in places), read.body

    def _get(self, device: int, with_offsets: bool = False) -> OnDevice:
        key = device, with_offsets
        if (known := self._on_device.get(key)) is not None:
            return known
        with self._lock:
            if key not in self._on_device:
                self._program.names(device, self.name)  # whose errors name the user's lines
                text, name = self._program.text, self.name
                if with_offsets:
                    text, name = self._text_with_offsets(device)
                try:
                    made = OnDevice(self._program, text, name, device)
                    if with_offsets:
                        made.required = self._on_device[device, False].required
                    self._on_device[key] = made
                except RuntimeError as error:
                    if not with_offsets:
                        raise
                    raise RuntimeError(
                        f"kernel {self.name!r}: a tensor begins where a buffer can't, and what is "
                        "compiled for such tensors, with an offset for each pointer, fails; pass a "
                        f"clone() of the tensor. The driver says: {error}"
                    ) from None
            return self._on_device[key]

    def _text_with_offsets(self, device: int) -> tuple[str, str]:
        """The program for tensors that begin where a buffer can't, and its kernel's name."""
        typed, text = self._signatures[device], self._program.text
        if typed.body is not None:
            return signature.with_offsets(text, typed.parameters, typed.body), self.name
        # OpenCL C leaves open what local variables are in kernels that others call. NVIDIA's driver
        # counts local memory of its own as every kernel's.
        has_own = self._on_device[device, False].own_local_memory
        if has_own and signature.may_have_local_variables(text):
            raise ValueError(
                "a tensor begins where a buffer can't, and the kernel can't be given its offset: "
                "it has local variables, and its text can't be changed, since its name stands "
                "there more than once or macros write its parameters; pass a clone() of the tensor"
            )
        text = signature.with_wrapper(text, typed.parameters, self.name)
        return text, f"{self.name}_ocl_offsets"

    def _named(self, error: Exception, p: Parameter | None = None) -> Exception:
        """The error with the kernel's and the parameter's name in front."""
        parameter = "" if p is None else f", parameter {p.name or str(p)!r}"
        return type(error)(f"kernel {self.name!r}{parameter}: {error}")

    def __repr__(self) -> str:
        return f"<torch.ocl kernel {self.name}({', '.join(map(str, self.parameters))})>"

    def __reduce__(self) -> tuple[Any, ...]:
        program = self._program
        return _compile, (program.place or program.source, self.name, program.option_list)

    def __call__(
        self,
        *arguments: Any,
        global_size: Sizes | None = None,
        local_size: Sizes | None = None,
        **others: Any,
    ) -> None:
        """Enqueues the kernel on the current stream of the tensors' device, and does not wait.

        Args:
            arguments: one for each parameter: a tensor for a `global` or `constant` pointer, a
                number for a scalar, a sequence of numbers for a vector, local_memory() for a
                `local` pointer, bytes or a ctypes.Structure for a struct.
            global_size: the number of work-items, in 1 to 3 dimensions. Nothing runs if one is 0.
            local_size: the work-items of a work-group. By default the driver chooses.

        Raises TypeError, ValueError or OverflowError with the kernel's and the parameter's name for
        arguments and sizes that don't fit, RuntimeError if the driver fails, and where make_fx
        or torch.jit traces the call: a graph would be without it.
        """
        if others:
            raise TypeError(
                f"kernel {self.name!r} takes its arguments by position, and by name global_size "
                f"and local_size alone, got {', '.join(others)}"
            )
        if global_size is None:
            raise self._named(TypeError("global_size, the number of work-items, is missing"))
        if _is_traced():
            raise RuntimeError(f"kernel {self.name!r} can't be traced: {_NO_OP}")
        typed = self._signature(_device_of(arguments))
        if len(arguments) != len(typed.parameters):
            names = ", ".join(map(str, typed.parameters))
            raise TypeError(
                f"kernel {self.name!r} takes {len(typed.parameters)} arguments ({names}), "
                f"got {len(arguments)}"
            )
        device, addresses, local_memory = None, [], 0
        values: list[Any] = []
        p = None
        try:
            for p, convert, argument in zip(
                typed.parameters, typed.converters, arguments, strict=True
            ):
                value = convert(argument)
                values.append(value)
                if p.is_buffer:
                    addresses.append(value[0])
                    device = device or argument.device
                    if argument.device != device:
                        raise ValueError(f"its tensor is on {argument.device}, others on {device}")
                elif p.is_local:
                    local_memory += value
            p = None
            index = _C.current_device() if device is None else device.index
            on_device = self._get(index)
            global_sizes = checked_sizes(global_size, "global_size", 0)
            local_sizes = on_device.local_size(global_sizes, local_size, local_memory)
            offsets = [address % on_device.alignment for address in addresses]
            if any(offsets):
                on_device = self._get(index, with_offsets=True)
                values += [struct.pack("=I", offset) for offset in offsets]
        except (TypeError, ValueError, OverflowError) as error:
            raise self._named(error, p) from None
        on_device.kernel.launch(global_sizes, local_sizes, *values)


# Dynamo reads these of a function that it leaves out of graphs, with what to say of it.
Kernel.__call__._torchdynamo_disable = True  # type: ignore[attr-defined]
Kernel.__call__._torchdynamo_disable_msg = _NO_OP  # type: ignore[attr-defined]


def _compile(source: str | Path, name: str | None, options: Sequence[str]) -> Kernel:
    path = source if isinstance(source, Path) else None
    text = preprocessing.read(path) if path else str(source).removeprefix("\ufeff")
    text = text.replace("\r\n", "\n")
    preprocessing.check_text(text, path)
    program = Program(text, options, path, _caller())
    device = _C.current_device()
    names = program.names(device, name)
    if name is None and len(names) == 1:
        name = names[0]
    if not names:
        raise ValueError("the source has no kernel")
    if name not in names:
        there = ", ".join(names)
        wanted = "name one of its kernels" if name is None else f"there is no kernel {name!r}"
        raise ValueError(f"{wanted}: the source has {there}")
    return Kernel(program, name, device)


def _caller() -> FrameType:
    """The first frame outside of this file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame


def compile_kernel(
    source: str | os.PathLike[str], name: str | None = None, *, options: str | Sequence[str] = ()
) -> Kernel:
    """Compiles OpenCL C and returns a kernel of it, to be called with tensors and numbers.

    ::

        relu = torch.ocl.compile_kernel('''
            kernel void relu(global const float* x, global float* y) {
              size_t i = get_global_id(0);
              y[i] = fmax(x[i], 0.0f);
            }''', "relu")
        relu(x, y, global_size=x.numel())

    Args:
        source: the program, or a pathlib.Path of its file. `#include "file"` is looked for in the
            file's folder and in those of -I options.
        name: which of its kernels; not needed if there is one only.
        options: for the compiler, such as ("-DTILE=16", "-cl-fast-relaxed-math"), or one string of
            them as a shell reads it. By default the language is the newest that the device
            compiles, at least OpenCL C 1.2.

    It is compiled for the current device now, and for others when they are first used. Binaries are
    kept on disk as those of the package's own kernels.

    A kernel works on memory as it is, as with torch.cuda._compile_kernel: a pointer is to the
    tensor's first element (null of an empty tensor), strides are the kernel's affair (pass
    x.contiguous(), or the strides), and autograd does not see what was written.
    torch.autograd.Function and torch.library.custom_op make an op of it. A tensor that was made on
    another stream needs Tensor.record_stream, as ever. bool is char or uchar, bfloat16 ushort,
    complex64 float2. An integer is one of its width, signed or not.

    A buffer must begin at a multiple of the device's alignment (128 bytes, say). For a view that
    begins elsewhere the kernel is built once more, with the remainder of each offset as a hidden
    parameter. Nothing is copied.

    Raises RuntimeError with the compiler's messages if the source does not build. They name lines
    of the source's file, of the Python file that it is a string of (one of a caller's, or whose
    module has it), or its own and the line of the call. ValueError if there is no such kernel,
    TypeError for one that takes images or samplers.
    """
    if isinstance(source, os.PathLike):
        source = Path(source)
    elif not isinstance(source, str):
        raise TypeError(f"the source must be a string or a path, got {type(source).__name__}")
    if not isinstance(options, str):
        if not isinstance(options, Iterable):
            raise TypeError(f"options must be strings, got {options!r}")
        options = list(options)
        if not all(isinstance(option, str) for option in options):
            raise TypeError(f"options must be strings, got {options!r}")
    return _compile(source, name, preprocessing.read_options(options))


def local_memory(nbytes: int) -> LocalMemory:
    """The argument for a kernel's parameter `local T* x`: so many bytes for each work-group."""
    return LocalMemory(nbytes)
