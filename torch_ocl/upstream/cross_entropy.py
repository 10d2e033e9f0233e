"""linear_cross_entropy computes half types in float32.

Upstream decides by the device's name where it may do so; on a device it doesn't know, logits and
sums would be rounded to the half type.
"""

import torch


def install() -> None:
    """Makes `ocl` count as the CPU there; nothing where torch has no such choice."""
    try:
        from torch.nn.modules import linear_cross_entropy_options as module

        defaults = module._AUTO_DEFAULTS
        options = module.LinearCrossEntropyOptions
        upstream = options._resolve_auto_acc_dtype
    except (ImportError, AttributeError):
        return
    for device, dtype in [key for key in defaults if key[0] == "cpu"]:
        defaults["ocl", dtype] = defaults[device, dtype]

    def resolve(dtype, device):
        known = device is None or device.type != "ocl"
        return upstream(dtype, device if known else torch.device("cpu"))

    options._resolve_auto_acc_dtype = staticmethod(resolve)
