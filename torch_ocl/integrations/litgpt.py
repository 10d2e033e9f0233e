"""litgpt: the device of `LLM.load` and `LLM.distribute`. Its commands leave it to Lightning."""

import functools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import Absent, admit, attribute, wrap

_ADVICE = 'LLM.load(..., distribute=None), then distribute(accelerator="ocl")'


class _Lightning:
    """The module that litgpt.api calls `L`. It names an accelerator for each Fabric; while a model
    is loaded that is what litgpt has chosen itself."""

    def __init__(self, upstream: ModuleType) -> None:
        self._upstream = upstream
        self.loads = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._upstream, name)

    def Fabric(self, *args: Any, **kwargs: Any) -> Any:
        by_itself = getattr(self.loads, "now", False) and kwargs.get("accelerator") == "cpu"
        if by_itself and _choice.chooses_ocl("litgpt", _ADVICE):
            kwargs["accelerator"] = "ocl"
        return self._upstream.Fabric(*args, **kwargs)


def _api(module: ModuleType) -> None:
    kind = attribute(module, "LLM")
    admit(kind, "distribute", {"auto", "cuda", "mps"})
    upstream = attribute(kind, "load")
    if not isinstance(upstream, classmethod):
        raise Absent("LLM.load is no class method")
    module.L = _Lightning(attribute(module, "L"))
    kind.load = classmethod(_loading(upstream.__func__, module.L.loads))
    wrap(kind, "distribute", _or_ocl)


def _loading(upstream: Callable[..., Any], loads: threading.local) -> Callable[..., Any]:
    @functools.wraps(upstream)
    def load(cls: type, *args: Any, **kwargs: Any) -> Any:
        loads.now = True
        try:
            return upstream(cls, *args, **kwargs)
        finally:
            loads.now = False

    return load


def _or_ocl(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def distribute(self: Any, accelerator: str = "auto", *args: Any, **kwargs: Any) -> Any:
        by_itself = accelerator == "auto" and not _choice.has_other_accelerator()
        if by_itself and _choice.chooses_ocl("litgpt", _ADVICE):
            accelerator = "ocl"
        return upstream(self, accelerator, *args, **kwargs)

    return distribute


PATCHES = {"litgpt.api": _api}
