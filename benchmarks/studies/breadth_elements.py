"""The study `breadth`: pointwise ops, reductions, scans and random numbers."""

import torch
from torch.nn import functional

from benchmarks.studies.breadth_samples import ELEMENTS, OPS, add, functions


def gradient(name):
    """The gradient of an op's first result by its first input."""
    function, inputs, differs = OPS[name]

    def call(first, *rest):
        leaf = first.detach().requires_grad_()
        result = function(leaf, *rest)
        result = result[0] if isinstance(result, tuple) else result
        return torch.autograd.grad(result, leaf, torch.ones_like(result))[0]

    add(f"{name}, gradient", call, " ".join(inputs), differs)


functions(
    "abs asinh atan ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac isfinite isinf isnan "
    "neg reciprocal round sgn sigmoid sign signbit sin sinc sinh square tan tanh trunc nan_to_num "
    "logical_not frexp i0",
    "x",
)
functions("acos asin atanh logit erfinv", "share")
functions("log log2 log10 log1p sqrt rsqrt digamma lgamma", "y")
add("acosh", lambda t: torch.acosh(t + 1), "y")
functions(
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 entr erfcx i0e i1 i1e log_ndtr ndtri "
    "modified_bessel_i0 modified_bessel_k0 spherical_bessel_j0",
    "few",
    torch.special,
    "special.",
)
functions(
    "add sub mul div atan2 copysign fmax fmin fmod hypot logaddexp logaddexp2 maximum minimum "
    "nextafter pow remainder floor_divide xlogy eq lt heaviside",
    "y share",
)
functions("igamma igammac", "few more")
add("zeta", torch.special.zeta, "more few")
add("polygamma", lambda t: torch.polygamma(2, t), "few")
for (
    op
) in "add mul div floor_divide remainder gcd lcm bitwise_and bitwise_xor maximum eq pow".split():
    add(f"{op} int64", getattr(torch, op), "int64 small")
add("bitwise_not", torch.bitwise_not, "int64")
functions("logical_and logical_xor", "mask mask")
add("mul bool", torch.mul, "mask mask")
add("add int32", torch.add, "int32 int32")
add("add uint8", torch.add, "uint8 uint8")
add("add bfloat16", torch.add, "bfloat16 bfloat16")
add("mul float16", torch.mul, "float16 float16")
add("exp bfloat16", torch.exp, "bfloat16")
add("sin float16", torch.sin, "float16")
for op in ("add", "mul", "div"):
    add(f"{op} complex64", getattr(torch, op), "complex complex")
for op in ("exp", "abs", "sqrt", "angle", "conj_physical"):
    add(f"{op} complex64", getattr(torch, op), "complex")
functions("complex polar", "half_y half_x")
functions("addcmul addcdiv lerp", "x y share")
add("clamp", lambda t: t.clamp(-1, 1), "x")
add("clamp by tensors", lambda t, high: t.clamp(-high, high), "x y")
add("where", torch.where, "mask x y")
add("masked_fill", lambda t, mask: t.masked_fill(mask, 0.0), "x mask")
for dtype in (torch.bool, torch.int32, torch.int64, torch.bfloat16, torch.float16):
    add(f"cast to {dtype}"[:8] + str(dtype)[6:], lambda t, d=dtype: t.to(d), "x")
for source in ("bfloat16", "int64", "mask", "uint8"):
    add(f"cast of {source}", torch.Tensor.float, source)
functions("equal allclose isclose", "x y")

functions(
    "relu elu celu selu gelu silu mish softplus hardswish hardsigmoid hardtanh leaky_relu softsign "
    "tanhshrink softshrink hardshrink logsigmoid relu6 glu",
    "x",
    functional,
)
add("gelu tanh", lambda t: functional.gelu(t, approximate="tanh"), "x")
for op in "relu elu gelu silu mish softplus hardswish leaky_relu logsigmoid tanh sigmoid".split():
    gradient(op)
functions("l1_loss mse_loss smooth_l1_loss huber_loss kl_div", "x y", functional)
add("binary_cross_entropy", functional.binary_cross_entropy, "share share")
add("bce with logits", functional.binary_cross_entropy_with_logits, "x share")

functions("sum mean prod amax amin argmax argmin std var norm all any count_nonzero nansum", "x")
functions("median aminmax", "x")
functions("dot", "x y")
for op in "sum mean prod amax argmax var norm all nansum max logsumexp".split():
    for dim in (0, 1):
        add(f"{op}, dim {dim}", lambda t, f=op, d=dim: getattr(torch, f)(t, dim=d), "positive")
for dtype in ("int64", "mask", "bfloat16"):
    add(f"sum of {dtype}", torch.sum, dtype, differs=dtype == "bfloat16")
add("any of bool", torch.any, "none")
for p in (1, 3, float("inf")):
    add(f"norm {p}", lambda t, p=p: torch.linalg.vector_norm(t, p, dim=1), "square")
for op in "cumsum cumprod cummax cummin logcumsumexp".split():
    for dim in (0, 1):
        add(f"{op}, dim {dim}", lambda t, f=op, d=dim: getattr(torch, f)(t, dim=d), "positive")
add("cumsum of a vector", lambda t: t.cumsum(0), "y")
add("cumsum of int64", lambda t: t.cumsum(0), "int64")
functions("diff trapezoid cumulative_trapezoid", "x")
for dim in (0, 1):
    add(f"softmax, dim {dim}", lambda t, d=dim: t.softmax(d), "square")
    add(f"log_softmax, dim {dim}", lambda t, d=dim: t.log_softmax(d), "square")
for name in ("std", "norm", "cumsum", "logsumexp", "prod", "amax"):
    add(f"{name} of rows", lambda t, f=name: getattr(torch, f)(t, dim=1), "positive")
    gradient(f"{name} of rows")


def filled(method, *arguments):
    """An in-place sampler, of new memory as large as the input."""
    return lambda t: getattr(torch.empty_like(t), method)(*arguments)


for op, arguments in {
    "uniform_": (),
    "normal_": (),
    "exponential_": (),
    "bernoulli_": (0.3,),
    "cauchy_": (),
    "geometric_": (0.3,),
    "log_normal_": (),
    "random_": (100,),
}.items():
    add(op, filled(op, *arguments), "x", differs=True)
add("randperm", lambda t: torch.randperm(1 << 20, device=t.device), "x", differs=True)
add("poisson", torch.poisson, "more", differs=True)
add("_standard_gamma", torch._standard_gamma, "more", differs=True)
add("multinomial", lambda t: torch.multinomial(t, 1), "positive", differs=True)
add("multinomial 512", lambda t: torch.multinomial(t[:256], 512), "positive", differs=True)
functions("dropout alpha_dropout", "x", functional, differs=True)
add("rrelu", lambda t: functional.rrelu(t, training=True), "x", differs=True)
add("arange", lambda t: torch.arange(ELEMENTS, device=t.device), "x")
add("linspace", lambda t: torch.linspace(0, 1, ELEMENTS, device=t.device), "x")
add("logspace", lambda t: torch.logspace(0, 1, ELEMENTS, device=t.device), "x")
