"""The checks of the op matrix: one OpInfo and dtype against CPU torch.

Every check raises AssertionError (or whatever the op raised) on failure and returns the number of
samples it looked at.
"""

import itertools
import numbers

import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_map

DEVICE = "ocl"

#: Results are random or uninitialised: only shape, dtype and device can be compared.
RANDOM_OPS = {
    "bernoulli",
    "cauchy",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "new_empty",
    "new_empty_strided",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention",
    "normal",
    "pca_lowrank",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "svd_lowrank",
    "uniform",
}

#: (op, dtype) -> (rtol, atol), each with the reason torch.testing's own tolerance does not fit.
TOLERANCES = {}


def to_device(value):
    """The same value on the device: sizes, strides, offset and overlap of tensors are kept."""

    def move(leaf):
        if not isinstance(leaf, torch.Tensor):
            return torch.device(DEVICE) if isinstance(leaf, torch.device) else leaf
        source = leaf.detach()
        conj, neg = source.is_conj(), source.is_neg()
        if conj:
            source = source.conj()
        if neg:
            source = torch._neg_view(source)
        if source.layout is not torch.strided:
            return leaf.to(DEVICE)
        count = source.untyped_storage().nbytes() // max(source.element_size(), 1)
        whole = source.as_strided((count,), (1,), 0).to(DEVICE)
        moved = whole.as_strided(source.size(), source.stride(), source.storage_offset())
        if conj:
            moved = moved.conj()
        if neg:
            moved = torch._neg_view(moved)
        return moved.requires_grad_(leaf.requires_grad)

    return tree_map(move, value)


def compare(actual, expected, op, dtype, what):
    """Asserts that a device result equals the CPU's: structure, dtype, shape, values, device."""
    actual_leaves = _tensors(actual)
    expected_leaves = _tensors(expected)
    assert len(actual_leaves) == len(expected_leaves), f"{what}: {len(actual_leaves)} results"
    for number, (a, e) in enumerate(zip(actual_leaves, expected_leaves, strict=True)):
        if isinstance(e, torch.Tensor):
            assert a.device.type == DEVICE, f"{what}: result {number} is on {a.device}"
            if op.name in RANDOM_OPS:
                assert a.shape == e.shape and a.dtype == e.dtype
                continue
            tolerance = TOLERANCES.get((op.name, dtype), TOLERANCES.get((op.name, None)))
            extra = {} if tolerance is None else {"rtol": tolerance[0], "atol": tolerance[1]}
            assert_close(
                a.detach().cpu().resolve_conj().resolve_neg(),
                e.detach().resolve_conj().resolve_neg(),
                equal_nan=True,
                msg=lambda text: f"{what}, result {number}: {text}",
                **extra,
            )
        else:
            assert a == e or (a != a and e != e) or op.name in RANDOM_OPS, f"{what}: {a} != {e}"


def _tensors(value):
    leaves = torch.utils._pytree.tree_leaves(value)
    return [
        leaf for leaf in leaves if isinstance(leaf, torch.Tensor | int | float | bool | complex)
    ]


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


def _clone(sample):
    return sample.transform(
        lambda leaf: (
            leaf.clone() if isinstance(leaf, torch.Tensor) and not leaf.requires_grad else leaf
        )
    )


def _on_device(sample):
    moved = sample.transform(lambda leaf: to_device(leaf))
    leaves = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    is_factory = not any(isinstance(leaf, torch.Tensor) for leaf in leaves)
    if "device" in moved.kwargs or (is_factory and isinstance(sample.input, numbers.Number)):
        moved.kwargs["device"] = DEVICE
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
        actual = _call(op, _on_device(sample))
        expected = _call(op, sample)
        compare(actual, expected, op, dtype, f"forward, sample {number}")
        count += 1
    return count


def check_noncontiguous(op, dtype, limit):
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit)):
        strided = sample.noncontiguous()
        what = f"non-contiguous, sample {number}"
        device_sample = _on_device(strided)
        both = _run_both(lambda s=strided: _call(op, s), lambda s=device_sample: _call(op, s), what)
        if both is not None:
            compare(both[1], both[0], op, dtype, what)
        count += 1
    return count


def check_out(op, dtype, limit):
    if not op.supports_out:
        return 0
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit)):
        expected = _call(op, sample)
        leaves = expected if isinstance(expected, tuple | list) else (expected,)
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            continue

        for make in (_dense_out, _strided_out):
            what = f"out={make.__name__}, sample {number}"
            host_outs = [make(leaf, "cpu") for leaf in leaves]
            device_outs = [make(leaf, DEVICE) for leaf in leaves]
            before = [out.stride() for out in device_outs]
            single = isinstance(expected, torch.Tensor)
            both = _run_both(
                lambda s=sample, o=host_outs: _call_out(op, s, o, single),
                lambda s=_on_device(sample), o=device_outs: _call_out(op, s, o, single),
                what,
            )
            if both is not None:
                # Not host_outs: some of CPU torch's kernels ignore the strides of out.
                compare(device_outs, list(leaves), op, dtype, what)
                assert [o.stride() for o in device_outs] == before, f"{what}: restrided"
        count += 1
    return count


def _dense_out(leaf, device):
    return torch.empty_like(leaf, device=device)


def _strided_out(leaf, device):
    return torch.empty((*leaf.shape, 2), dtype=leaf.dtype, device=device)[..., 0]


def _call_out(op, sample, outs, single):
    out = outs[0] if single else tuple(outs)
    return op(sample.input, *sample.args, **sample.kwargs, out=out)


def check_inplace(op, dtype, limit):
    inplace = op.get_inplace()
    if inplace is None:
        return 0
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit)):
        if not isinstance(sample.input, torch.Tensor) or sample.broadcasts_input:
            continue
        device_sample = _on_device(_clone(sample))
        host_sample = _clone(sample)
        try:
            expected = _call(inplace, host_sample)
        except (RuntimeError, TypeError, ValueError) as error:
            _expect_failure(lambda s=device_sample: _call(inplace, s), error, f"in-place {number}")
            continue
        actual = _call(inplace, device_sample)
        assert actual.data_ptr() == device_sample.input.data_ptr()
        compare(actual, expected, op, dtype, f"in-place, sample {number}")
        count += 1
    return count


def check_backward(op, dtype, limit):
    if not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"):
        return 0
    if op.name in RANDOM_OPS:
        return 0
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit, requires_grad=True)):
        device_sample = _on_device(sample)
        expected = _gradients(op, sample)
        if expected is None:
            continue
        actual = _gradients(op, device_sample)
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert (a is None) == (e is None), f"backward, sample {number}: a gradient is missing"
            if e is not None:
                compare(a, e, op, dtype, f"backward, sample {number}")
        count += 1
    return count


def _gradients(op, sample):
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
        torch.randn(o.shape, dtype=torch.float64, generator=generator).to(o.dtype).to(o.device)
        for o in outputs
    ]
    return torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)


def check_errors(op, limit):
    """Bad input raises what CPU torch raises; samples that CPU torch accepts are left out."""
    if op.error_inputs_func is None:
        return 0
    count = 0
    for error_input in itertools.islice(op.error_inputs("cpu"), limit):
        sample = error_input.sample_input
        try:
            _call(op, sample)
            continue
        except Exception as error:  # noqa: BLE001 - whatever CPU torch raises is what is wanted
            expected = error
        device_sample = _on_device(sample)
        _expect_failure(lambda s=device_sample: _call(op, s), expected, str(expected)[:80])
        count += 1
    return count


def _expect_failure(function, expected, what):
    try:
        result = function()
        torch.ocl.synchronize()
    except Exception as error:  # noqa: BLE001
        assert not isinstance(error, NotImplementedError) or isinstance(
            expected, NotImplementedError
        ), f"no kernel: {error}"
        # Some checks can only be made on the device and raise an IndexError where the CPU raises a
        # RuntimeError: both say the same.
        close = isinstance(error, type(expected)) or (
            isinstance(error, IndexError | RuntimeError)
            and isinstance(expected, IndexError | RuntimeError)
        )
        assert close, (
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
}
