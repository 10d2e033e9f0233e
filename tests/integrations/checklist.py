"""The checks of the libraries above PyTorch: a list, each a small real use.

A check gets a device and returns what it computed: a tensor, a number, or a structure of them. It
is run on the CPU and on `ocl`, from the same seed, and the results are compared. One without a
parameter asserts by itself.

    @check("einops", "rearrange")
    def _(device):
        return einops.rearrange(torch.arange(6.0, device=device), "(a b) -> b a", a=2)
"""

import contextlib
import importlib
import importlib.metadata
import inspect
import os
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils import _pytree

# Models are made here: nothing may ask the network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements" / "integrations.txt"


@dataclass(frozen=True)
class Check:
    library: str  # as pip calls it, or as the program calls itself
    what: str
    run: Callable
    #: The integration without which it fails.
    integration: str | None = None
    #: TORCH_OCL_INTEGRATIONS while it runs.
    mode: str = "explicit"
    #: Why it fails, of what is known not to work.
    fails: str | None = None
    tolerance: float = 1e-3
    #: Whether it computes here: some only ask for devices, or compute in other processes.
    launches: bool = True

    def __str__(self) -> str:
        return f"{self.library}: {self.what}"


CHECKS: list[Check] = []


def check(library: str, what: str, **arguments) -> Callable[[Callable], Callable]:
    def register(run: Callable) -> Callable:
        CHECKS.append(Check(library, what, run, **arguments))
        return run

    return register


def load() -> list[Check]:
    """All of them. Their libraries are imported when they run."""
    from tests.integrations import checks

    for module in sorted(pkgutil.iter_modules(checks.__path__), key=lambda m: m.name):
        importlib.import_module(f"tests.integrations.checks.{module.name}")
    return CHECKS


def pinned() -> dict[str, str]:
    """The libraries that `make test` installs, with their versions."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    found = (re.match(r"([A-Za-z0-9_.-]+)==(\S+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def version(library: str) -> str | None:
    if library == "ComfyUI":  # which isn't pip's
        from tests.integrations import comfyui

        return comfyui.version()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(library)
    return None


@contextlib.contextmanager
def _environment(mode: str):
    before = os.environ.get("TORCH_OCL_INTEGRATIONS")
    os.environ["TORCH_OCL_INTEGRATIONS"] = mode
    try:
        yield
    finally:
        if before is None:
            del os.environ["TORCH_OCL_INTEGRATIONS"]
        else:
            os.environ["TORCH_OCL_INTEGRATIONS"] = before


def _result(run: Callable, device: str):
    torch.manual_seed(0)
    found = run(device)
    # Whatever a library has made of it in the meantime.
    return _pytree.tree_map(
        lambda x: x.detach().cpu().double() if isinstance(x, torch.Tensor) else x, found
    )


@contextlib.contextmanager
def _on_the_device(tried: Check):
    """Kernels ran, and nothing was left to the host."""
    torch.ocl.reset_fallback_counts()
    torch.ocl.reset_host_staged_counts()
    before = _launches()
    yield
    assert _launches() > before or not tried.launches, "no kernel was launched"
    assert not torch.ocl.fallback_counts() and not torch.ocl.host_staged_counts()


def _launches() -> int:
    return sum(map(torch.ocl.launch_count, range(torch.ocl.device_count())))


def perform(tried: Check) -> None:
    """Runs a check. Raises if it doesn't work, if it doesn't run on the device, or if results are
    others than the CPU's."""
    with _environment(tried.mode):
        if not inspect.signature(tried.run).parameters:
            torch.manual_seed(0)
            with _on_the_device(tried):
                tried.run()
            return
        expected = _result(tried.run, "cpu")
        with _on_the_device(tried):
            found = _result(tried.run, "ocl")
    torch.testing.assert_close(
        found, expected, rtol=tried.tolerance, atol=tried.tolerance, equal_nan=True
    )
