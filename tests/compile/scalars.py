"""Ops of PyTorch's own tests that take a number, with numbers that change between calls."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

#: Ops whose results are random, memory as it was found, or one of several right ones.
LEFT_OUT = ("dropout", "rrelu", "bernoulli", "normal", "uniform", "cauchy", "exponential",
            "geometric", "rand", "multinomial", "empty", "svd", "pca", "pinv",
            "fractional_max_pool",
            # These don't check what they are given.
            "native_batch_norm", "grid_sampler_", "max_pool2d_with_indices_backward")  # fmt: skip

#: Arguments, by the op: dropout's results are random, topk's come in any order without sorted, and
#: what tensor_split takes as a tensor has to be on the host.
ARGUMENTS_LEFT_OUT = {
    ("nn.functional.scaled_dot_product_attention", "dropout_p"),
    ("tensor_split", 2),
    ("topk", 4),
}

#: Calls of a compiled function, by `dynamic`. With None the second has a symbol.
CALLS = {None: 3, True: 2, False: 2}


@dataclasses.dataclass
class Case:
    """A call of an op, one of whose arguments takes another number each time."""

    of: str  # the op's name
    op: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    name: int | str  # of the argument: its position, or its keyword
    values: tuple[Any, ...] = ()

    def call(self, value: Any) -> Any:
        arguments, keywords = list(self.arguments), dict(self.keywords)
        if isinstance(self.name, int):
            arguments[self.name] = value
        else:
            keywords[self.name] = value
        return self.op(*arguments, **keywords)

    def on(self, device: str) -> "Case":
        """The case with copies of its tensors, which have gradients where they can."""

        def copy(t: Any) -> Any:
            if not torch.is_tensor(t):
                return t
            wants = t.is_floating_point() or t.is_complex()
            return t.detach().to(device, copy=True).requires_grad_(wants)

        arguments, keywords = tree_map(copy, (self.arguments, self.keywords))
        return dataclasses.replace(self, arguments=arguments, keywords=keywords)

    def __str__(self) -> str:
        return f"{self.of}({self.name})"

    def value(self, i: int) -> Any:
        return self.values[i % len(self.values)]

    def tensors(self) -> list[torch.Tensor]:
        leaves, _ = tree_flatten((self.arguments, self.keywords))
        return [t for t in leaves if torch.is_tensor(t)]


def ops() -> list[str]:
    known = {op.name for op in op_db if torch.float32 in op.dtypes}
    # Private ops don't check what they are given.
    public = [name for name in known if not name.startswith(("_", "ops."))]
    return sorted(name for name in public if not any(word in name for word in LEFT_OUT))


def cases(name: str) -> list[Case]:
    """A case for each argument of an op that is a number in one of its samples."""
    op = next(op for op in op_db if op.name == name)
    found: dict[tuple[type, int | str], Case] = {}
    for sample in op.sample_inputs("cpu", torch.float32):
        arguments = (sample.input, *sample.args)
        for argument, number in [*enumerate(arguments), *sample.kwargs.items()]:
            key = type(number), argument
            if key[0] not in (float, int, bool) or key in found:
                continue
            if (name, argument) in ARGUMENTS_LEFT_OUT:
                continue
            case = Case(name, op.op, arguments, sample.kwargs, argument)
            case.values = tuple(v for v in changed(number) if is_taken(case, v))
            if len(case.values) > 1 and case.tensors():
                found[key] = case
    return list(found.values())


def changed(number: Any) -> tuple[Any, ...]:
    if isinstance(number, bool):
        return number, not number
    if isinstance(number, int):
        return number, number + 1, number - 1, number + 2
    return tuple(number * f for f in (1.0, 0.5, 0.75, 1.25)) if number else (0.0, 0.5, 0.25)


def is_taken(case: Case, value: Any) -> bool:
    """Whether an op takes a number. Some that it takes have no gradient."""
    on_cpu = case.on("cpu")
    try:
        results([on_cpu], [on_cpu.call(value)])
    except Exception:  # noqa: BLE001 - whatever it is, CPU torch does not do it
        return False
    return True


def function(cases: list[Case], values: list[Any]) -> list[Any]:
    """Products with the numbers beside the ops: only so does a float become a symbol."""
    results = [case.call(value) for case, value in zip(cases, values, strict=True)]
    return [results, [case.tensors()[0] * v for case, v in zip(cases, values, strict=True)]]


def results(cases: list[Case], found: Any) -> list[torch.Tensor]:
    """The results, and the gradients of their sum."""
    inputs = [t for case in cases for t in case.tensors() if t.requires_grad]
    out = [t for t in tree_flatten(found)[0] if torch.is_tensor(t)]
    reals = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in out)
    ends = [t.sum() for t in reals if t.requires_grad]
    grads = torch.autograd.grad(sum(ends), inputs, allow_unused=True) if ends else []
    return [*(t.detach() for t in out), *(t for t in grads if t is not None)]


def check(cases: list[Case], device: str = "ocl", dynamic: bool | None = None) -> None:
    """Compiles one function of all cases, and compares what it returns for each number."""
    torch._dynamo.reset()
    compiled = torch.compile(function, dynamic=dynamic)
    for i in range(CALLS[dynamic]):
        values = [case.value(i) for case in cases]
        on_cpu, here = [c.on("cpu") for c in cases], [c.on(device) for c in cases]
        expected = results(on_cpu, function(on_cpu, values))
        actual = results(here, compiled(here, values))
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a.cpu(), e, equal_nan=True, rtol=1e-3, atol=1e-4)
