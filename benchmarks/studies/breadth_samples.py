"""The tensors that `python -m benchmarks.studies.breadth` gives to ops, and the list of its ops."""

import functools

import torch

#: The elements of most samples: 16 MiB of float32, what a processor's caches may hold.
ELEMENTS = 1 << 22


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def rand(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape) + 1))


def integers(high, *shape, low=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(sum(shape) + 2))


def positive_definite(*shape):
    matrix = randn(*shape)
    return matrix @ matrix.mT + 5 * torch.eye(shape[-1])


#: name -> how it is made
SAMPLES = {
    "x": lambda: randn(ELEMENTS),
    "y": lambda: rand(ELEMENTS) + 0.1,
    "share": lambda: rand(ELEMENTS) * 0.98 + 0.01,
    "few": lambda: rand(ELEMENTS // 8) * 3 + 0.1,
    "more": lambda: rand(ELEMENTS // 8) * 3 + 1.5,
    "mask": lambda: rand(ELEMENTS) > 0.5,
    "none": lambda: torch.zeros(ELEMENTS, dtype=torch.bool),
    "int64": lambda: integers(1000, ELEMENTS, low=1),
    "small": lambda: integers(50, ELEMENTS, low=1),
    "int32": lambda: integers(1000, ELEMENTS).int(),
    "uint8": lambda: integers(256, ELEMENTS).to(torch.uint8),
    "bfloat16": lambda: randn(ELEMENTS, dtype=torch.bfloat16),
    "float16": lambda: randn(ELEMENTS, dtype=torch.float16),
    "complex": lambda: torch.complex(randn(ELEMENTS // 2), rand(ELEMENTS // 2) + 0.1),
    "half_x": lambda: randn(ELEMENTS // 2),
    "half_y": lambda: rand(ELEMENTS // 2) + 0.1,
    "square": lambda: randn(2048, 2048),
    "positive": lambda: rand(2048, 2048) + 0.1,
    "rows": lambda: integers(2048, 2048),
    "order": lambda: torch.randperm(2048, generator=torch.Generator().manual_seed(0)),
    "places": lambda: integers(2048, 2048, 2048),
    "other_places": lambda: integers(2048, 2048, 2048).t().contiguous(),
    "vector": lambda: randn(2048),
    "table": lambda: randn(1024, 1024),
    "sorted": lambda: randn(65536).sort().values,
    "bounds": lambda: torch.linspace(0, 1, 100),
    "long": lambda: randn(1 << 20),
    "long_int": lambda: integers(1000, 1 << 20),
    "logits": lambda: randn(32, 50257),
    "points": lambda: randn(1024, 64),
    "triples": lambda: randn(1 << 19, 3),
    "batch": lambda: randn(64, 64, 64),
    "spd": lambda: positive_definite(64, 64, 64),
    "spd_512": lambda: positive_definite(512, 512),
    "tall": lambda: randn(512, 64),
    "tall_right": lambda: randn(512, 8),
    "matrix_512": lambda: randn(512, 512) + 50 * torch.eye(512),
    "upper": lambda: randn(1024, 1024).triu() + 50 * torch.eye(1024),
    "images": lambda: randn(8, 64, 56, 56),
    "images_last": lambda: randn(8, 64, 56, 56).to(memory_format=torch.channels_last),
    "volumes": lambda: randn(4, 16, 16, 32, 32),
    "signals": lambda: randn(16, 64, 512),
    "classes": lambda: integers(100, 1024),
    "bags": lambda: integers(2048, 1024, 32),
    "speech": lambda: randn(100, 16, 30).log_softmax(2),
}


@functools.cache
def sample(name):
    """A tensor on the CPU, the same for everyone who asks."""
    return SAMPLES[name]()


#: name -> (function of tensors, names of its samples, whether the result may differ)
OPS = {}


def add(name, function, inputs, differs=False):
    """`inputs`: names of samples, in one string. `differs`: by random numbers, signs or a half
    type's rounding."""
    OPS[name] = function, inputs.split(), differs


def functions(names, inputs, of=torch, prefix="", differs=False):
    """Several functions of a module with the same inputs."""
    for name in names.split():
        add(prefix + name, getattr(of, name), inputs, differs)
