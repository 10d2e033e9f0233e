"""Every op of PyTorch's own tests that takes a float, compiled with one that changes.

`pytest tests/compile/test_scalar_sweep.py -k NAME` takes those with NAME in their names.
"""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

#: The float of the samples is multiplied by each. An op may refuse some.
FACTORS = (1.0, 0.5, 0.75, 1.25)

#: Ops whose results are random, memory as it was found, or one of several right ones.
LEFT_OUT = ("dropout", "rrelu", "bernoulli", "normal", "uniform", "cauchy", "exponential",
            "geometric", "rand", "multinomial", "empty", "svd", "pca", "pinv")  # fmt: skip


def arguments(sample):
    """(leaves, structure, positions of floats) of a sample's arguments."""
    leaves, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
    return leaves, structure, [i for i, leaf in enumerate(leaves) if type(leaf) is float]


def first_sample(op):
    """The first sample with a tensor and a float, or None."""
    for sample in op.sample_inputs("cpu", torch.float32):
        leaves, _, floats = found = arguments(sample)
        if floats and any(torch.is_tensor(leaf) for leaf in leaves):
            return found
    return None


def ops():
    known = {op.name: op for op in reversed(op_db) if torch.float32 in op.dtypes}
    return [op for name, op in sorted(known.items()) if not any(w in name for w in LEFT_OUT)]


def moved(leaves, device):
    return [t.detach().to(device, copy=True) if torch.is_tensor(t) else t for t in leaves]


def results(function, leaves, factor):
    """The results, and the gradients of their sum."""
    inputs = [t.requires_grad_() for t in leaves if torch.is_tensor(t) and t.is_floating_point()]
    out = [t for t in tree_flatten(function(leaves, factor))[0] if torch.is_tensor(t)]
    ends = [t.sum() for t in out if t.requires_grad]
    grads = torch.autograd.grad(sum(ends), inputs, allow_unused=True) if ends else []
    return [*(t.detach() for t in out), *(t for t in grads if t is not None)]


@pytest.mark.slow
@pytest.mark.parametrize("op", ops(), ids=lambda op: op.name)
def test_floats_that_change(op, tmp_path, monkeypatch):
    found = first_sample(op)
    if found is None:
        return
    leaves, structure, floats = found
    scaled = next(i for i, leaf in enumerate(leaves) if torch.is_tensor(leaf))

    def function(leaves, factor):
        changed = [leaf * factor if i in floats else leaf for i, leaf in enumerate(leaves)]
        x, args, kwargs = tree_unflatten(changed, structure)
        return op.op(x, *args, **kwargs), leaves[scaled] * factor

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    compiled = torch.compile(function, dynamic=True)
    for factor in FACTORS:
        try:
            expected = results(function, moved(leaves, "cpu"), factor)
        except Exception:  # noqa: BLE001, S112 - the op refuses the number
            continue
        actual = results(compiled, moved(leaves, "ocl"), factor)
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a.cpu(), e, equal_nan=True, rtol=1e-3, atol=1e-4)
