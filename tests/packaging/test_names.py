"""The page of names is true: each is there, has another name, or a reason to be missing."""

import importlib
import inspect
import sys
from pathlib import Path

import pytest
import torch

from torch_ocl.api import names

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools" / "docs"
if not TOOLS.exists():
    pytest.skip("not run from the source tree", allow_module_level=True)
sys.path.insert(0, str(TOOLS))
import names_pages  # noqa: E402

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="the table is that of torch 2.13"
)


def resolve(name):
    """The object of a full name; raises AttributeError."""
    value = torch
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("module", names_pages.MODULES)
def test_every_name_is_there_or_has_a_reason(module):
    renamed, reasons = names_pages.tables()
    assert (renamed, reasons) == (names.RENAMED, names.NOT_APPLICABLE)
    ours = resolve(names_pages.MODULES[module])
    silent, present = [], []
    for name in names_pages.public_names(module):
        full = f"{module}.{name}"
        if full in renamed:
            resolve(renamed[full])
        explained = full in renamed or full in reasons
        if hasattr(ours, name) == explained:
            (present if explained else silent).append(name)
    assert not silent, f"neither there nor explained: {silent}"
    assert not present, f"explained although there: {present}"


def test_submodules_are_imported_by_name():
    import torch.ocl.nvtx
    import torch.ocl.profiler
    from torch.ocl.nvtx import range_pop, range_push
    from torch.ocl.profiler import profile

    assert range_push("part") == 0 == range_pop() and torch.ocl.nvtx.mark("point") is None
    with profile(rows=0) as of, torch.ocl.nvtx.range("block"):
        torch.ones(5, device="ocl") + 1
    assert of.kernels and torch.ocl.profiler is profile is torch.ocl.profiler.profile


@pytest.mark.parametrize("module", names_pages.MODULES)
def test_no_public_name_is_overlooked(module):
    """Names in dir() that are upstream's own: not what it imports."""
    upstream = importlib.import_module(module)
    package = module.split(".")[1]

    def is_its_own(value):
        if inspect.ismodule(value):
            return value.__name__.startswith(f"torch.{package}.")
        return getattr(value, "__module__", "") == module and callable(value)

    public = {n for n in dir(upstream) if not n.startswith("_") and is_its_own(vars(upstream)[n])}
    public |= set(getattr(upstream, "__all__", ()))
    assert public <= set(names_pages.public_names(module))


def test_reasons_are_of_names_that_exist():
    for name in (*names.RENAMED, *names.NOT_APPLICABLE):
        module, _, last = name.rpartition(".")
        assert last in names_pages.public_names(module), name
