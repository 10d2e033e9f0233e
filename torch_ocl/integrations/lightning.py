"""Lightning: accelerator="ocl", also as its "auto" and "gpu", of Trainer and Fabric. Its code
comes as `lightning`, and as `pytorch_lightning` with `lightning_fabric`."""

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import admit, attribute, wrap

_ADVICE = 'accelerator="ocl"'


def _accelerators(module: ModuleType) -> None:
    """The registry, of which Trainer has one and Fabric another."""
    trainers = getattr(module, "AcceleratorRegistry", None)
    registry = attribute(module, "ACCELERATOR_REGISTRY") if trainers is None else trainers
    if "ocl" not in registry:
        # Lightning's own texts, and programs, ask whether the accelerator is one of CUDA's.
        base = "CUDAAccelerator" if _choice.means_cuda() else "Accelerator"
        kind = _accelerator_class(attribute(module, base))
        registry.register("ocl", kind, description=kind.__name__)


def _accelerator_class(base: type) -> type:
    class OclAccelerator(base):
        """Lightning's accelerator for OpenCL devices."""

        def setup_device(self, device: torch.device) -> None:
            if device.type != "ocl":
                raise ValueError(f"Device should be ocl, got {device} instead.")
            torch.ocl.set_device(device)

        def setup(self, *args: Any) -> None:
            pass

        def teardown(self) -> None:
            torch.ocl.empty_cache()

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return torch.ocl.memory_stats(device)

        @staticmethod
        def parse_devices(devices: int | str | list[int]) -> list[int]:
            """Indices of devices. Raises RuntimeError for devices that aren't there."""
            count = torch.ocl.device_count()
            if isinstance(devices, str):
                text = devices.strip().strip("[],")
                devices = [int(part) for part in text.split(",")] if "," in devices else int(text)
            if isinstance(devices, int):
                devices = range(count if devices == -1 else devices)
                if len(devices) == int(os.environ.get("LOCAL_WORLD_SIZE", 0)) and count > 0:
                    # Processes of torchrun take them by turns where there are fewer.
                    devices = [index % count for index in devices]
            for index in devices:
                if not 0 <= index < count:
                    raise RuntimeError(f"there is no device ocl:{index}, of {count}")
            return list(devices)

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device("ocl", index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            """One: several may be one processor, of several drivers."""
            return 1

        @staticmethod
        def is_available() -> bool:
            return torch.ocl.is_available()

        @staticmethod
        def name() -> str:
            return "ocl"

    OclAccelerator.__module__, OclAccelerator.__qualname__ = __name__, "OclAccelerator"
    globals()["OclAccelerator"] = OclAccelerator  # where strategies that spawn pickle it from
    return OclAccelerator


def _connector(module: ModuleType) -> None:
    trainers = getattr(module, "_AcceleratorConnector", None)
    kind = trainers or attribute(module, "_Connector")
    admit(kind, "_choose_strategy", {"cuda", "gpu", "mps"})
    admit(kind, "_check_and_init_precision", {"cpu", "mps"})
    wrap(kind, "__init__", _cuda_is_ocl)
    wrap(kind, "_choose_auto_accelerator", _or_ocl)
    wrap(kind, "_choose_gpu_accelerator_backend", _or_a_gpu_of_ours)


def _cuda_is_ocl(upstream: Callable[..., None]) -> Callable[..., None]:
    """accelerator="cuda" where "cuda" means `ocl`: Lightning's own accelerator makes devices of the
    type "cuda"."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = kwargs.get("accelerator")
        if given == "cuda" and _choice.means_cuda():
            kwargs["accelerator"] = "ocl"
        upstream(self, *args, **kwargs)

    return __init__


def _or_ocl(upstream: Callable[[], str]) -> Callable[[], str]:
    def _choose_auto_accelerator() -> str:
        if _choice.means_cuda():
            return "ocl"
        name = upstream()
        return "ocl" if name == "cpu" and _choice.chooses_ocl("Lightning", _ADVICE) else name

    return _choose_auto_accelerator


def _or_a_gpu_of_ours(upstream: Callable[[], str]) -> Callable[[], str]:
    def _choose_gpu_accelerator_backend() -> str:
        if _choice.means_cuda():
            return "ocl"
        ours = not _choice.has_other_accelerator() and torch.ocl.is_available()
        return "ocl" if ours and _choice.is_gpu() else upstream()

    return _choose_gpu_accelerator_backend


def _data_parallel(module: ModuleType) -> None:
    """DistributedDataParallel: with indices of devices Lightning makes a stream of CUDA's."""
    kind = attribute(module, "DDPStrategy")
    ours = "_determine_ddp_device_ids"
    wrap(kind, ours if hasattr(kind, ours) else ours[1:], _none_on_ocl)


def _none_on_ocl(upstream: Callable[[Any], list | None]) -> Callable[[Any], list | None]:
    def determine_ddp_device_ids(self: Any) -> list | None:
        return None if self.root_device.type == "ocl" else upstream(self)

    return determine_ddp_device_ids


PATCHES = {
    "lightning.fabric.accelerators": _accelerators,
    "lightning.fabric.connector": _connector,
    "lightning.fabric.strategies.ddp": _data_parallel,
    "lightning.pytorch.accelerators": _accelerators,
    "lightning.pytorch.strategies.ddp": _data_parallel,
    "lightning.pytorch.trainer.connectors.accelerator_connector": _connector,
    "lightning_fabric.accelerators": _accelerators,
    "lightning_fabric.connector": _connector,
    "lightning_fabric.strategies.ddp": _data_parallel,
    "pytorch_lightning.accelerators": _accelerators,
    "pytorch_lightning.strategies.ddp": _data_parallel,
    "pytorch_lightning.trainer.connectors.accelerator_connector": _connector,
}
