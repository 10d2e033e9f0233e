"""PyTorch on any OpenCL device: importing this package adds device `ocl` to torch.

Torch imports it by itself. The device's API is `torch.ocl`; tensors move there with `.to("ocl")`
or `.ocl()`.
"""


def _autoload() -> None:
    """Registers the device. Torch calls it at the end of `import torch`; calling it again is free.

    It is defined before `import torch` below: when this package is imported first, torch finds it
    half-initialised and still needs this function.
    """
    from torch_ocl._registration import register

    register()


import torch  # noqa: E402, F401

_autoload()

__version__ = "0.1.0"
