"""How exact functions are beside CPU torch: of float32 at millions of numbers, of the half types at
all 65,536 of each.

    python -m benchmarks.studies.numerics [--document]

The reference is computed in float64 by formulas that lose no digits. For the half types it is
rounded once, and an error is how many numbers of the type lie from the one result to the other. For
float32 it is not rounded, and an error is the distance in units of the exact result's last place.
"""

import argparse

import numpy as np
import torch
from torch.nn import functional

from benchmarks.harness.report import MEASUREMENTS, markdown_table, slug_of, write_section

#: For each type: the bits of its precision, and the exponent of its least number.
TYPES = {torch.float16: (11, -24), torch.bfloat16: (8, -133)}
#: float32 has the same. Its numbers are too many to try all.
FLOAT = {torch.float32: (24, -149)}
#: More than any distance.
NO_NUMBER = 2**16
ROOT_2, ROOT_PI = 2**0.5, np.pi**0.5
aten = torch.ops.aten


def every_number(dtype):
    """All 65,536, by their bits."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def floats(stride=1021):
    """float32's numbers by their bits, each `stride`-th, which is odd; and those near multiples of
    pi / 2, or evenly on [-10, 10]."""
    spread = torch.arange(-(2**31), 2**31, stride).int().view(torch.float32)
    turns = torch.arange(2**28 // stride, dtype=torch.float64) * (np.pi / 2)
    return torch.cat([spread, turns.float(), torch.linspace(-10, 10, 2**28 // stride)])


def gradient_of(function):
    """The gradient that autograd makes of 1."""

    def gradient(x):
        x = x.detach().clone().requires_grad_()
        (result,) = torch.autograd.grad(function(x), x, torch.ones_like(x))
        return result

    return gradient


def by_float64(name):
    """torch's function of float64."""
    return lambda x: getattr(torch, name)(torch.from_numpy(x)).numpy()


def logistic(x):
    return 1 / (1 + np.exp(-x))


def normal_cdf(x):
    return 0.5 * torch.erfc(torch.from_numpy(-x / ROOT_2)).numpy()


def gelu_gradient(x):
    return normal_cdf(x) + x * np.exp(-0.5 * x * x) / (ROOT_2 * ROOT_PI)


def tanh_argument(x):
    """2u of the approximation's tanh u: (1 + tanh u) / 2 is the logistic function of 2u."""
    return 2 * ROOT_2 / ROOT_PI * (x + 0.044715 * x**3)


def gelu_by_tanh_gradient(x):
    upper, lower = logistic(tanh_argument(x)), logistic(-tanh_argument(x))
    return upper + x * upper * lower * 2 * ROOT_2 / ROOT_PI * (1 + 3 * 0.044715 * x * x)


def silu_gradient(x):
    return logistic(x) * (1 + x * logistic(-x))


def mish_parts(x):
    """tanh(log(1 + e^x)) and its derivative, of m = e^x (e^x + 2): m / (m + 2)."""
    power = np.exp(np.minimum(x, 40))
    m = power * (power + 2)
    return m / (m + 2), np.where(x < 40, 4 * power * (power + 1) / (m + 2) ** 2, 0)


def mish_gradient(x):
    slope, curve = mish_parts(x)
    return slope + x * curve


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


#: name: the function, and its exact value in float64.
FUNCTIONS = {
    "exp": (torch.exp, np.exp),
    "log": (torch.log, np.log),
    "sigmoid": (torch.sigmoid, logistic),
    "tanh": (torch.tanh, np.tanh),
    "gelu": (functional.gelu, lambda x: x * normal_cdf(x)),
    "gelu by tanh": (
        lambda x: functional.gelu(x, approximate="tanh"),
        lambda x: x * logistic(tanh_argument(x)),
    ),
    "silu": (functional.silu, lambda x: x * logistic(x)),
    "mish": (functional.mish, lambda x: x * mish_parts(x)[0]),
    "softplus": (functional.softplus, softplus),
    "erf": (torch.erf, lambda x: torch.from_numpy(x).erf().numpy()),
    "rsqrt": (torch.rsqrt, lambda x: 1 / np.sqrt(x)),
}

#: Functions that torch's float64 is exact for.
UNARY = (
    "exp2 expm1 log2 log10 log1p erfc sin cos tan asin acos atan sinh cosh asinh acosh atanh sqrt"
)
FUNCTIONS |= {name: (getattr(torch, name), by_float64(name)) for name in UNARY.split()}

#: Exact gradients. Those of sigmoid and tanh are functions of the result, which was rounded.
GRADIENTS = {
    "exp": (gradient_of(torch.exp), np.exp),
    "log": (gradient_of(torch.log), lambda x: 1 / x),
    "sigmoid": (lambda y: aten.sigmoid_backward(torch.ones_like(y), y), lambda y: y * (1 - y)),
    "tanh": (lambda y: aten.tanh_backward(torch.ones_like(y), y), lambda y: (1 - y) * (1 + y)),
    "gelu": (gradient_of(functional.gelu), gelu_gradient),
    "gelu by tanh": (gradient_of(FUNCTIONS["gelu by tanh"][0]), gelu_by_tanh_gradient),
    "silu": (gradient_of(functional.silu), silu_gradient),
    "mish": (gradient_of(functional.mish), mish_gradient),
    "softplus": (gradient_of(functional.softplus), logistic),
    "erf": (gradient_of(torch.erf), lambda x: 2 / ROOT_PI * np.exp(-x * x)),
    "rsqrt": (gradient_of(torch.rsqrt), lambda x: -0.5 * (1 / np.sqrt(x)) ** 3),
}

#: (name, the function, its exact value) of all.
ALL = [(name, *pair) for name, pair in FUNCTIONS.items()]
ALL += [(f"{name}, gradient", *pair) for name, pair in GRADIENTS.items()]


def ulp_of(values, dtype):
    """The distance of the type's numbers around each of the values, which are of float64."""
    bits, least = (TYPES | FLOAT)[dtype]
    _, exponent = np.frexp(values)
    return np.ldexp(1.0, np.maximum(exponent - bits, least))


def rounded(exact, dtype):
    """float64 to the type, to nearest, ties to even: torch rounds to float32 on the way."""
    ulp = ulp_of(exact, dtype)
    return torch.from_numpy(np.rint(exact / ulp) * ulp).to(dtype)


def places(x):
    """Where each number stands in the order of all; both zeros are at 0."""
    bits = x.contiguous().view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


def exact_values(exact, dtype):
    """In float64, of every number."""
    with np.errstate(all="ignore"):
        return exact(every_number(dtype).double().numpy())


def ulps_off(actual, expected):
    """How many numbers lie from the results of finite numbers to the exact ones; NO_NUMBER, where
    one of them is NaN."""
    with np.errstate(all="ignore"):
        correct = rounded(expected, actual.dtype)
    off = (places(actual) - places(correct)).abs()
    off[actual.isnan() | correct.isnan()] = NO_NUMBER
    off[actual.isnan() & correct.isnan()] = 0
    return off[every_number(actual.dtype).isfinite()]


def float_errors(actual, expected):
    """Errors of results of float32, in ulps of the exact ones. One is infinite where one of the two
    is NaN or has another sign. It is 0 where both are infinite."""
    actual = actual.double().numpy()
    with np.errstate(all="ignore"):
        correct = torch.from_numpy(expected).float().double().numpy()
        errors = np.abs(actual - expected) / ulp_of(expected, torch.float32)
        errors[np.isinf(correct)] = np.inf
        errors[np.isinf(correct) & (actual == correct)] = 0
        errors[np.isnan(errors) | (np.signbit(actual) != np.signbit(correct))] = np.inf
    errors[np.isnan(actual) & np.isnan(correct)] = 0
    return errors


def rows(device):
    """A row of the table for each function: for each type ours, CPU torch's."""
    x = floats()
    for name, function, exact in ALL:
        row = [name]
        with np.errstate(all="ignore"):
            expected = exact(x.double().numpy())
        for place in (device, "cpu"):
            most = float_errors(function(x.to(place)).cpu(), expected).max()
            row.append(f"{most:,.2f}" if most < NO_NUMBER else f"{most:,.0f}")
        for dtype in TYPES:
            expected = exact_values(exact, dtype)
            for place in (device, "cpu"):
                ulps = ulps_off(function(every_number(dtype).to(place)).cpu(), expected)
                most = ulps.max().item()
                most = "NaN" if most == NO_NUMBER else f"{most:,}"
                row.append(f"{most} ({(ulps > 0).sum().item():,})")
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--document", action="store_true", help="write this device's section")
    options = parser.parse_args()
    properties = torch.ocl.get_device_properties(0)
    head = ["function"]
    for dtype in ("float32", "float16", "bfloat16"):
        head += [dtype, "CPU torch"]
    table = markdown_table(head, rows("ocl"))
    print("\n".join(table))
    if options.document:
        lines = [f"{properties.name}, {properties.platform_name}:", "", *table]
        write_section(MEASUREMENTS / "numerics.md", f"numerics: {slug_of()}", lines)


if __name__ == "__main__":
    main()
