"""PointwiseStubs_<k>.cpp and KernelStubs.cpp: what runs behind upstream's DispatchStubs."""

from __future__ import annotations

from codegen.aten import OURS
from codegen.registration import BANNER
from codegen.stubs import Binding, PointwiseOp, clashing_aliases


def _function_pointer(stub: str) -> str:
    return f"at::native::{stub}_DECLARE_DISPATCH_type::FnPtr"


def _includes(bindings: list[Binding]) -> list[str]:
    headers = sorted({b.header for b in bindings})
    clashes = clashing_aliases(headers)
    # Several of these headers use TensorIterator and Generator without including them.
    lines = ["#include <ATen/TensorIterator.h>", "#include <ATen/core/Generator.h>"]
    for header in headers:
        own = clashes[header]
        stem = header.rpartition("/")[2].removesuffix(".h")
        lines += [f"#define {alias} {stem}_{alias}" for alias in own]
        lines += [f"#include <{header}>"]
        lines += [f"#undef {alias}" for alias in own]
    return lines


def _op(op: PointwiseOp) -> str:
    flags = " | ".join(f"ocl::pointwise::flag::{flag}" for flag in op.flags)
    arguments = [f'"{op.functor}"']
    if op.scalars is not None or flags:
        arguments.append(str(-1 if op.scalars is None else op.scalars))
    if flags:
        arguments.append(flags)
    return f"const ocl::pointwise::Op op_{op.functor}({', '.join(arguments)});"


def pointwise_source(bindings: list[Binding], ops: list[PointwiseOp]) -> str:
    """Binds stubs to functors: an engine Op per functor, an engine Stub per DispatchStub."""
    used = {b.target for b in bindings}
    return "\n".join(
        [
            BANNER + '#include "engine/pointwise/pointwise.h"\n',
            *_includes(bindings),
            "\nnamespace at::native {\nnamespace {\n",
            *(_op(op) for op in ops if op.functor in used),
            "\n}  // namespace\n",
            *(
                f"REGISTER_PRIVATEUSE1_DISPATCH({b.stub}, "
                f"(&ocl::pointwise::Stub<op_{b.target}, {_function_pointer(b.stub)}>::call))"
                for b in bindings
            ),
            "\n}  // namespace at::native\n",
        ]
    )


def kernel_source(bindings: list[Binding]) -> str:
    """Binds stubs to functions of ocl::native, declared here with exactly the stub's type: a
    definition with other parameters is another overload, and the link fails."""
    return "\n".join(
        [
            f"{BANNER}#include <type_traits>\n",
            *_includes(bindings),
            f"\nnamespace {OURS} {{\n",
            *(
                f"std::remove_pointer_t<{_function_pointer(b.stub)}> {b.target};  // {b.stub}"
                for b in bindings
            ),
            f"\n}}  // namespace {OURS}\n\nnamespace at::native {{\n",
            *(
                f"REGISTER_PRIVATEUSE1_DISPATCH({b.stub}, "
                f"(static_cast<{_function_pointer(b.stub)}>(&{OURS}::{b.target})))"
                for b in bindings
            ),
            "\n}  // namespace at::native\n",
        ]
    )
