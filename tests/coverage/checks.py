"""The checks of the op matrix: one OpInfo and dtype against CPU torch.

Every check raises AssertionError (or whatever the op raised) on failure and returns the number of
samples it looked at.
"""

import functools
import itertools
import numbers

import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_map

from tests.coverage import ties

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

LOW = (torch.float16, torch.bfloat16)
#: Ops whose CPU result in the dtype is itself off by more than torch.testing's tolerance, with the
#: dtypes and the reason. Where the results differ, the reference is what CPU torch computes in
#: double precision, and the device may be off by the tolerance plus twice the largest error of CPU
#: torch in that sample.
DOUBLE_REFERENCE = {
    # CPU torch rounds intermediate results to the dtype (alpha * other, log's argument, a row's
    # logarithm, products that are subtracted, ...).
    "add": LOW,
    "addr": LOW,
    "linalg.cross": LOW,
    "log_softmax": LOW,
    "logit": LOW,
    "masked.log_softmax": LOW,
    "nn.functional.binary_cross_entropy": LOW,
    "special.i0e": LOW,
    "logspace": LOW,
    "sub": LOW,
    # CPU torch adds up gradients in the dtype.
    "_segment_reduce": LOW,
    "nn.functional.adaptive_avg_pool1d": LOW,
    "nn.functional.adaptive_avg_pool2d": LOW,
    "nn.functional.adaptive_avg_pool3d": LOW,
    "nn.functional.avg_pool2d": LOW,
    "nn.functional.interpolate": LOW,
    "nn.functional.max_pool2d": (torch.bfloat16,),
    "nn.functional.pad": LOW,
    "nn.functional.unfold": LOW,
    # CPU torch computes where to look in the half type.
    "grid_sampler_2d": LOW,
    "grid_sampler_3d": (torch.float32, *LOW),
    "nn.functional.grid_sample": LOW,
    # The gradient's formula is several ops: each result is rounded, and terms cancel.
    "acos": LOW,
    "asin": LOW,
    "asinh": LOW,
    "nn.functional.mse_loss": LOW,
    "rsqrt": LOW,
    # Sums of products that cancel: the order of summation decides.
    "addbmm": (torch.float32, torch.complex64),
    "addcdiv": (torch.float32,),
    "baddbmm": (torch.complex64,),
    "stft": (torch.float32,),
    # CPU torch's float algorithm loses digits; ours computes in double on CPU devices.
    "digamma": (torch.float32, *LOW),
    "polygamma": (torch.float32, *LOW),
    # The gradient is exp(erfinv(x)^2): it magnifies the last digit of erfinv.
    "erfinv": (torch.float32, torch.float16),
    "special.hermite_polynomial_he": (torch.float32,),
    "special.log_ndtr": (torch.float32,),
    "special.polygamma": (torch.float32, *LOW),
    # CPU torch folds mean and deviation into one factor and one term, which cancel in a row of one
    # element, and rounds them to half where the parameters are half.
    "_batch_norm_with_update": LOW,
    "_native_batch_norm_legit": LOW,
    "native_batch_norm": LOW,
    "native_layer_norm": (torch.float32, *LOW),
    # A matrix squared several times, and products of products: rounding errors grow with them.
    "linalg.householder_product": (torch.float32, torch.complex64),
    "linalg.lstsq": (torch.complex64,),
    "linalg.multi_dot": (torch.float32, torch.complex64),
    "matrix_exp": (torch.float32, torch.complex64, *LOW),  # NaN in float16
    # exp(b log a) with a large exponent magnifies the rounding of the logarithm.
    "pow": (torch.complex64,),
}


#: CPU torch's out= of one dimension never writes to out (it conjugates the wrong way round): so
#: must the device's; with more dimensions both write the result.
OUT_LEFT_ALONE = {"fft.ihfft2", "fft.ihfftn"}


def reference_dtype(op, dtype):
    """The dtype CPU torch computes the expected result in."""
    if dtype not in DOUBLE_REFERENCE.get(op.name, ()):
        return dtype
    return torch.complex128 if dtype.is_complex else torch.float64


def widened(sample, op, dtype):
    """The sample in double precision, or None where CPU torch's own result is the reference."""
    target = reference_dtype(op, dtype)
    if target is dtype:
        return None

    def widen(leaf):
        if isinstance(leaf, torch.Tensor) and leaf.dtype == dtype:
            return leaf.detach().to(target).requires_grad_(leaf.requires_grad)
        return target if leaf is dtype else leaf

    return sample.transform(widen)


def to_device(value, storages=None):
    """The same value on the device: sizes, strides, offset and overlap of tensors are kept.

    `storages` remembers what was moved, so that tensors which share memory still do.
    """
    storages = {} if storages is None else storages

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


def compare(actual, expected, op, dtype, what, reference=None, sample=None):
    """Asserts that a device result equals the CPU's: structure, dtype, shape, values, device.

    With `reference`, which computes CPU torch's result in double precision, it need not be closer
    to that than CPU torch is (see DOUBLE_REFERENCE). With `sample`, positions may be those of other
    elements of it that are equal (see ties.py).
    """
    actual_leaves = _tensors(actual)
    expected_leaves = _tensors(expected)
    assert len(actual_leaves) == len(expected_leaves), f"{what}: {len(actual_leaves)} results"
    for number, (a, e) in enumerate(zip(actual_leaves, expected_leaves, strict=True)):
        if not isinstance(e, torch.Tensor):
            assert a == e or (a != a and e != e) or op.name in RANDOM_OPS, f"{what}: {a} != {e}"
            continue
        assert a.device.type == DEVICE, f"{what}: result {number} is on {a.device}"
        if op.name in RANDOM_OPS:
            assert a.shape == e.shape and a.dtype == e.dtype
            continue
        if number == 1 and sample is not None and ties.finds_elements(op, expected_leaves):
            assert a.dtype == e.dtype and a.shape == e.shape, f"{what}: positions"
            a, e = (ties.found_at(op, sample, t) for t in (a, e))
        a, e = (_plain(t) for t in (a, e))
        try:
            assert_close(
                a,
                e,
                equal_nan=True,
                msg=lambda text, number=number: f"{what}, result {number}: {text}",
            )
        except AssertionError:
            wide = None if reference is None else reference()
            if wide is None or not _as_accurate(a, e, _plain(_tensors(wide)[number])):
                raise


def _plain(tensor):
    return tensor.detach().cpu().resolve_conj().resolve_neg()


def _as_accurate(actual, expected, reference):
    """Whether `actual` is as close to the double precision reference as CPU torch's `expected`."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    rtol, atol = torch.testing._comparison.get_tolerances(actual, expected, rtol=None, atol=None)
    rounded = reference.to(actual.dtype).to(reference.dtype)
    actual, expected = actual.to(reference.dtype), expected.to(reference.dtype)
    same = (actual == rounded) | (actual == expected) | (actual.isnan() & rounded.isnan())
    error = (actual - rounded).abs().masked_fill(same, 0)
    cpu_error = (expected - rounded).abs()
    cpu_error = cpu_error[cpu_error.isfinite()]
    slack = 2 * cpu_error.max() if cpu_error.numel() else 0
    return bool((same | (error <= atol + rtol * rounded.abs() + slack)).all())


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


def _wide(op, sample, dtype):
    """What computes the op's result in double precision, where that is the reference."""
    wide = widened(sample, op, dtype)
    return None if wide is None else lambda: _call(op, wide)


def _clone(sample):
    return sample.transform(
        lambda leaf: (
            leaf.clone() if isinstance(leaf, torch.Tensor) and not leaf.requires_grad else leaf
        )
    )


def _on_device(sample):
    storages = {}
    moved = sample.transform(lambda leaf: to_device(leaf, storages))
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
        wide = _wide(op, sample, dtype)
        compare(actual, expected, op, dtype, f"forward, sample {number}", wide, sample)
        count += 1
    return count


def check_noncontiguous(op, dtype, limit):
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit)):
        strided = sample.noncontiguous()
        what = f"non-contiguous, sample {number}"
        device_sample = _on_device(strided)
        both = _run_both(
            lambda s=strided: _call(op, s),
            lambda s=device_sample: _call(op, s),
            what,
        )
        if both is not None:
            compare(both[1], both[0], op, dtype, what, _wide(op, strided, dtype), strided)
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
            _check_one_out(op, dtype, sample, leaves, make, f"out={make.__name__}, sample {number}")
        count += 1
    return count


def _dense_out(leaf, device):
    return torch.empty_like(leaf, device=device)


def _strided_out(leaf, device):
    return torch.empty((*leaf.shape, 2), dtype=leaf.dtype, device=device)[..., 0]


def _check_one_out(op, dtype, sample, leaves, make, what):
    host_outs = [make(leaf, "cpu") for leaf in leaves]
    device_outs = [make(leaf, DEVICE) for leaf in leaves]
    before = [out.stride() for out in device_outs]
    device_sample = _on_device(sample)
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
        device_sample = _on_device(_clone(sample))
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
        count += 1
    return count


def check_backward(op, dtype, limit):
    if not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"):
        return 0
    if op.name in RANDOM_OPS:
        return 0
    count = 0
    for number, sample in enumerate(samples(op, dtype, limit, requires_grad=True)):
        sample = sample.transform(_own_leaf)
        device_sample = _on_device(sample)
        if _finds_others(op, sample, device_sample):
            continue
        expected = _gradients(op, sample, dtype)
        if expected is None:
            continue
        actual = _gradients(op, device_sample, dtype)
        assert len(actual) == len(expected)
        wide_sample = widened(sample, op, dtype)
        wide = functools.cache(lambda w=wide_sample: _gradients(op, w, dtype))
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            assert (a is None) == (e is None), f"backward, sample {number}: a gradient is missing"
            if e is not None:
                reference = None if wide_sample is None else lambda i=i, wide=wide: wide()[i]
                compare(a, e, op, dtype, f"backward, sample {number}", reference)
        count += 1
    return count


def _own_leaf(leaf):
    """A leaf that is a view made while gradients were disabled gets none: a tensor on a copy of its
    storage does. Of the whole storage, since an op may reach past the leaf's part of it."""
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
    expected = _tensors(_call(op, sample)) if op.name in ties.DIM_POSITION else []
    if not ties.finds_elements(op, expected):
        return False
    return not torch.equal(_tensors(_call(op, device_sample))[1].cpu(), expected[1])


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
