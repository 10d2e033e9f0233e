"""RegisterSparse.cpp: upstream's functions of sparse tensors that serve every device.

A function that native_functions.yaml names for both SparseCPU and SparseCUDA (SparseCsrCPU and
SparseCsrCUDA) only puts other operations together. It is registered for the key of `ocl` tensors of
that layout. What CPU and CUDA have apart, and what stands in OWN, is in csrc/ops/sparse.
"""

from __future__ import annotations

from torchgen.api.types import kernel_signature
from torchgen.context import native_function_manager
from torchgen.model import BackendIndex, DispatchKey, NativeFunction

from codegen.aten import Aten
from codegen.registration import BANNER

#: CPU's key, CUDA's key and ours.
KEYS = (
    (DispatchKey.SparseCPU, DispatchKey.SparseCUDA, "SparsePrivateUse1"),
    (DispatchKey.SparseCsrCPU, DispatchKey.SparseCsrCUDA, "SparseCsrPrivateUse1"),
)

#: Shared upstream, but ours is another, with the reason.
OWN = {
    "SparsePrivateUse1": {
        "sparse_mask": "upstream's runs a stub that only CPU and CUDA can have",
        "_sparse_mask_projection": "as sparse_mask",
    },
    "SparseCsrPrivateUse1": {
        "_to_sparse_bsr": "upstream's copies to the CPU and back",
        "_to_sparse_bsc": "as _to_sparse_bsr",
        "_to_sparse_csc": "upstream's makes two numbers of every index; ours sorts columns",
        "_to_sparse_csr": "as _to_sparse_csc",
    },
}


def shared(aten: Aten, cpu: DispatchKey, cuda: DispatchKey) -> list[tuple[NativeFunction, str]]:
    """The functions that have one kernel for both keys, with its name, in alphabetical order."""
    of_cpu, of_cuda = aten.sparse[cpu].index, aten.sparse[cuda].index
    found = []
    for name in sorted(of_cpu, key=str):
        other = of_cuda.get(name)
        if other is not None and other.kernel == of_cpu[name].kernel:
            found.append((aten.functions[str(name)], of_cpu[name].kernel))
    return found


def _implementation(function: NativeFunction, kernel: str, index: BackendIndex) -> str:
    """A cast chooses among functions of one name."""
    with native_function_manager(function):
        kind = kernel_signature(function, index).ptr_type()
    # Where upstream has it for symbolic sizes too, the plain one has no suffix.
    pointer = f"static_cast<{kind}>(&at::native::{kernel})"
    return f'  m.impl("{function.func.name}", OnDevice<{pointer}>::call);'


def sparse_source(aten: Aten) -> str:
    """The file's text."""
    headers, parts = set(), []
    for cpu, cuda, ours in KEYS:
        lines = []
        for function, kernel in shared(aten, cpu, cuda):
            if str(function.func.name) in OWN[ours]:
                continue
            headers.add(function.root_name)
            lines.append(_implementation(function, kernel, aten.sparse[cpu]))
        parts += [f"TORCH_LIBRARY_IMPL(aten, {ours}, m) {{", *lines, "}\n"]
    return "\n".join(
        [
            BANNER + "#include <ATen/core/Tensor.h>\n#include <torch/library.h>\n",
            *(f"#include <ATen/ops/{root}_native.h>" for root in sorted(headers)),
            '\n#include "ops/sparse/on_device.h"',
            "\nnamespace ocl {\nnamespace {\n",
            *parts,
            "}  // namespace\n}  // namespace ocl\n",
        ]
    )
