"""Integrations come with the import of a library, whenever that is, and change nothing else."""

import os
import subprocess
import sys
import textwrap

import pytest

from tests import fresh
from tests.integrations import checklist
from torch_ocl.integrations.torchvision import SCHEMAS

# A library of which Ignite's integration finds what it is looking for.
BASE = """
{before}
import torch

class _SerialModel:
    def device(self):
        return torch.device("cpu")
{after}
"""


@pytest.fixture
def library(tmp_path):
    """Makes a stand-in for Ignite; returns a function that runs code beside it."""
    folder = tmp_path / "ignite" / "distributed" / "comp_models"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").write_text("")

    def run(code, before="", after="", **environment):
        text = BASE.format(before=before, after=after)
        (folder / "base.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"TORCH_OCL_INTEGRATIONS": "always"} | environment,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr

    return run


BEFORE = "from ignite.distributed.comp_models.base import _SerialModel as model, torch\n"
PRINT = "print(model().device())"


@pytest.mark.parametrize(
    "imports",
    [
        "import torch\n" + BEFORE,
        BEFORE,  # which imports torch, and is halfway loaded then
    ],
)
def test_a_library_is_changed_when_it_is_imported(library, imports):
    assert library(imports + PRINT)[0] == "ocl"


def test_a_library_that_was_there_first(library):
    code = BEFORE + "print(model().device()); import torch_ocl; print(model().device())"
    out, _ = library(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert out.split() == ["cpu", "ocl"]


@pytest.mark.parametrize("mode, device", [("off", "cpu"), ("explicit", "cpu"), ("always", "ocl")])
def test_modes(library, mode, device):
    assert library(BEFORE + PRINT, TORCH_OCL_INTEGRATIONS=mode)[0] == device


def test_an_unknown_mode_is_said(library):
    _, error = library(BEFORE, TORCH_OCL_INTEGRATIONS="maybe")
    assert "TORCH_OCL_INTEGRATIONS=maybe: it is off, explicit, auto, always" in error


def test_auto_goes_by_the_kind_of_device(library):
    code = """
    import torch
    from torch_ocl import _C
    _C.device_types = lambda: {types}
    from ignite.distributed.comp_models.base import _SerialModel as model
    print(model().device(), model().device(), torch.ocl.is_initialized())
    """
    out, error = library(code.format(types=["gpu", "cpu"]), TORCH_OCL_INTEGRATIONS="auto")
    assert out == "ocl ocl False" and error == ""
    out, error = library(code.format(types=["cpu"]), TORCH_OCL_INTEGRATIONS="auto")
    assert out == "cpu cpu False"
    assert error.count("torch_ocl: Ignite chose the CPU") == 1 and 'device="ocl"' in error
    environment = {"TORCH_OCL_INTEGRATIONS": "auto", "ACCELERATE_TORCH_DEVICE": "ocl"}
    assert library(code.format(types=["cpu"]), **environment) == ("cpu cpu False", "")


def test_without_a_device_nothing_is_said(library):
    environment = {"TORCH_OCL_INTEGRATIONS": "auto", "TORCH_OCL_LOADER": "/nonexistent.so"}
    assert library(BEFORE + PRINT, **environment) == ("cpu", "")


def test_types_of_devices_are_known_without_opencl():
    code = """
    import torch
    from torch_ocl import _C
    before = _C.device_types()
    assert not torch.ocl.is_initialized()
    torch.ocl.init()
    assert _C.device_types() == before
    assert before == [torch.ocl.get_device_properties(i).type for i in range(len(before))]
    assert len(before) == torch.ocl.device_count() > 0
    """
    done = fresh.run_script(textwrap.dedent(code))
    assert done.returncode == 0, done.stderr


TORCHVISION = """
def _has_ops():
    return False
upstream = _has_ops
"""
# As the compiled part declares them.
WITH_SCHEMAS = f"""
import torch
library = torch.library.Library("torchvision", "DEF")
for schema in {SCHEMAS!r}:
    library.define(schema)
def _has_ops():
    return True
upstream = _has_ops
"""
TORCHAUDIO = """
def _load_lib(name):
    raise OSError("libcudart.so: cannot open shared object file")
upstream = _load_lib
"""
TRY = """
import torch
import torchvision.extension as vision, torchaudio._extension.utils as audio
try:
    loaded = audio._load_lib("libtorchaudio")
except OSError:
    loaded = "raised"
print(vision._has_ops is vision.upstream, hasattr(torch.ops.torchvision, "roi_align"))
print(audio._load_lib is audio.upstream, loaded, hasattr(torch.ops.torchaudio, "rnnt_loss_forward"))
"""


@pytest.mark.parametrize(
    "mode, printed",
    [("off", "True False True raised False"), ("explicit", "False True False False True")],
)
def test_off_replaces_no_loader(library, tmp_path, mode, printed):
    """torchvision's and torchaudio's, whose compiled parts can't be loaded here."""
    sources = {
        "torchvision/extension.py": TORCHVISION,
        "torchvision/__init__.py": "",
        "torchaudio/_extension/utils.py": TORCHAUDIO,
        "torchaudio/_extension/__init__.py": "",
        "torchaudio/__init__.py": "",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert library(TRY, TORCH_OCL_INTEGRATIONS=mode)[0].split() == printed.split()


def test_kernels_are_there_with_off(library, tmp_path):
    """An op that the library declares keeps its function for other devices."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("from torchvision import extension")
    (tmp_path / "torchvision" / "extension.py").write_text(WITH_SCHEMAS)
    code = """
    import torch, torchvision
    boxes = torch.tensor([[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]).to("ocl")
    scores = torch.tensor([0.5, 0.9, 0.7]).to("ocl")
    print(torch.ops.torchvision.nms(boxes, scores, 0.5).tolist())
    print(torchvision.extension._has_ops is torchvision.extension.upstream)
    """
    out, _ = library(code, TORCH_OCL_INTEGRATIONS="off")
    assert out == "[1, 2]\nTrue"


@pytest.mark.parametrize("verbose", ["", "integrations", "all"])
def test_a_library_of_another_shape_is_left_alone(library, verbose):
    code = BEFORE + "import torch_ocl._import_hook as h; print(model().other)"
    out, error = library(code, after="    device, other = None, 3", TORCH_OCL_VERBOSE=verbose)
    assert out == "3"
    line = "ignite.distributed.comp_models.base: left as it is: _SerialModel has no device"
    assert error.count(line) == bool(verbose)


def test_a_module_that_can_not_be_loaded(library):
    code = """
    import torch, sys
    try:
        import ignite.distributed.comp_models.base
    except ValueError as error:
        print(error, "ignite.distributed.comp_models.base" in sys.modules)
    """
    assert library(code, before="raise ValueError('broken')")[0] == "broken False"


def test_what_importlib_tells_is_as_without(library):
    code = """
    import importlib.util, pickle, torch, ignite
    from importlib.machinery import ModuleSpec, SourceFileLoader
    name = "ignite.distributed.comp_models.base"
    assert importlib.util.find_spec(name).origin.endswith("base.py")
    import ignite.distributed.comp_models.base as base
    assert base._SerialModel().device().type == "ocl", "asking for the spec was no import"
    assert type(base.__spec__) is ModuleSpec and not base.__spec__._initializing
    assert type(base.__loader__) is SourceFileLoader and base.__loader__ is base.__spec__.loader
    assert "class _SerialModel" in base.__loader__.get_source(name)
    method = base._SerialModel.device
    assert method.__qualname__ == "_SerialModel.device" and method.__module__ == name
    assert type(pickle.loads(pickle.dumps(base._SerialModel()))) is base._SerialModel
    try:
        import ignite.nothing
    except ModuleNotFoundError as error:
        assert error.name == "ignite.nothing"
    """
    library(code)


def test_a_function_that_was_imported_by_name_before(library):
    """accelerate's, to which transformers gives another name."""
    code = """
    import sys, types
    first, second = types.ModuleType("first"), types.ModuleType("second")
    first.f = second.g = lambda: 1
    sys.modules |= {"first": first, "second": second}
    from torch_ocl import _import_hook as _hooks
    from torch_ocl.integrations import _patches
    _hooks._is_late = True
    _patches.wrap(first, "f", lambda upstream: lambda: upstream() + 1)
    assert first.f() == second.g() == 2
    """
    done = fresh.run_script(textwrap.dedent(code))
    assert done.returncode == 0, done.stderr


def test_admitted_among_devices():
    from torch_ocl.integrations._patches import Absent, admit

    class Kind:
        def known(self, name):
            assert name not in ("meta", "fake")
            return name in {"cuda", "xpu"} or any(name == known for known in ("cuda", "xpu", "x"))

    before = Kind.known
    admit(Kind, "known", {"cuda", "xpu"})
    assert Kind.known is before
    assert Kind().known("ocl") and Kind().known("xpu") and not Kind().known("cpu")
    with pytest.raises(Absent):
        admit(Kind, "known", {"cuda", "nothing"})
    with pytest.raises(Absent):
        admit(Kind, "other", {"cuda"})


IMPORTED = sorted(
    {"pytorch-ignite": "ignite"}.get(name, name.replace("-", "_"))
    for name in checklist.pinned()
    if {"pytorch-ignite": "ignite"}.get(name, name.replace("-", "_"))
    in __import__("torch_ocl.integrations", fromlist=["LIBRARIES"]).LIBRARIES
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*IMPORTED, "diffusers", "transformers", "safetensors.torch"])
def test_importing_a_library_starts_no_opencl(name):
    code = f"""
import torch, {name}
print(torch.ocl.is_initialized())
"""
    done = fresh.run_script(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "False"


def test_what_torchvisions_loader_says_is_told(library, tmp_path):
    """By an op on the CPU, which has no function without the compiled part."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("from torchvision import extension")
    path = 'def _get_extension_path(name):\n    return "/nonexistent/_C.so"\n'
    (tmp_path / "torchvision" / "extension.py").write_text(TORCHVISION + path)
    code = """
    import torch, torchvision
    boxes = torch.rand(3, 4)
    try:
        torch.ops.torchvision.nms(boxes, boxes[:, 0], 0.5)
    except RuntimeError as error:
        print(type(error).__name__, error)
    print(torch.ops.torchvision.nms(boxes.to("ocl"), boxes[:, 0].to("ocl"), 0.5).device)
    """
    out, _ = library(code)
    error, device = out.splitlines()
    assert error.startswith("RuntimeError torchvision::nms has no function for the CPU here")
    assert "/nonexistent/_C.so: cannot open shared object file" in error
    assert "pip install" in error and device == "ocl:0"
