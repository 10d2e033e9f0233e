"""Every public name of the package is documented: the API page is made of the docstrings."""

import importlib
import importlib.util
import inspect

import pytest
import torch

#: Where public names are, as tools/docs/api_pages.py has it.
MODULES = {"torch.ocl": torch.ocl, "torch.ocl.tunable": torch.ocl.tunable}
if importlib.util.find_spec("torch_ocl.testing"):
    MODULES["torch_ocl.testing"] = importlib.import_module("torch_ocl.testing")


def public():
    for module, found in MODULES.items():
        own = (n for n, v in vars(found).items() if getattr(v, "__module__", "") == module)
        for name in getattr(found, "__all__", [n for n in own if n[0] != "_"]):
            yield f"{module}.{name}", inspect.getattr_static(found, name, None)


def members(value):
    """The public ones that a class defines itself. Those of nn.Module's interface are known."""
    known = dir(torch.nn.Module) if issubclass(value, torch.nn.Module) else ()
    for name, member in vars(value).items():
        if not name.startswith("_") and name not in known and callable(member):
            yield name, member


@pytest.mark.parametrize(
    "name, value", list(public()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_documented(name, value):
    if value is None:  # torch.ocl.default_generators is made when it is asked for
        value = getattr(torch.ocl, name.rpartition(".")[2])
        assert isinstance(value, tuple)
        return
    assert inspect.getdoc(value), name
    if inspect.isclass(value):
        assert value.__doc__, f"{name} has its base's"
        for member, function in members(value):
            assert inspect.getdoc(function), f"{name}.{member}"


@pytest.mark.parametrize(
    "name, value", list(public()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_typed(name, value):
    """Signatures say what a function takes and gives."""
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        assert signature.return_annotation is not inspect.Signature.empty
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, parameter
