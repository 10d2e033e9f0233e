"""The class of a benchmark case, and the list they register in."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

# Without torch_ocl: this is for worker.py, too.

CASES = []
#: Parts of its bytes that a case reads and writes: a copy, and what writes next to nothing.
COPY, READ = (1, 1), (1, 0)
#: The tolerance of long sums in another order.
LOOSE = {"rtol": 1e-3, "atol": 1e-3}
#: Families whose cases call models, which --compile is for.
MODELS = ("networks", "training", "large", "inference")
_wrap = lambda model: model  # noqa: E731


@dataclass
class Case:
    """One measurement.

    make(device) prepares the inputs there (the same on every device) and returns the call to time.
    bytes and flops are what the call must move and compute at least, for the roofline; `moves` says
    how many parts of the bytes are read and how many written; `repeats` is how many ops of interest
    one call holds (times are per op). exact() gives the expected result
    where CPU torch's own, in the case's dtype, is poor. `for_gpus`: too much for a CPU.
    Engines for inference take network(), a model and an input on the CPU, or gguf(), a path.
    """

    name: str
    family: str
    make: Callable
    dtype: str = "float32"
    bytes: float = 0
    flops: float = 0
    moves: tuple[int, int] = COPY
    repeats: int = 1
    random: bool = False
    for_gpus: bool = False
    target: float = 1.0
    tolerance: dict = field(default_factory=dict)
    exact: Callable | None = None
    network: Callable | None = None
    gguf: Callable | None = None


def add(name, family, make, **properties):
    """Registers a case."""
    CASES.append(Case(name, family, make, **properties))


def compile_models(chosen):
    """Says whether the cases that are made from now on compile their models."""
    global _wrap
    _wrap = torch.compile if chosen else lambda model: model


def wrapped(model):
    """A case's model as it is called."""
    return _wrap(model)


def tensors(device, *shapes, dtype=torch.float32):
    """Normal numbers, the same on every device."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=generator) for shape in shapes]
    return [t.to(dtype).to(device) for t in made]
