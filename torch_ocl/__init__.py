"""PyTorch on any OpenCL device: importing this package adds device `ocl` to torch.

Torch imports it by itself, but not where it has a CUDA device (torch_ocl_autoload.py). The device's
API is `torch.ocl`; tensors move there with `.to("ocl")` or `.ocl()`.
"""

from torch_ocl._registration import register

register()

__version__ = "0.1.0"
