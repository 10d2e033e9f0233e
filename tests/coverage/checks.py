"""The checks of the op matrix: one OpInfo and dtype against CPU torch.

Every check raises AssertionError (or whatever the op raised) on failure and returns the number of
samples it looked at.
"""

import functools
import itertools
import numbers

import torch
from torch.utils._pytree import tree_map

from tests.coverage import forward_ad, scope, ties
from tests.coverage.comparison import (
    DEVICE,
    OUT_LEFT_ALONE,
    RANDOM_OPS,
    TAKEN_BEYOND,
    compare,
    compare_properties,
    widened,
)

#: Ops whose arguments after the input are on the CPU, as sections that decide shapes are.
ARGUMENTS_ON_HOST = {"tensor_split"}


def to_device(value, storages=None):
    """A value moved to the device: sizes, strides, offset and overlap of tensors are kept.

    `storages` remembers what was moved, so that tensors which share memory still do.
    """
    storages = {} if storages is None else storages

    def move(leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.device.type == "meta":
            return torch.device(DEVICE) if isinstance(leaf, torch.device) else leaf
        source = leaf.detach()
        conj, neg = source.is_conj(), source.is_neg()
        if conj:
            source = source.conj()
        if neg:
            source = torch._neg_view(source)
        if source.layout is not torch.strided:
            return source.to(DEVICE).requires_grad_(leaf.requires_grad)
        count = source.untyped_storage().nbytes() // max(source.element_size(), 1)
        key = (source.untyped_storage().data_ptr(), source.dtype)
        if key not in storages or not key[0]:
            storages[key] = source.as_strided((count,), (1,), 0).to(DEVICE)
        whole = storages[key]
        moved = whole.as_strided(source.size(), source.stride(), source.storage_offset())
        if conj:
            moved = moved.conj()
        if neg:
            moved = torch._neg_view(moved)
        return moved.requires_grad_(leaf.requires_grad)

    return tree_map(move, value)


def samples(op, dtype, limit, requires_grad=False):
    """At most `limit` samples, spread evenly over the OpInfo's list: its ends differ most."""
    everything = list(
        itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), 400)
    )
    if len(everything) <= limit:
        return everything
    step = (len(everything) - 1) / max(limit - 1, 1)
    return [everything[round(i * step)] for i in range(limit)]


def _call(function, sample):
    return function(sample.input, *sample.args, **sample.kwargs)


def _wide(op, sample, dtype):
    """A function that computes the op's result in double precision, where that is the reference."""
    wide = widened(sample, op, dtype)
    return None if wide is None else lambda: _call(op, wide)


def _clone(sample):
    return sample.transform(
        lambda leaf: (
            leaf.clone() if isinstance(leaf, torch.Tensor) and not leaf.requires_grad else leaf
        )
    )


def _on_device(sample, op):
    """The sample with everything on the device, and the device named where the CPU was."""
    storages = {}
    moved = sample.transform(lambda leaf: to_device(leaf, storages))
    leaves = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    is_factory = isinstance(sample.input, numbers.Number) and not op.name.startswith("__")
    if "device" in moved.kwargs or (
        is_factory and not any(isinstance(leaf, torch.Tensor) for leaf in leaves)
    ):
        moved.kwargs["device"] = DEVICE
    if op.name in ARGUMENTS_ON_HOST:
        moved.args = sample.args
    moved.args = tuple(
        DEVICE if isinstance(argument, str) and argument == "cpu" else argument
        for argument in moved.args
    )
    return moved


def _run_both(on_host, on_device, what):
    """(host result, device result), or None if the CPU refuses and so does the device."""
    try:
        expected = on_host()
    except Exception as error:  # noqa: BLE001 - whatever CPU torch raises is what is wanted
        _expect_failure(on_device, error, what)
        return None
    return expected, on_device()


def check_forward(op, dtype, limit):
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit)):
        device_sample = _on_device(sample, op)
        actual = _call(op, device_sample)
        expected = _call(op, sample)
        wide = _wide(op, sample, dtype)
        compare(actual, expected, op, dtype, f"forward, sample {number}", wide, sample)
        compare_properties((actual, device_sample), (expected, sample), f"forward, sample {number}")
        count += 1
    return count


def check_noncontiguous(op, dtype, limit):
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit)):
        if not _is_strided(sample.input):  # strides are for dense tensors
            continue
        strided = sample.noncontiguous()
        what = f"non-contiguous, sample {number}"
        device_sample = _on_device(strided, op)
        both = _run_both(
            lambda s=strided: _call(op, s),
            lambda s=device_sample: _call(op, s),
            what,
        )
        if both is not None:
            compare(both[1], both[0], op, dtype, what, _wide(op, strided, dtype), strided)
            compare_properties((both[1], device_sample), (both[0], strided), what)
        count += 1
    return count


def check_out(op, dtype, limit):
    if not op.supports_out:
        return 0
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit)):
        expected = _call(op, sample)
        leaves = expected if isinstance(expected, tuple | list) else (expected,)
        if not all(isinstance(leaf, torch.Tensor) and _is_strided(leaf) for leaf in leaves):
            continue

        for make in (_dense_out, _strided_out):
            _check_one_out(op, dtype, sample, leaves, make, f"out={make.__name__}, sample {number}")
        count += 1
    return count


def _is_strided(value):
    return not isinstance(value, torch.Tensor) or value.layout is torch.strided


def _dense_out(leaf, device):
    return torch.empty_like(leaf, device=device)


def _strided_out(leaf, device):
    return torch.empty((*leaf.shape, 2), dtype=leaf.dtype, device=device)[..., 0]


def _check_one_out(op, dtype, sample, leaves, make, what):
    host_outs = [make(leaf, "cpu") for leaf in leaves]
    device_outs = [make(leaf, DEVICE) for leaf in leaves]
    before = [out.stride() for out in device_outs]
    device_sample = _on_device(sample, op)
    if op.name in OUT_LEFT_ALONE:
        for out in host_outs + device_outs:
            out.fill_(7)
        leaves = host_outs
    both = _run_both(
        lambda: _call_out(op, sample, host_outs),
        lambda: _call_out(op, device_sample, device_outs),
        what,
    )
    if both is None:
        return
    # Mostly not host_outs: some of CPU torch's kernels ignore the strides of out.
    compare(device_outs, leaves, op, dtype, what, _wide(op, sample, dtype), sample)
    # Where CPU torch restrides (empty matrices become column-major), so may the device.
    after = [out.stride() for out in device_outs]
    assert after in (before, [out.stride() for out in host_outs]), f"{what}: restrided"


def _call_out(op, sample, outs):
    out = outs[0] if len(outs) == 1 else tuple(outs)
    return op(sample.input, *sample.args, **sample.kwargs, out=out)


def check_inplace(op, dtype, limit):
    inplace = op.get_inplace()
    if inplace is None:
        return 0
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit)):
        if not isinstance(sample.input, torch.Tensor) or sample.broadcasts_input:
            continue
        device_sample = _on_device(_clone(sample), op)
        host_sample = _clone(sample)
        try:
            expected = _call(inplace, host_sample)
        except (RuntimeError, TypeError, ValueError) as error:
            _expect_failure(lambda s=device_sample: _call(inplace, s), error, f"in-place {number}")
            continue
        actual = _call(inplace, device_sample)
        assert actual.data_ptr() == device_sample.input.data_ptr()
        wide = _wide(op, sample, dtype)
        compare(actual, expected, op, dtype, f"in-place, sample {number}", wide)
        results = (actual, device_sample), (expected, host_sample)
        compare_properties(*results, f"in-place, sample {number}")
        count += 1
    return count


def check_backward(op, dtype, limit):
    if not op.supports_autograd:
        return 0
    return _check_derivatives(op, dtype, limit, "backward", _gradients)


def check_forward_ad(op, dtype, limit):
    if not op.supports_forward_ad:
        return 0

    def tangents(op, sample, dtype):
        return forward_ad.tangents(functools.partial(_call, op), sample, dtype)

    return _check_derivatives(op, dtype, limit, "forward-mode", tangents)


def _check_derivatives(op, dtype, limit, what, derive):
    """Compares what `derive(op, sample, dtype)` makes: a list of tensors, some None, or None."""
    if dtype not in op.supported_backward_dtypes("cpu") or op.name in RANDOM_OPS:
        return 0
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit, requires_grad=True)):
        sample = sample.transform(_own_leaf)
        device_sample = _on_device(sample, op)
        if _finds_others(op, sample, device_sample):
            continue
        label = f"{what}, sample {number}"
        both = _run_both(
            lambda s=sample: derive(op, s, dtype),
            lambda s=device_sample: derive(op, s, dtype),
            label,
        )
        if both is None or both[0] is None:
            continue
        expected, actual = both
        wide_sample = widened(sample, op, dtype)
        wide = functools.cache(lambda w=wide_sample: derive(op, w, dtype))
        assert actual is not None and len(actual) == len(expected), f"{label}: nothing came back"
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            assert (a is None) == (e is None), f"{label}: one is missing"
            if e is not None:
                reference = None if wide_sample is None else lambda i=i, wide=wide: wide()[i]
                compare(a, e, op, dtype, label, reference)
        count += 1
    return count


def _own_leaf(leaf):
    """A leaf that is a view made while gradients were disabled gets none: a tensor on a copy of its
    storage does. The whole storage is copied, since an op may reach past the leaf's part."""
    if not (isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf):
        return leaf
    if not leaf._is_view():
        return leaf
    own = torch.empty(0, dtype=leaf.dtype)
    own.set_(leaf.untyped_storage().clone(), leaf.storage_offset(), leaf.shape, leaf.stride())
    return own.requires_grad_()


def _finds_others(op, sample, device_sample):
    """Whether the device finds other elements than the CPU, equal ones (the forward check saw to
    that): the gradient goes to those then."""
    expected = ties.found(op, sample, _call)
    if expected is None:
        return False
    return not torch.equal(ties.found(op, device_sample, _call), expected)


def _gradients(op, sample, dtype):
    """The gradients of what requires them, None without any. What flows back are numbers of `dtype`
    whatever the sample's dtype, so that a sample in double precision gets the same ones."""
    leaves = [
        leaf
        for leaf in torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    result = _call(op, sample)
    result = sample.output_process_fn_grad(result)
    outputs = [
        leaf
        for leaf in torch.utils._pytree.tree_leaves(result)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    if not leaves or not outputs:
        return None
    generator = torch.Generator().manual_seed(7)
    cotangents = [
        torch.randn(o.shape, dtype=torch.float64, generator=generator).to(dtype).to(o)
        for o in outputs
    ]
    return torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)


def check_errors(op, limit):
    """Bad input raises what CPU torch raises; samples that CPU torch accepts are left out."""
    if op.error_inputs_func is None:
        return 0
    count = 0
    for error_input in itertools.islice(op.error_inputs("cpu"), limit):
        count += _refused_alike(op, error_input.sample_input)
    return count


def check_refused(op):
    """Dtypes that CPU torch refuses are refused by the device too, but for those CUDA torch has."""
    count = 0
    known = {*op.supported_dtypes("cpu"), *op.supported_dtypes("cuda")}
    known.update(TAKEN_BEYOND.get(op.name, ()))
    for dtype in (d for d in scope.DTYPES if d not in known):
        try:
            sample = next(iter(op.sample_inputs("cpu", dtype)))
        except Exception:  # noqa: BLE001 - the sample itself can't be made in that dtype
            continue
        count += _refused_alike(op, sample)
    return count


def _refused_alike(op, sample):
    """1 where CPU torch refuses the sample, and the device does too; 0 where CPU torch takes it."""
    try:
        _call(op, sample)
        return 0
    except Exception as error:  # noqa: BLE001 - whatever CPU torch raises is what is wanted
        expected = error
    device_sample = _on_device(sample, op)
    _expect_failure(lambda: _call(op, device_sample), expected, str(expected)[:80])
    return 1


def _expect_failure(function, expected, what):
    try:
        result = function()
        torch.ocl.synchronize()
    except Exception as error:  # noqa: BLE001
        assert not isinstance(error, NotImplementedError) or isinstance(
            expected, NotImplementedError
        ), f"no kernel: {error}"
        assert "clBuildProgram" not in str(error), f"{what}: refused by the compiler: {error}"
        # A check without words is one of CPU torch's own, meant to hold always.
        bare = "Could this error message be improved" in str(expected)
        assert isinstance(error, (type(expected), IndexError) if bare else type(expected)), (
            f"{what}: {type(error).__name__} instead of {type(expected).__name__}: {error}"
        )
        return
    raise AssertionError(f"{what}: nothing raised, got {type(result).__name__}")


CHECKS = {
    "forward": check_forward,
    "noncontiguous": check_noncontiguous,
    "out": check_out,
    "inplace": check_inplace,
    "backward": check_backward,
    "forward_ad": check_forward_ad,
}
