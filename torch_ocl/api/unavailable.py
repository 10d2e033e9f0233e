"""torch.ocl where the device can't be used at all: every call says why."""

import types
from collections.abc import Callable
from typing import Any, NoReturn


def make_module(reason: str, *, ignore_seeds: bool) -> types.ModuleType:
    """A torch.ocl whose is_available() is False and whose functions raise RuntimeError(reason).

    With ignore_seeds, seeding does nothing: torch.manual_seed seeds every device it knows.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(reason)

    def __getattr__(name: str) -> Callable[..., NoReturn]:
        # Torch and inspection tools ask modules for special names; those must stay absent.
        if name.startswith("_"):
            raise AttributeError(f"module 'torch.ocl' has no attribute {name!r}")
        return refuse

    module = types.ModuleType("torch.ocl", f"Not available: {reason}")
    module.__getattr__ = __getattr__
    module.is_available = lambda: False
    module.is_initialized = lambda: False
    module.device_count = lambda: 0
    module.unavailable_reason = lambda: reason
    module._is_in_bad_fork = lambda: False
    module._lazy_init = refuse
    if ignore_seeds:
        module.manual_seed = module.manual_seed_all = lambda seed: None
        module.seed = module.seed_all = lambda: None
    return module
