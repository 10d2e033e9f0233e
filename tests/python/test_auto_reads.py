"""torch.ocl.graphs.auto(): what the code that ran reads is compared, wherever it stands."""

import collections
import contextvars
import dataclasses
import enum
import importlib
import operator
import os
import random
import sys
import types

import numpy as np
import pytest
import torch

from tests.python.auto_calls import Calls
from torch_ocl.api.graphs import auto

module = types.ModuleType("settings_of_a_program")
module.__dict__["SCALE"] = 1.0
exec("def helper(x):\n    return x * SCALE\nclass Kind:\n    scale = 1.0", module.__dict__)
sys.modules[module.__name__] = module

SCALE = 1.0
WORDS = {"factor": 1.0}
NUMBERS, LINE, BYTES = {1.0}, collections.deque([1.0]), bytearray(b"\1")
VARIABLE = contextvars.ContextVar("scale")
ARRAY = np.ones(3, dtype=np.float32)


class Config:
    scale = 1.0
    nested = types.SimpleNamespace(scale=1.0)

    @staticmethod
    def fixed():
        return Config.scale

    @classmethod
    def of_class(cls):
        return cls.scale

    @property
    def asked(self):
        return SCALE

    def __getitem__(self, name):
        return SCALE


class Child(Config):
    def base(self):
        return super().asked


@dataclasses.dataclass
class Data:
    scale: float = 1.0


@dataclasses.dataclass(slots=True)
class Slots:
    scale: float = 1.0

    def step(self, x):
        return x * self.scale


class InChild(Slots):
    __slots__ = ("other",)


class Mode(enum.Enum):
    SLOW, FAST = 1, 2


class Layer(torch.nn.Module):
    factor = 1.0

    def forward(self, x):
        return x * SCALE * self.factor


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * SCALE

    @staticmethod
    def backward(ctx, gradient):
        return gradient * SCALE


read_globals = globals
generator = torch.Generator()
config, child, data, layer = Config(), Child(), Data(), Layer()
slots, of_parent, own = Slots(), InChild(), InChild()
mode = [Mode.SLOW]
helpers = [lambda x: x * SCALE]


def outer():
    def inner(x):
        return x * SCALE

    return inner


def set_global(value):
    global SCALE
    SCALE = value


def setter(owner, name):
    return lambda value: setattr(owner, name, value)


def word(text):
    return text


def import_module_there(x):
    import settings_of_a_program

    return x * settings_of_a_program.SCALE


def import_name_there(x):
    from settings_of_a_program import SCALE as scale

    return x * scale


def replace(container):
    def change(value):
        container.clear()
        container.add(value) if isinstance(container, set) else container.append(value)

    return change


#: The step's factor, and what changes it.
READS = {
    "a module's attribute": (lambda x: x * module.SCALE, setter(module, "SCALE")),
    "a module's helper": (lambda x: module.helper(x), setter(module, "SCALE")),
    "a module's class": (lambda x: x * module.Kind.scale, setter(module.Kind, "scale")),
    "a class": (lambda x: x * Config.scale, setter(Config, "scale")),
    "a class by its object": (lambda x: x * config.scale, setter(Config, "scale")),
    "a class by its child": (lambda x: x * child.scale, setter(Config, "scale")),
    "an object in a class": (lambda x: x * Config.nested.scale, setter(Config.nested, "scale")),
    "a static method": (lambda x: x * Config.fixed(), setter(Config, "scale")),
    "a class method": (lambda x: x * Config.of_class(), setter(Config, "scale")),
    "a property": (lambda x: x * config.asked, set_global),
    "super()": (lambda x: x * child.base(), set_global),
    "an item": (lambda x: x * config["any"], set_global),
    "a dataclass": (lambda x: x * data.scale, setter(data, "scale")),
    "slots": (lambda x: x * slots.scale, setter(slots, "scale")),
    "a parent's slots": (lambda x: x * of_parent.scale, setter(of_parent, "scale")),
    "a slot that isn't set": (lambda x: x * getattr(own, "other", 1.0), setter(own, "other")),
    "slots of a method's object": (slots.step, setter(slots, "scale")),
    "a module's forward": (lambda x: layer(x), set_global),
    "a module's class attribute": (lambda x: layer(x), setter(Layer, "factor")),
    "a function of autograd": (lambda x: Scaled.apply(x), set_global),
    "a lambda in a list": (lambda x: helpers[0](x), set_global),
    "a function in a function": (lambda x: outer()(x), set_global),
    "a set": (lambda x: x * sum(NUMBERS), replace(NUMBERS)),
    "a deque": (lambda x: x * LINE[0], replace(LINE)),
    "bytes": (lambda x: x * BYTES[0], lambda v: BYTES.__setitem__(0, int(v))),
    "the environment": (
        lambda x: x * float(os.environ.get("TEST_AUTO_SCALE", "1")),
        lambda v: os.environ.__setitem__("TEST_AUTO_SCALE", str(v)),
    ),
    "a context variable": (lambda x: x * VARIABLE.get(1.0), VARIABLE.set),
    "an array": (lambda x: x * float(ARRAY[0]), lambda v: ARRAY.__setitem__(0, v)),
    "a global by its name": (lambda x: x * globals()["SCALE"], set_global),
    "a global by a name that is made": (lambda x: x * globals()["SCA" + word("LE")], set_global),
    "a local name of a global": (lambda x: x * read_globals()["SCALE"], set_global),
    "a module's variables": (lambda x: x * vars(module)["SCALE"], setter(module, "SCALE")),
    "a module's dictionary": (lambda x: x * module.__dict__["SCALE"], setter(module, "SCALE")),
    "getattr": (lambda x: x * getattr(module, "SCALE"), setter(module, "SCALE")),  # noqa: B009
    "getattr of a name that is made": (
        lambda x: x * getattr(module, word("SCALE")),
        setter(module, "SCALE"),
    ),  # fmt: skip
    "getattr with a default": (
        lambda x: x * getattr(module, word("SCALE"), "".join),
        setter(module, "SCALE"),
    ),  # fmt: skip
    "getattr of one of two names": (
        lambda x: x * getattr(module, word("SCALE") or "OTHER"),
        setter(module, "SCALE"),
    ),  # fmt: skip
    "getattr of a class": (
        lambda x: x * getattr(Config, word("scale")),
        setter(Config, "scale"),
    ),  # fmt: skip
    "an attrgetter": (
        lambda x: x * operator.attrgetter(word("SCALE"))(module),
        setter(module, "SCALE"),
    ),  # fmt: skip
    "an import": (import_module_there, setter(module, "SCALE")),
    "an import of a name": (import_name_there, setter(module, "SCALE")),
    "a comprehension": (lambda x: x * sum(SCALE for _ in range(2)), set_global),
    "an enumeration": (
        lambda x: x * mode[0].value,
        lambda v: mode.__setitem__(0, Mode.FAST if v == 2 else Mode.SLOW),
    ),
}


@pytest.fixture(autouse=True)
def _as_before():
    yield
    for _, change in READS.values():
        change(1.0)


@pytest.mark.parametrize("name", READS)
def test_what_changes_is_seen(name):
    step, change = READS[name]
    call, x = auto(step), torch.ones(3, device="ocl")
    for value in (1.0, 2.0, 3.0, 1.0):
        change(value)
        for _ in range(6):
            assert torch.equal(call(x), step(x)), call.reason
    assert call.replays > 0, call.reason


@pytest.mark.parametrize("name", READS)
def test_what_changes_each_time_is_right(name):
    step, change = READS[name]
    call, x = auto(step), torch.ones(3, device="ocl")
    for i in range(12):
        change(1.0 + i % 5)
        assert torch.equal(call(x), step(x)), call.reason


def test_the_backward_reads():
    def step(x):
        y = x.detach().requires_grad_()
        Scaled.apply(y).sum().backward()
        return y.grad

    call, x = auto(step), torch.ones(3, device="ocl")
    for value in (1.0, 2.0, 3.0):
        set_global(value)
        for _ in range(6):
            assert torch.equal(call(x), step(x)), call.reason


@pytest.mark.parametrize(
    "read",
    [
        lambda: sys.modules["settings_of_a_program"].SCALE,
        lambda: sys.modules[word("settings_of_a_program")].SCALE,
        lambda: importlib.import_module("settings_of_a_program").SCALE,
        lambda: __import__("settings_of_a_program").SCALE,
    ],
)
def test_modules_by_name(read):
    call, x = auto(lambda x: x * read()), torch.ones(3, device="ocl")
    for value in (1.0, 2.0, 3.0):
        module.SCALE = value
        for _ in range(6):
            assert torch.equal(call(x), x * value), call.reason
    assert call.replays == 0 and "by their names" in call.reason
    module.SCALE = 1.0


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.random(),
        lambda: random.randint(1, 9),
        lambda: np.random.rand(),
        lambda: np.random.default_rng(3).random() + np.random.random(),
        lambda: os.urandom(1)[0],
        lambda: torch.rand(()).item(),
        lambda: (torch.rand([8]) >= 0.5).float().dot(torch.arange(8.0)).item(),
        lambda: torch.randint(1, 10, (1,)).item(),
        lambda: torch.empty(1).uniform_().item(),
        lambda: torch.distributions.Beta(1.0, 1.0).sample().item(),
        lambda: torch.rand((), generator=generator).item(),
    ],
)
def test_numbers_of_other_generators_are_no_replays(draw):
    draw()  # the first one seeds, which other modules take part in
    call, x = auto(lambda x: x * draw()), torch.ones(3, device="ocl")
    assert len({call(x)[0].item() for _ in range(12)}) > 4
    assert call.replays == 0 and call.reason


def test_numbers_that_the_captured_call_alone_draws():
    calls = Calls()

    def step(x):
        calls.count += 1
        return x * (torch.rand(()).item() if calls.count >= 4 else 1.0)

    call, x = auto(step), torch.ones(3, device="ocl")
    assert len({call(x)[0].item() for _ in range(12)}) == 10
    assert call.replays == 0 and "CPU torch's random numbers" in call.reason


def test_random_numbers_around_the_calls():
    """A replay needs no other state than the step's own."""
    call, x = auto(lambda x: x * 2), torch.ones(3, device="ocl")
    for _ in range(8):
        torch.rand(2)
        call(x)
    assert call.replays == 5, call.reason
