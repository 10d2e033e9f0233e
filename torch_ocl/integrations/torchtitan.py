"""torchtitan: its models can be imported where there is no Triton.

They import kernels for one way to send tokens between GPUs, whatever the device and the model.
Without Triton that module is taken from a stand-in, whose kernels say what they lack when they are
launched. Triton itself stays absent: others ask whether it is there.
"""

import importlib.util
import sys
from types import ModuleType
from typing import Any, NoReturn

_KERNELS = "torchtitan.distributed.minimal_async_ep.kernels"


class _Kernels(ModuleType):
    """The module of kernels without any."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

        def kernel(*args: Any, **kwargs: Any) -> NoReturn:
            raise ModuleNotFoundError(
                f"{name} is a kernel in Triton, which is not installed: comm_backend "
                "minimal_async_ep needs it, and GPUs of CUDA. Choose comm_backend standard.",
                name="triton",
            )

        kernel.__name__ = kernel.__qualname__ = name
        return kernel


def _torchtitan(module: ModuleType) -> None:
    if importlib.util.find_spec("triton") is None:
        sys.modules.setdefault(_KERNELS, _Kernels(_KERNELS))


PATCHES = {"torchtitan": _torchtitan}
