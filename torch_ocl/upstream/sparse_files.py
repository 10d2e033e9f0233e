"""Sparse tensors in files.

Upstream writes a tensor without a storage as one of the CPU, and moves that while it reads it. A
file of the older format has its numbers behind all tensors: it is moved before they are there. A
function as map_location isn't asked. As CUDA's are, sparse tensors are written as their parts.
"""

import functools
from typing import Any

import torch
from torch.utils._pytree import tree_map_only


def install() -> None:
    """Changes what pickles tensors."""
    upstream = torch.Tensor._reduce_ex_internal

    @functools.wraps(upstream)
    def _reduce_ex_internal(self: torch.Tensor, proto: Any) -> Any:
        function, arguments, *rest = upstream(self, proto)
        whole = torch._utils._rebuild_device_tensor_from_cpu_tensor
        if function is whole and self.is_ocl and self.layout != torch.strided:
            function, arguments = upstream(arguments[0], proto)
            arguments = tree_map_only(torch.Tensor, lambda part: part.to(self.device), arguments)
        return function, arguments, *rest

    torch.Tensor._reduce_ex_internal = _reduce_ex_internal
