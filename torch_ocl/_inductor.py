"""What torch.compile's default backend, inductor, gets for `ocl`: an error that says what works.

Inductor asks torch.ocl for these classes by name when it is first used. Without them it fails with
a KeyError that names the device and nothing else.
"""

from typing import Any, NoReturn

from torch._inductor.codegen.common import DeviceOpOverrides, register_device_op_overrides


class _Missing:
    """Raises wherever inductor begins to use it, for graphs with `ocl` tensors only."""

    supports_caching = False  # asked before anything is made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.create()

    @staticmethod
    def create(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "torch.compile's backend inductor has no code generator for ocl: use "
            'torch.compile(..., backend="aot_eager")'
        )


Scheduling = PythonWrapperCodegen = CppWrapperCodegen = WrapperFxCodegen = _Missing
register_device_op_overrides("ocl", DeviceOpOverrides())
