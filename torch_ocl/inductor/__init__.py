"""torch.compile's default backend, inductor, for `ocl`: it generates OpenCL C.

Imported when inductor first asks torch.ocl for its classes, and never before.
"""

from __future__ import annotations

import functools

import torch
from torch._dynamo.device_interface import register_interface_for_device
from torch._inductor.codegen.common import (
    get_device_op_overrides,
    register_backend_for_device,
    register_device_op_overrides,
)


@functools.cache
def register() -> None:
    """Makes the backend known to Dynamo and Inductor, once."""
    from torch_ocl.inductor import device, scheduling
    from torch_ocl.inductor.call import cache, cpp_wrapper, wrapper
    from torch_ocl.upstream.compile import inductor as upstream

    register_interface_for_device("ocl", device.Interface)
    for index in range(torch.ocl.device_count()):
        register_interface_for_device(f"ocl:{index}", device.Interface)
    get_device_op_overrides("cpu")  # registers upstream's own, if there are none yet
    register_device_op_overrides("ocl", device.OpOverrides())
    upstream.install()
    register_backend_for_device(
        "ocl",
        scheduling.OclScheduling,
        wrapper.OclWrapper,
        cpp_wrapper.OclCppWrapper,
        device_custom_pass=cache.Generator(),
    )
