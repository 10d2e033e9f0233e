"""torch.export's packages (.pt2): models of AOTInductor are loaded by what Dynamo knows of their
device, which it hears with the first torch.compile only."""

import functools
from types import ModuleType
from typing import Any

import torch


def _packages(module: ModuleType) -> None:
    upstream = module._load_aoti

    @functools.wraps(upstream)
    def _load_aoti(file: str, model_name: str, *args: Any, **kwargs: Any) -> Any:
        loader = torch._C._aoti.AOTIModelPackageLoader
        metadata = loader.load_metadata_from_package(file, model_name)
        if metadata.get("AOTI_DEVICE_KEY") == "ocl":
            from torch_ocl import inductor

            inductor.register()
        return upstream(file, model_name, *args, **kwargs)

    module._load_aoti = _load_aoti


PATCHES = {"torch.export.pt2_archive._package": _packages}
