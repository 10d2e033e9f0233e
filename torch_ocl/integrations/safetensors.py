"""safetensors: files are read to `ocl`. Its list of devices stands in compiled code, which takes an
index, of torch's current accelerator."""

from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations._patches import attribute, replace
from torch_ocl.integrations._stand_in import stand_in


def _safetensors(module: ModuleType) -> None:
    upstream = attribute(module, "safe_open")

    def open_(filename: Any, framework: str, device: Any = "cpu", **kwargs: Any) -> Any:
        return upstream(filename, framework, _index_of_ocl(device), **kwargs)

    replace(module, "safe_open", stand_in(upstream, open_))


def _index_of_ocl(device: Any) -> Any:
    """An index for `ocl`; what else there is as it came."""
    named = device.type if isinstance(device, torch.device) else str(device).split(":")[0]
    if named != "ocl":
        return device
    index = torch.device(device).index
    return torch.ocl.current_device() if index is None else index


PATCHES = {"safetensors": _safetensors}
