"""Printing on devices without double precision.

torch formats the numbers of a tensor in double on its own device, except on the devices it knows to
have none; this adds ours to those.
"""

import torch
from torch import _tensor_str


def install() -> None:
    """Makes torch format `ocl` tensors in float where their device has no float64."""
    upstream = _tensor_str.tensor_totype

    def tensor_totype(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == "ocl":
            if not torch.ocl.get_device_properties(tensor.device).has_fp64:
                return tensor.to(torch.float32)
        return upstream(tensor)

    _tensor_str.tensor_totype = tensor_totype
