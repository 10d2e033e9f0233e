"""Adds device `ocl` to torch, once per process, and never breaks `import torch`."""

import contextlib
import itertools
from pathlib import Path

import torch

from torch_ocl import _environment, _loader
from torch_ocl.api import unavailable
from torch_ocl.notices import separate_processes, unused
from torch_ocl.upstream import printing, registration

_UNTAKEN = ("privateuseone", registration.BACKEND)
#: The torch that wheels are made for: the oldest, the newest. pyproject.toml has the same.
_SUPPORTED = ((2, 11), (2, 15))
_done = False


def register() -> None:
    """Names PrivateUse1 `ocl` and installs torch.ocl.

    If the native library can't be loaded, torch.ocl says so when it is used. If another backend has
    taken PrivateUse1 (torch has room for one), nothing is loaded and torch.ocl names that backend.
    """
    global _done
    if _done:
        return
    _done = True
    other = torch._C._get_privateuse1_backend_name()
    if other not in _UNTAKEN:
        # Parts of torch that this patches may be gone in another version.
        with contextlib.suppress(Exception):
            from torch_ocl.upstream import conflict

            conflict.install(other)
        return
    torch.utils.rename_privateuse1_backend(registration.BACKEND)
    try:
        _load_native()
        from torch_ocl import integrations, upstream
        from torch_ocl.api import ocl as module

        upstream.install()
        separate_processes.install()
        integrations.install()
    except Exception as error:  # whatever it is, `import torch` must go on
        module = unavailable.make_module(
            f"torch_ocl could not be loaded: {error}", ignore_seeds=True
        )
    registration.install(module)
    printing.install()
    _environment.warn_of_unknown_names()
    # Whatever is wrong there, `import torch` must go on.
    with contextlib.suppress(Exception):
        unused.install()


def _load_native() -> None:
    _check_torch_version()
    from torch_ocl import _C

    loaders, drivers = _loader.find_loaders(), _loader.find_drivers()
    _C.configure_loader(loaders, drivers)
    options = [("--loader", path) for path in loaders] + [("--driver", path) for path in drivers]
    options = list(itertools.chain(*options))
    programs = Path(_C.__file__).parent
    _C.configure_device_count([str(programs / "device_count"), *options])
    _C.configure_build_workers([str(programs / "build_worker"), *options])


def _check_torch_version() -> None:
    """Comes before the library, which the linker refuses in words of its own."""
    try:
        from torch_ocl import _built_for
    except ImportError:  # nothing is built, which loading the library says
        return
    built, here = _built_for.TORCH_VERSION, torch.__version__
    if _series(built) != _series(here):
        raise RuntimeError(
            f"it was built for torch {built}, this is torch {here}. "
            + _advice(_built_for.VERSION, _built_for.WHEELS, _series(built), _series(here))
        )


def _advice(version: str, wheels: str, built: tuple[int, ...], here: tuple[int, ...]) -> str:
    """Which wheel to take, or which torch where there is no such wheel."""
    text = ""
    if wheels and _SUPPORTED[0] <= here <= _SUPPORTED[1]:
        wheel = f"torch-ocl=={version}+torch{'.'.join(map(str, here))}"
        command = f"pip install '{wheel}' --extra-index-url {wheels}"
        text = f"Take the wheel for it ({command}). Or install"
    wanted = ".".join(map(str, built))
    return (
        f"{text or 'Install'} that torch (pip install 'torch=={wanted}.*'), or build torch_ocl "
        "again, in its source folder: pip install --no-build-isolation --no-deps "
        "--force-reinstall ."
    )


def _series(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("+")[0].split(".")[:2])
