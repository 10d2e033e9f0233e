"""How the op matrix compares results with CPU torch, and what single ops need beyond that."""

import torch
from torch.testing import assert_close

from tests.coverage import gauge, ties

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
#: double precision, with the same tolerance.
DOUBLE_REFERENCE = {
    # CPU torch rounds intermediate results to the dtype (alpha * other, log's argument, a row's
    # logarithm, products that are subtracted, ...).
    "add": (torch.float16,),
    "addr": LOW,
    "cross": LOW,
    "linalg.cross": LOW,
    "log_softmax": LOW,
    "logit": LOW,
    "logspace": (torch.bfloat16,),
    "masked.log_softmax": LOW,
    "nn.functional.binary_cross_entropy": LOW,
    "special.i0e": LOW,
    "sub": (torch.float16,),
    # CPU torch adds up gradients in the dtype.
    "_segment_reduce": LOW,
    "nn.functional.adaptive_avg_pool1d": LOW,
    "nn.functional.adaptive_avg_pool2d": LOW,
    "nn.functional.adaptive_avg_pool3d": LOW,
    "nn.functional.avg_pool1d": LOW,
    "nn.functional.avg_pool2d": LOW,
    "nn.functional.embedding_bag": LOW,
    "nn.functional.interpolate": LOW,
    "nn.functional.max_pool2d": (torch.bfloat16,),
    "nn.functional.max_pool3d": LOW,
    "nn.functional.pad": LOW,
    "nn.functional.unfold": LOW,
    # CPU torch rounds products before it adds them up.
    "sparse.mm": LOW,
    # CPU torch computes where to look in the half type.
    "grid_sampler_2d": LOW,
    "grid_sampler_3d": (torch.float32, *LOW),
    "nn.functional.grid_sample": LOW,
    # The gradient's formula is several ops: each result is rounded, and terms cancel.
    "acos": (torch.float16,),
    "asin": (torch.float16,),
    "asinh": (torch.float16,),
    "native_group_norm": (torch.bfloat16,),
    "nn.functional.cross_entropy": LOW,
    "nn.functional.huber_loss": LOW,
    "nn.functional.kl_div": (torch.float16,),
    "nn.functional.linear_cross_entropy": LOW,
    "nn.functional.mse_loss": (torch.float16,),
    "nn.functional.normalize": (torch.bfloat16,),
    "rsqrt": LOW,
    "special.xlog1py": LOW,
    "xlogy": LOW,
    # Sums of products that cancel: the order of summation decides.
    "__rmatmul__": (torch.complex64,),
    "addbmm": (torch.float32, torch.complex64),
    "baddbmm": (torch.complex64,),
    "cov": (torch.complex64,),
    "fft.hfftn": (torch.complex64,),
    "matmul": (torch.complex64,),
    "stft": (torch.float32,),
    "triangular_solve": (torch.complex64,),
    # CPU torch also adds up in half types where oneDNN has no kernel.
    "nn.functional.conv1d": (torch.float16,),
    "nn.functional.conv2d": (torch.complex64, torch.float16),
    "nn.functional.conv3d": (torch.float32, torch.complex64, torch.float16),
    "nn.functional.conv_transpose1d": (torch.float16,),
    "nn.functional.conv_transpose2d": LOW,
    "nn.functional.conv_transpose3d": (torch.float32, torch.complex64, *LOW),
    # CPU torch's float algorithm loses digits; ours computes in double on CPU devices.
    "digamma": (torch.float32,),
    "polygamma": (torch.float32, *LOW),
    "special.hermite_polynomial_he": (torch.float32,),
    "special.log_ndtr": (torch.float32,),
    "special.polygamma": (torch.float32, *LOW),
    # CPU torch folds mean and deviation into one factor and one term, which cancel in a row of one
    # element, and rounds them to half where the parameters are half.
    "_batch_norm_with_update": LOW,
    "_native_batch_norm_legit": LOW,
    "native_batch_norm": LOW,
    "native_layer_norm": (torch.float32, *LOW),
    "nn.functional.batch_norm": LOW,
    "nn.functional.instance_norm": LOW,
    # Gradients through eigenvectors and singular vectors are divided by differences of values;
    # condition numbers and inverses magnify the errors of the smallest value.
    "linalg.cond": (torch.float32, torch.complex64),
    "linalg.eigh": (torch.float32, torch.complex64),
    "linalg.pinv": (torch.float32, torch.complex64),
    # A matrix squared several times, and products of products: rounding errors grow with them.
    "linalg.householder_product": (torch.float32, torch.complex64),
    "linalg.lstsq": (torch.float32, torch.complex64),
    "linalg.multi_dot": (torch.float32, torch.complex64),
    "matrix_exp": (torch.float32, torch.complex64, *LOW),  # NaN in float16
    # exp(b log a) with a large exponent magnifies the rounding of the logarithm; the tangent's two
    # terms are both large.
    "__rpow__": (torch.complex64,),
    "pow": (torch.float32, torch.complex64),
}

#: Those among them whose exact result is farther off than the tolerance on the device too, for the
#: algorithm itself magnifies roundings: so many times the largest error of CPU torch in the sample
#: are allowed beside the tolerance, once where that is enough.
CPU_ERRORS_ALLOWED = {
    # Products of numbers in the dtype are subtracted; a sum's or a polynomial's terms cancel.
    "addbmm": {torch.complex64: 1},
    "baddbmm": {torch.complex64: 1},
    "cov": {torch.complex64: 1},
    "cross": {torch.float16: 1, torch.bfloat16: 1},
    "linalg.cross": {torch.float16: 1, torch.bfloat16: 1},
    "nn.functional.conv3d": {torch.float32: 1, torch.complex64: 1},
    "nn.functional.conv_transpose1d": {torch.float16: 1},
    "nn.functional.conv_transpose2d": {torch.float16: 1, torch.bfloat16: 1},
    "nn.functional.conv_transpose3d": {
        torch.float32: 1,
        torch.complex64: 1,
        torch.float16: 1,
        torch.bfloat16: 1,
    },
    "special.hermite_polynomial_he": {torch.float32: 1},
    "stft": {torch.float32: 1},
    "triangular_solve": {torch.complex64: 1},
    # Derivatives that autograd composes of ops whose results have the dtype, as on the CPU; with
    # two or more roundings one device's may all go one way.
    "log_softmax": {torch.float16: 1},
    "masked.log_softmax": {torch.float16: 1, torch.bfloat16: 1},
    "native_group_norm": {torch.bfloat16: 2},
    "nn.functional.binary_cross_entropy": {torch.float16: 1, torch.bfloat16: 1},
    "nn.functional.huber_loss": {torch.float16: 1},
    "nn.functional.kl_div": {torch.float16: 2},
    "nn.functional.linear_cross_entropy": {torch.float16: 1, torch.bfloat16: 1},
    "nn.functional.mse_loss": {torch.float16: 1},
    "nn.functional.normalize": {torch.bfloat16: 2},
    "special.i0e": {torch.float16: 1, torch.bfloat16: 2},
    "special.xlog1py": {torch.float16: 1, torch.bfloat16: 1},
    "xlogy": {torch.float16: 1, torch.bfloat16: 1},
    # Statistics are saved in the dtype, and the derivatives are computed from those.
    "_batch_norm_with_update": {torch.bfloat16: 1},
    "_native_batch_norm_legit": {torch.bfloat16: 1},
    "native_batch_norm": {torch.bfloat16: 1},
    "nn.functional.batch_norm": {torch.bfloat16: 1},
    "nn.functional.instance_norm": {torch.bfloat16: 1},
    # A place on the edge of a cell of the grid is in the next cell in double precision.
    "grid_sampler_3d": {torch.float32: 1},
    # Rounding errors grow from product to product.
    "linalg.householder_product": {torch.float32: 1, torch.complex64: 2},
    "linalg.lstsq": {torch.float32: 1, torch.complex64: 1},
    "linalg.multi_dot": {torch.float32: 1, torch.complex64: 1},
    "matrix_exp": {torch.float32: 1, torch.complex64: 1},
    # The rounding of the logarithm, times the exponent.
    "__rpow__": {torch.complex64: 1},
    "pow": {torch.complex64: 1},
}


#: CPU torch's out= of one dimension never writes to out (it conjugates the wrong way round): so
#: must the device's; with more dimensions both write the result.
OUT_LEFT_ALONE = {"fft.ihfft2", "fft.ihfftn"}


#: Dtypes that neither CPU nor CUDA torch takes, and the device does: CPU torch takes histogram's
#: half types with some arguments only.
TAKEN_BEYOND = {"histogram": LOW, "histogramdd": LOW, "polar": (torch.float16,)}


def reference_dtype(op, dtype):
    """The dtype CPU torch computes the expected result in."""
    if dtype not in DOUBLE_REFERENCE.get(op.name, ()):
        return dtype
    return torch.complex128 if dtype.is_complex else torch.float64


def widened(sample, op, dtype):
    """The sample in double precision, or None where CPU torch's own result is the reference."""
    target = reference_dtype(op, dtype)
    return None if target is dtype else converted(sample, dtype, target)


def converted(sample, dtype, target):
    """The sample with `target` in the place of `dtype`."""

    def widen(leaf):
        if isinstance(leaf, torch.Tensor) and leaf.dtype == dtype:
            return leaf.detach().to(target).requires_grad_(leaf.requires_grad)
        return target if leaf is dtype else leaf

    return sample.transform(widen)


def compare(actual, expected, op, dtype, what, reference=None, sample=None):
    """Asserts that a device result equals the CPU's: structure, dtype, shape, values, device.

    With `reference`, which computes CPU torch's result in double precision, it may equal that
    instead (see DOUBLE_REFERENCE). With `sample`, positions may be those of other
    elements of it that are equal (see ties.py).
    """
    actual_leaves = gauge.invariants(op, tensors(actual))
    expected_leaves = gauge.invariants(op, tensors(expected))
    assert len(actual_leaves) == len(expected_leaves), f"{what}: {len(actual_leaves)} results"
    for number, (a, e) in enumerate(zip(actual_leaves, expected_leaves, strict=True)):
        if not isinstance(e, torch.Tensor):
            assert a == e or (a != a and e != e) or op.name in RANDOM_OPS, f"{what}: {a} != {e}"
            continue
        assert a.device.type == DEVICE, f"{what}: result {number} is on {a.device}"
        if op.name in RANDOM_OPS:
            assert a.shape == e.shape and a.dtype == e.dtype
            continue
        if sample is not None and number == ties.positions_of(op, expected_leaves):
            assert a.dtype == e.dtype and a.shape == e.shape, f"{what}: positions"
            a, e = (ties.found_at(op, sample, t) for t in (a, e))
        a, e = (plain(t) for t in (a, e))
        try:
            assert_close(
                a,
                e,
                equal_nan=True,
                msg=lambda text, number=number: f"{what}, result {number}: {text}",
            )
        except AssertionError:
            wide = None if reference is None else reference()
            times = CPU_ERRORS_ALLOWED.get(op.name, {}).get(dtype, 0)
            unique = [] if wide is None else gauge.invariants(op, tensors(wide))
            if wide is None or not as_accurate(a, e, plain(unique[number]), times):
                raise


def compare_properties(actual, expected, what):
    """Asserts that a device result is lazily conjugated or negated, laid out in memory, a view of
    an argument and part of autograd's graph where the CPU's is. Takes (result, its sample)."""
    pairs = zip(_properties(*actual), _properties(*expected), strict=True)
    for number, (a, e) in enumerate(pairs):
        assert a == e, f"{what}, result {number}: {a} instead of {e}"


def _properties(result, sample):
    """Differences of each tensor in the result, by name."""
    arguments = tensors((sample.input, sample.args, sample.kwargs))
    storages = [_storage(argument) for argument in arguments]
    return [
        {
            "is_conj": t.is_conj(),
            "is_neg": t.is_neg(),
            "requires_grad": t.requires_grad,
            "layout": t.layout,
            "strides": _strides(t),
            "shares": [s is not None and s == _storage(t) for s in storages],
        }
        for t in tensors(result)
        if isinstance(t, torch.Tensor)
    ]


def _storage(tensor):
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    return tensor.untyped_storage().data_ptr() or None


def _strides(tensor):
    """Where they matter: nothing steps along a dimension of one element."""
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return None
    return [stride for stride, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def plain(tensor):
    return tensor.detach().cpu().resolve_conj().resolve_neg()


def as_accurate(actual, expected, reference, times):
    """Whether `actual` is as close to the double precision reference as the tolerance says, and
    `times` the largest error of CPU torch's `expected`."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    rtol, atol = torch.testing._comparison.get_tolerances(actual, expected, rtol=None, atol=None)
    if actual.layout is not torch.strided:
        actual, expected, reference = (t.to_dense() for t in (actual, expected, reference))
    rounded = reference.to(actual.dtype).to(reference.dtype)
    actual, expected = actual.to(reference.dtype), expected.to(reference.dtype)
    same = (actual == rounded) | (actual == expected) | (actual.isnan() & rounded.isnan())
    error = (actual - rounded).abs().masked_fill(same, 0)
    cpu_error = (expected - rounded).abs()
    cpu_error = cpu_error[cpu_error.isfinite()]
    slack = times * cpu_error.max() if times and cpu_error.numel() else 0
    return bool((same | (error <= atol + rtol * rounded.abs() + slack)).all())


def tensors(value):
    """The tensors and numbers in a result."""
    leaves = torch.utils._pytree.tree_leaves(value)
    return [
        leaf for leaf in leaves if isinstance(leaf, torch.Tensor | int | float | bool | complex)
    ]
