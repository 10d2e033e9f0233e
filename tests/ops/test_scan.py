"""Running folds against CPU torch: dtypes, dimensions, layouts, special values, long lines."""

import pytest
import torch
from torch.testing import assert_close, make_tensor

from tests.layouts import layouts, on_device

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128]
INTEGER = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
REAL = FLOATING + INTEGER + [torch.bool]

DTYPES = {
    "cumsum": REAL + COMPLEX,
    "cumprod": REAL + COMPLEX,
    "cummax": REAL,
    "cummin": REAL,
    "logcumsumexp": FLOATING + COMPLEX,
}
NAMES = list(DTYPES)


def make(shape, dtype):
    low = 0 if dtype in (torch.uint8, torch.bool) else -2
    return make_tensor(shape, dtype=dtype, device="cpu", low=low, high=2)


def tolerance(dtype):
    if dtype in (torch.float16, torch.bfloat16):
        return {"rtol": 2e-2, "atol": 2e-2}
    return {"rtol": 1e-5, "atol": 1e-5} if dtype in (torch.float32, torch.complex64) else {}


def check(op, x, what=None, **tolerances):
    """`op` gives on the device what it gives on the CPU, dtype and shape included."""
    expected, actual = op(x), op(on_device(x))
    if not isinstance(expected, torch.Tensor):
        expected, actual = tuple(expected), tuple(a.cpu() for a in actual)
    else:
        actual = actual.cpu()
    message = (lambda m: f"{what}: {m}") if what is not None else None
    assert_close(actual, expected, equal_nan=True, msg=message, **tolerances)


def call(name, dim, **arguments):
    return lambda x: getattr(torch, name)(x, dim, **arguments)


@pytest.mark.parametrize("name, dtype", [(n, d) for n in NAMES for d in DTYPES[n]], ids=str)
def test_dtypes(name, dtype):
    x = make((3, 21, 34), dtype)
    for dim in (0, 1, -1):
        check(call(name, dim), x, dim, **tolerance(dtype))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 33, 70), (40, 3, 130)], ids=str)
def test_layouts(name, shape):
    for label, x in layouts(make(shape, torch.float32)):
        for dim in (0, 1, 2):
            check(call(name, dim), x, (label, dim), **tolerance(torch.float32))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.int32, torch.int8),
        (torch.int64, torch.float32),
        (torch.float32, torch.int32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float64),
        (torch.bool, torch.float32),
        (torch.float32, torch.complex64),
    ],
    ids=str,
)
def test_dtype_argument(name, source, target):
    x = make((4, 50), source)
    for dim in (0, 1):
        check(call(name, dim, dtype=target), x, **tolerance(target))


@pytest.mark.parametrize("name", NAMES)
def test_empty_and_scalar(name):
    for shape in [(0,), (3, 0), (0, 3), (1,), (1, 1, 5), ()]:
        x = torch.randn(shape)
        for dim in range(-max(1, x.dim()), max(1, x.dim())):
            check(call(name, dim), x)
    for device in ("cpu", "ocl"):
        with pytest.raises(IndexError):
            getattr(torch, name)(torch.ones(3, device=device), 1)


@pytest.mark.parametrize("name", NAMES)
def test_nan_and_infinity(name):
    nan, inf = float("nan"), float("inf")
    x = torch.randn(8, 60)
    x[0, 3], x[0, 9] = nan, nan
    x[1, 5] = inf
    x[2, 7] = -inf
    x[3, 8], x[3, 9] = inf, -inf
    x[4, 0], x[4, 59] = nan, inf
    x[5, :] = -inf
    x[6, :] = inf
    x[7, :4] = -inf
    for dim in (0, 1):
        check(call(name, dim), x, **tolerance(torch.float32))
        check(call(name, 1 - dim), x.t(), **tolerance(torch.float32))


def test_complex_logcumsumexp_of_special_values():
    nan, inf = float("nan"), float("inf")
    x = torch.randn(4, 20, dtype=torch.complex64)
    x[0, 3] = complex(nan, 1)
    x[1, 5] = complex(1, nan)
    x[2, :2] = complex(-inf, 0)
    for dim in (0, 1):
        check(call("logcumsumexp", dim), x, **tolerance(torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logcumsumexp_of_far_apart_values(dtype):
    for spread in (1e-3, 10, 100, 1000):
        x = torch.randn(4, 200, dtype=dtype) * spread
        check(call("logcumsumexp", 1), x, spread, **tolerance(dtype))
        check(call("logcumsumexp", 1), x.sort(1).values, spread, **tolerance(dtype))
        check(call("logcumsumexp", 0), x, spread, **tolerance(dtype))


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_last_of_equal_elements(name):
    for x in (
        torch.randint(0, 3, (3, 1000)),
        torch.zeros(5000),
        torch.full((3000,), -float("inf")),
        torch.full((3000,), float("inf")),
    ):
        check(call(name, -1), x)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [511, 4096, 5000, 100003])
def test_long_lines(name, length):
    x = torch.randn(3, length)
    if name == "cumprod":
        x = 1 + x * 1e-3
    for dim, view in ((1, x), (0, x.t()), (0, x[:, : length // 2 * 2].reshape(-1, 6))):
        check(call(name, dim), view, (dim, tuple(view.shape)), rtol=1e-4, atol=1e-4)


def test_ten_million_elements():
    x = torch.randint(-100, 100, (10_000_000,))
    check(call("cumsum", 0), x)
    check(call("cummax", 0), x)
    check(call("cumsum", 0), torch.rand(10_000_000), rtol=1e-6, atol=0)


def test_int64_is_exact():
    x = torch.tensor([2**53 + 1, 3, -(2**59), 2**60 + 1, 7])
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        check(call(name, 0), x)
    check(call("cumsum", 0), torch.full((70000,), 2**45 + 1))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
def test_in_place(name, dtype):
    for shape in ((7, 40), (2, 20000)):
        for dim in (0, 1):
            for transpose in (False, True):
                x = make(shape, dtype)
                view = x.t() if transpose else x
                y = on_device(view)
                expected = getattr(view.clone(), name + "_")(dim)
                assert getattr(y, name + "_")(dim) is y
                assert_close(y.cpu(), expected, equal_nan=True, **tolerance(dtype))


@pytest.mark.parametrize("name", NAMES)
def test_out(name):
    x = torch.randn(4, 50)
    expected = getattr(torch, name)(x, 1)
    pair = not isinstance(expected, torch.Tensor)
    leaves = tuple(expected) if pair else (expected,)
    for make_out in (
        lambda e: torch.empty(0, dtype=e.dtype, device="ocl"),
        lambda e: torch.empty(50, 4, dtype=e.dtype, device="ocl").t(),
    ):
        outs = [make_out(leaf) for leaf in leaves]
        getattr(torch, name)(x.to("ocl"), 1, out=tuple(outs) if pair else outs[0])
        for out, leaf in zip(outs, leaves, strict=True):
            assert_close(out.cpu(), leaf)


def test_composites():
    x, steps = torch.randn(5, 60), torch.rand(60)
    check(lambda t: torch.cumulative_trapezoid(t, dim=1), x, rtol=1e-5, atol=1e-5)
    check(lambda t: torch.cumulative_trapezoid(t, dx=0.5, dim=0), x, rtol=1e-5, atol=1e-5)
    check(
        lambda t: torch.cumulative_trapezoid(t, steps.to(t.device), dim=1), x, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", NAMES)
def test_gradient(name):
    x = torch.randn(4, 30)
    weights = torch.randn(4, 30)
    gradients = []
    for device in ("cpu", "ocl"):
        leaf = x.detach().clone().to(device).requires_grad_()
        result = getattr(torch, name)(leaf, 1)
        result = result if isinstance(result, torch.Tensor) else result.values
        (result * weights.to(device)).sum().backward()
        gradients.append(leaf.grad.cpu())
    assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("cummax", torch.complex64), ("logcumsumexp", torch.int32), ("cummin", torch.complex64)],
    ids=str,
)
def test_undefined_dtypes(name, dtype):
    for device in ("cpu", "ocl"):
        with pytest.raises((RuntimeError, NotImplementedError)):
            getattr(torch, name)(torch.ones(3, dtype=dtype, device=device), 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_dtype_asked_for_is_cast_to_first(dtype):
    for x in (torch.tensor([1e5, -1e5]), torch.tensor([100001, -100000])):
        actual = x.to("ocl").cumsum(0, dtype=dtype).cpu()
        assert_close(actual, x.cumsum(0, dtype=dtype), equal_nan=True)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize(
    ("dtype", "out_dtype"),
    [(torch.bool, torch.uint8), (torch.bool, torch.bool), (torch.bool, torch.int64),
     (torch.uint8, torch.uint8), (torch.int32, torch.float32)],
    ids=str,
)  # fmt: skip
def test_overlapping_results(name, dtype, out_dtype):
    """An input of another dtype is cast first, and may overlap; bool is refused before overlaps."""
    outcomes = []
    for device in ("cpu", "ocl"):
        memory = (torch.arange(64, dtype=torch.uint8, device=device) % 3 > 0).to(torch.uint8)
        x, out = memory.view(dtype)[1:5], memory.view(out_dtype)[:4]
        try:
            outcomes.append(getattr(torch, name)(x, 0, out=out).tolist())
        except (RuntimeError, NotImplementedError) as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]
