"""OpenCL kernels that measure, launched on an `ocl` device.

Buffers are given as tensors, scalars as ctypes values."""

import ctypes

import torch


class Kernel:
    """A kernel of `source`, built for the current device with -D definitions."""

    def __init__(self, source, name, **definitions):
        from torch_ocl import _C

        device = torch.ocl.current_device()
        options = " ".join(f"-D{key}={value}" for key, value in definitions.items())
        self._kernel = _C.SourceKernel(device, source, name, options)
        self._alignment = _C.launch_limits(device)["alignment"]

    def __call__(self, global_size, local_size, *arguments):
        """Enqueues on the current stream; a tensor is two arguments, buffer and offset in bytes."""
        raw = []
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
                address, storage = argument.data_ptr(), argument.untyped_storage()
                raw.append((address, storage.data_ptr() + storage.nbytes() - address))
                raw.append(bytes(ctypes.c_uint64(address % self._alignment)))
            else:
                raw.append(bytes(argument))
        self._kernel.launch(global_size, local_size, *raw)


def embedded_source(path):
    """The text of a file of kernels/."""
    from torch_ocl import _C

    return _C.kernel_source(path)


def uint(value):
    return ctypes.c_uint32(value)
