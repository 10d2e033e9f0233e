"""Every op of PyTorch's own list with its operands, the results' gradients among them, in mixes of
dense layouts, each dimension in turn of size 1, with a NaN and an infinity, against CPU torch.

The values expected are those of contiguous operands: CPU torch itself misreads some layouts where a
dimension has size 1, as that of batch norm's gradient. Strides are CPU torch's own.
"""

import dataclasses
import itertools
import random

import pytest
import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from tests.coverage import checks, gaps, gauge, scope, ties
from tests.coverage.comparison import RANDOM_OPS
from tests.coverage.comparison import tensors as results_in
from tests.layouts import dense_strides, laid_out, told_strides

DTYPE = torch.float32
#: Mixes of layouts tried for each op; what is compiled for one mostly serves the others.
LIMIT = 60
SLOW_LIMIT = 1000

#: The result is what strides mean there, or what they leave of a tensor that is resized.
ABOUT_STRIDES = {"as_strided", "as_strided_copy", "resize_as_"}
#: CPU torch reads past the operands where their sizes don't belong together.
NEVER_NARROWED = {
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "_segment_reduce.lengths",
    "_segment_reduce.offsets",
    "lu_unpack",
    "native_batch_norm",
    "nn.functional.ctc_loss",
}
#: Gradients whose strides are what a fused formula leaves, on CPU torch what a composed one does.
OTHER_GRADIENT_STRIDES = {
    "nn.functional.binary_cross_entropy_with_logits",
    "nn.functional.rms_norm",
}
#: Beginnings of the names of ops that aren't given NaNs and infinities, and why.
KEPT_FINITE = {
    # CPU torch's vectors give another result than its single elements do, or NaN for a limit.
    "nn.functional.gelu",
    "nn.functional.hard",
    "nn.functional.relu6",
    "nn.functional.softshrink",
    # Its means past an infinity are NaN.
    "native_group_norm",
    "std_mean",
    "var_mean",
    # It reads outside of the input where a coordinate is NaN.
    "grid_sampler",
    "nn.functional.grid_sample",
    # It makes an integer of a degree.
    "special.chebyshev",
    "special.hermite",
    "special.laguerre",
    "special.legendre",
    "special.shifted_chebyshev",
    # Which sums are NaN depends on the algorithm, as do products with padding.
    "cholesky_inverse",
    "fft.",
    "linalg.",
    "nn.functional.conv",
    "ormqr",
    "qr",
    "triangular_solve",
}

GAPS = gaps.load()
OPS = {
    scope.full_name(op): op
    for op in scope.in_scope()
    if DTYPE in op.supported_dtypes("cpu")
    and op.name not in RANDOM_OPS | ABOUT_STRIDES
    and gaps.reason(GAPS, scope.full_name(op), "float32") is None
}


@dataclasses.dataclass
class Case:
    """A sample with contiguous operands, what flows back into its results, CPU torch's answer."""

    sample: object
    cotangents: list
    expected: tuple


def operands(sample):
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def with_operands(sample, replacements):
    left = iter(replacements)
    return sample.transform(lambda leaf: next(left) if isinstance(leaf, torch.Tensor) else leaf)


def answer(op, sample, cotangents=None):
    """The results and, with `cotangents`, which may be a function of the results, the gradients of
    what requires them."""
    results = op(sample.input, *sample.args, **sample.kwargs)
    leaves = [t for t in operands(sample) if t.requires_grad]
    outs = results_in(sample.output_process_fn_grad(results)) if leaves else []
    outs = [t for t in outs if isinstance(t, torch.Tensor) and t.requires_grad]
    cotangents = cotangents(outs) if callable(cotangents) else cotangents
    grads = torch.autograd.grad(outs, leaves, cotangents, allow_unused=True) if outs else []
    return results, grads, cotangents


def chosen(op):
    """The sample with the most operands, and the one with the most dimensions, of small ones."""
    grad = op.supports_autograd and DTYPE in op.supported_backward_dtypes("cpu")
    every = []  # with what they are ranked by
    for sample in itertools.islice(op.sample_inputs("cpu", DTYPE, requires_grad=grad), 200):
        given = operands(sample)
        if all(t.layout is torch.strided and t.numel() for t in given):
            dims, elements = max((t.dim() for t in given), default=0), sum(t.numel() for t in given)
            if dims > 0 and elements < 5000:
                every.append((len(given), dims, -elements, sample))
    if not every:
        return []
    most = max(every, key=lambda s: s[:3])
    deepest = max(every, key=lambda s: (s[1], s[0], s[2]))
    return [most[3]] if most is deepest else [most[3], deepest[3]]


def shapes(given):
    """The operands' shapes; and with a dimension of all operands that have as many, with a size
    wherever it occurs, and with a dimension of one operand, narrowed to 1."""
    whole = [tuple(t.shape) for t in given]
    found = [whole]
    for dims, d in {(len(s), d) for s in whole for d in range(len(s))}:
        found.append(
            [(*s[:d], 1, *s[d + 1 :]) if len(s) == dims else s for s in whole],
        )
    for size in {n for s in whole for n in s}:
        found.append([tuple(1 if n == size else n for n in s) for s in whole])
    for i, s in enumerate(whole):
        for d in range(len(s)):
            found.append([*whole[:i], (*s[:d], 1, *s[d + 1 :]), *whole[i + 1 :]])
    return list(dict.fromkeys(map(tuple, found)))


def narrowed(t, shape):
    part = t.detach()[tuple(slice(0, n) for n in shape)]
    return part.clone(memory_format=torch.contiguous_format).requires_grad_(t.requires_grad)


def with_not_finite(t):
    if not t.is_floating_point() or t.numel() < 3:
        return t
    values = t.detach().clone()
    values.view(-1)[t.numel() // 2] = torch.nan
    values.view(-1)[t.numel() // 3] = torch.inf
    return values.requires_grad_(t.requires_grad)


def random_like(outs):
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in outs]


def cases(op):
    """Those that CPU torch takes, of the samples' operands in all shapes."""
    name = scope.full_name(op)
    for sample in chosen(op):
        given = operands(sample)
        for shape in shapes(given)[: 1 if name in NEVER_NARROWED else None]:
            finite = [narrowed(t, s) for t, s in zip(given, shape, strict=True)]
            versions = [finite]
            if not name.startswith(tuple(KEPT_FINITE)):
                versions.append([with_not_finite(t) for t in finite])
            for version in versions:
                contiguous = with_operands(sample, version)
                try:
                    results, grads, cotangents = answer(op, contiguous, random_like)
                except Exception:  # noqa: BLE001 - sizes that don't belong together, mostly
                    continue
                if len(version) + len(cotangents or []) > 1:
                    yield Case(contiguous, cotangents or [], (results, grads))


def mixes(choices):
    """One of the choices for each: all the first, all the second, ..., and for each in turn one
    where the others have the first, and the first where the others have one."""
    longest = max(map(len, choices))
    found = [[c[min(k, len(c) - 1)] for c in choices] for k in range(longest)]
    for i, own in enumerate(choices):
        found += [[k if j == i else c[0] for j, c in enumerate(choices)] for k in own[1:]]
        for k in range(1, longest):
            others = [c[min(k, len(c) - 1)] for c in choices]
            found.append([*others[:i], own[0], *others[i + 1 :]])
    return list(dict.fromkeys(map(tuple, found)))


def on_device(op, sample):
    storages = {}
    moved = sample.transform(lambda leaf: checks.to_device(leaf, storages))
    if op.name in checks.ARGUMENTS_ON_HOST:
        moved.args = sample.args
    return moved


def assert_values(op, sample, actual, expected, what):
    """A layout that is misread shows in the first digits: the tolerance is for sums that cancel."""
    actual, expected = (gauge.invariants(op, results_in(r)) for r in (actual, expected))
    assert len(actual) == len(expected), what
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if not isinstance(e, torch.Tensor):
            assert a == e or (a != a and e != e), what
            continue
        assert a.device.type == "ocl", what
        if sample is not None and number == ties.positions_of(op, expected):
            a, e = (ties.found_at(op, sample, t) for t in (a, e))
        a, e = (t if t.layout == torch.strided else t.to_dense() for t in (a, e))
        a, e = (t.detach().cpu().resolve_conj().resolve_neg() for t in (a, e))
        limits = {"rtol": 0, "atol": 0}
        if e.is_floating_point() or e.is_complex():
            largest = max(e[e.isfinite()].abs().tolist(), default=0)
            limits = {"rtol": 1e-4, "atol": 1e-5 * max(1, largest)}
        message = f"{what}, result {number}"
        assert_close(a, e, equal_nan=True, **limits, msg=lambda text, m=message: f"{m}: {text}")


def assert_strides(actual, expected, what):
    for number, (a, e) in enumerate(zip(results_in(actual), results_in(expected), strict=True)):
        if isinstance(e, torch.Tensor) and e.layout is torch.strided:
            assert told_strides(a) == told_strides(e), f"{what}, result {number}"


def check(op, case, layouts):
    sample, count = case.sample, len(operands(case.sample))
    given = [*operands(sample), *case.cotangents]
    what = f"shapes {[tuple(t.shape) for t in given]}, strides {layouts}"
    laid = [laid_out(t, strides) for t, strides in zip(given, layouts, strict=True)]
    host_sample = with_operands(sample, laid[:count])
    try:
        host_results, host_grads, _ = answer(op, host_sample, laid[count:])
    except Exception:  # noqa: BLE001 - a view that those strides don't allow
        return
    device_cotangents = [checks.to_device(t) for t in laid[count:]]
    results, grads, _ = answer(op, on_device(op, host_sample), device_cotangents)
    expected_results, expected_grads = case.expected
    assert_values(op, sample, results, expected_results, what)
    assert_strides(results, host_results, what)
    assert_values(op, None, *without_missing(grads, expected_grads), f"{what}, gradients")
    if scope.full_name(op) not in OTHER_GRADIENT_STRIDES:
        assert_strides(*without_missing(grads, host_grads), f"{what}, gradients")


def without_missing(actual, expected):
    assert [g is None for g in actual] == [g is None for g in expected]
    return [[g for g in grads if g is not None] for grads in (actual, expected)]


def sweep(name, limit):
    op = OPS[name]
    torch.manual_seed(0)
    pairs = []
    for case in cases(op):
        given = [*operands(case.sample), *case.cotangents]
        pairs += [(case, mix) for mix in mixes([dense_strides(t.shape) for t in given])]
    if len(pairs) > limit:
        pairs = random.Random(0).sample(pairs, limit)
    for case, mix in pairs:
        check(op, case, mix)


@pytest.mark.parametrize("name", OPS)
def test_layouts(name):
    sweep(name, LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_all_layouts(name):
    sweep(name, SLOW_LIMIT)
