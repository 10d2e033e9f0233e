"""sentence-transformers: the device of a model that names none."""

from collections.abc import Callable
from types import ModuleType

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import wrap

_ADVICE = 'SentenceTransformer(..., device="ocl")'


def _environment(module: ModuleType) -> None:
    wrap(module, "get_device_name", _or_ocl)


def _or_ocl(upstream: Callable[[], str]) -> Callable[[], str]:
    def get_device_name() -> str:
        name = upstream()
        chosen = name == "cpu" and _choice.chooses_ocl("sentence-transformers", _ADVICE)
        return "ocl" if chosen else name

    return get_device_name


PATCHES = {"sentence_transformers.util.environment": _environment}
