"""Results given by out= or by a mask of another dtype: the warnings, exceptions and values of CPU
torch."""

import warnings

import pytest
import torch


def outcome(call, device):
    """The result or the exception's type, and what was warned of."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = call(device)
            except Exception as error:  # noqa: BLE001 - whatever CPU torch raises is what is wanted
                result = type(error)
    finally:
        torch.set_warn_always(always)
    # Where in torch's sources a warning comes from is its own.
    return result, sorted(str(warning.message).split(" (Triggered")[0] for warning in caught)


def compare(call):
    expected, warned = outcome(call, "cpu")
    actual, warned_too = outcome(call, "ocl")
    assert warned_too == warned
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)
    else:
        assert actual is expected
    return warned


def numbers(device):
    return torch.arange(6.0, device=device).view(2, 3)


def complex_numbers(device):
    return torch.complex(numbers(device), numbers(device) + 1)


DTYPES = [
    torch.float32,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "cumsum", "cumprod", "logsumexp"])
def test_imaginary_parts(name, dtype):
    function = getattr(torch, name)

    def out(device):
        shape = (2, 3) if name.startswith("cum") else (3,)
        return torch.zeros(shape, dtype=dtype, device=device)

    warned = compare(lambda d: function(complex_numbers(d), 0, out=out(d)))
    if dtype == torch.float32:
        assert set(warned) == {"Casting complex values to real discards the imaginary part"}
    compare(lambda d: function(complex_numbers(d)[:0], 0, out=out(d)))
    if name != "logsumexp":
        compare(lambda d: function(complex_numbers(d), 0, dtype=dtype))
    if name in ("sum", "mean", "prod"):
        compare(lambda d: function(complex_numbers(d), dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["var", "std"])
def test_moments_into_out(name, dtype):
    function = getattr(torch, name)
    for size in (3, 5, 0):
        for values in (numbers, complex_numbers):
            for rows in (2, 1, 0):
                compare(
                    lambda d, size=size, values=values, rows=rows: function(
                        values(d)[:rows], 0, out=torch.zeros(size, dtype=dtype, device=d)
                    )
                )
    compare(lambda d: function(numbers(d)[0], 0, out=torch.zeros(2, dtype=dtype, device=d)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "name", ["sum", "prod", "mean", "nansum", "amax", "norm", "max", "nanmean"]
)
def test_folds_into_out(name, dtype):
    function = getattr(torch, name)

    def out(device, size):
        values = torch.zeros(size, dtype=dtype, device=device)
        indices = torch.zeros(size, dtype=torch.int64, device=device)
        return (values, indices) if name == "max" else values

    def first(result):
        return result[0] if name == "max" else result

    for size in (3, 5):
        compare(lambda d, size=size: first(function(numbers(d), dim=0, out=out(d, size))))
    if name in ("sum", "prod", "nansum", "nanmean"):
        compare(lambda d: function(numbers(d), dim=0, dtype=dtype))
    if name == "max":
        compare(lambda d: torch.max(numbers(d), out=torch.zeros((), dtype=dtype, device=d)))
        compare(lambda d: torch.min(numbers(d), out=torch.zeros((), dtype=dtype, device=d)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int8, torch.int64], ids=str)
def test_masks(dtype):
    def mask(device):
        return torch.ones(2, 3, dtype=dtype, device=device)

    warned = compare(lambda d: numbers(d).masked_scatter(mask(d), numbers(d)))
    assert bool(warned) == (dtype == torch.uint8)
    compare(lambda d: numbers(d)[:0].masked_scatter(mask(d)[:0], numbers(d)))
    compare(lambda d: numbers(d).masked_fill(mask(d), 1.0))
    compare(lambda d: numbers(d).masked_select(mask(d)))
    compare(lambda d: torch.where(mask(d), numbers(d), numbers(d)))
    compare(lambda d: numbers(d)[mask(d)] if dtype != torch.int64 else numbers(d)[mask(d)[:, 0]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("out", [*DTYPES, torch.bfloat16], ids=str)
def test_rounding_is_of_the_operands_dtype(dtype, out):
    """Where an op is about the dtype's precision, that of out= is nothing to it."""
    x = torch.linspace(-9, 9, 301).to(dtype)
    y = torch.linspace(0.3, -0.4, 301).to(dtype)

    def trunc(x, y, out):
        return torch.div(x, y, rounding_mode="trunc", out=out)

    for function in (torch.nextafter, trunc):
        compare(
            lambda d, function=function: function(
                x.to(d), y.to(d), out=torch.zeros(301, dtype=out, device=d)
            )
        )


@pytest.mark.parametrize(
    "dtype", [torch.complex64, torch.bool, torch.float32, torch.uint8], ids=str
)
def test_numbers_without_dimensions(dtype):
    """An op with nothing to compare takes dtypes without an order."""

    def number(device):
        return torch.tensor(3, device=device).to(dtype)

    for call in (
        lambda x: x.mode(),
        lambda x: x.mode(-1, True),
        lambda x: x.mode(1),
        lambda x: x.topk(1),
        lambda x: x.topk(2),
        lambda x: x.kthvalue(1),
        lambda x: x.kthvalue(2),
        lambda x: x.sort(),
        lambda x: x.max(0),
        lambda x: x.min(0, keepdim=True),
        lambda x: torch.aminmax(x, dim=0),
        lambda x: torch.aminmax(x),
        lambda x: x.median(),
        lambda x: x.median(0),
        lambda x: x.cummax(0),
        lambda x: x.argmax(),
        lambda x: x.trace(),
    ):
        expected, _ = outcome(lambda d, call=call: call(number(d)), "cpu")
        actual, _ = outcome(lambda d, call=call: call(number(d)), "ocl")
        if isinstance(expected, type):
            assert actual is expected
            continue
        both = [[one] if isinstance(one, torch.Tensor) else list(one) for one in (actual, expected)]
        for one, other in zip(*both, strict=True):
            assert torch.equal(one.cpu(), other) and one.dtype == other.dtype


@pytest.mark.parametrize(
    "call",
    [
        lambda d: complex_numbers(d)[:0].view(0, 3).median(1),
        lambda d: complex_numbers(d)[:, :0].median(0),
        lambda d: complex_numbers(d)[:, :0].nanmedian(0),
        lambda d: torch.aminmax(complex_numbers(d)[:0], dim=1),
        lambda d: numbers(d)[:0].index_select(0, torch.zeros(1, dtype=torch.long, device=d)),
        lambda d: torch.addmm(numbers(d)[:0].bool(), *torch.ones(2, 2, 2, device=d).bool()),
        lambda d: torch.tensor(True, device=d).trace(),
        lambda d: numbers(d).nansum(out=torch.zeros((), dtype=torch.int64, device=d)),
        lambda d: torch.quantile(numbers(d).half(), torch.tensor([0.5], device=d).half()),
        lambda d: torch.quantile(numbers(d), torch.tensor([1], device=d)),
    ],
)
def test_which_refusal(call):
    expected, _ = outcome(call, "cpu")
    actual, _ = outcome(call, "ocl")
    assert isinstance(expected, type) and actual is expected


OPS_INTO_OUT = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "add of half": lambda x, out: torch.add(x.half(), x, out=out),
    "sin of integers": lambda x, out: torch.sin(x.int(), out=out),
    "eq": lambda x, out: torch.eq(x, x, out=out),
    "logical_not": lambda x, out: torch.logical_not(x, out=out),
    "isposinf": lambda x, out: torch.isposinf(x, out=out),
    "pow": lambda x, out: torch.pow(x, 2, out=out),
    "floor_divide": lambda x, out: torch.floor_divide(x, 2, out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
}


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPS_INTO_OUT)
def test_how_often_a_resized_result_is_warned_of(name, dtype):
    for shape in ((4,), (0,), (2, 3), ()):
        compare(
            lambda d, shape=shape: OPS_INTO_OUT[name](
                numbers(d), torch.zeros(shape, dtype=dtype, device=d)
            )
        )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int8, torch.int64], ids=str)
def test_values_through_masks(dtype):
    def mask(device):
        return torch.tensor([[1, 0, 1], [0, 0, 1]], device=device).to(dtype)

    def put(device, *index, value):
        x = numbers(device)
        x[index] = value
        return x

    for value in (
        lambda d: 7.0,
        lambda d: torch.tensor(7.0, device=d),
        lambda d: torch.tensor([7], device=d),
        lambda d: torch.tensor([7.0, 8.0, 9.0], device=d),
        lambda d: torch.tensor([7.0, 8.0], device=d),
        lambda d: torch.empty(0, device=d),
    ):
        for index in (
            lambda d: [mask(d)],
            lambda d: [..., mask(d)],
            lambda d: [mask(d)[:, 0]],
            lambda d: [slice(None), mask(d)[0]],
            lambda d: [mask(d)[0, 0]],
            lambda d: [mask(d)[0]],
            lambda d: [mask(d)[:, 0], torch.tensor([0], device=d)],
        ):
            compare(lambda d, i=index, v=value: put(d, *i(d), value=v(d)))
            compare(lambda d, i=index: numbers(d)[tuple(i(d))])
    for accumulate in (False, True):
        compare(
            lambda d, a=accumulate: numbers(d).index_put(
                (mask(d),), torch.tensor(7.0, device=d), accumulate=a
            )
        )
        compare(
            lambda d, a=accumulate: numbers(d)[0, 0].index_put(
                (mask(d)[0, 0],), torch.tensor(7.0, device=d), accumulate=a
            )
        )


@pytest.mark.parametrize(
    "start, length, dim",
    [
        (0, 2, 0), (3, 0, 0), (-1, 1, 0), (1, 2, -1), (0, 1, 2), (0, 1, -3), (0, -1, 0), (4, 1, 0),
        (-5, -1, 0), (2, 2, 0), (-4, 0, 0),
    ],
)  # fmt: skip
def test_narrow_copy(start, length, dim):
    def x(device):
        return torch.arange(12.0, device=device).view(3, 4)

    compare(lambda d: torch.narrow_copy(x(d), dim, start, length))
    compare(lambda d: torch.narrow_copy(x(d)[0, 0], dim, start, length))
    compare(lambda d: torch.narrow_copy(x(d)[:0], dim, start, length))
    for dtype in (torch.float32, torch.float64):
        compare(
            lambda d, dtype=dtype: torch.narrow_copy(
                x(d), dim, start, length, out=torch.zeros(2, dtype=dtype, device=d)
            )
        )


@pytest.mark.parametrize("name", ["kthvalue", "mode", "median", "nanmedian"])
def test_statistics_into_out(name):
    def call(device, rows, dim, keepdim, *shapes):
        x = numbers(device) if rows is None else numbers(device)[0, 0].expand((2,) * rows)
        out = tuple(
            torch.zeros(shape, dtype=dtype, device=device)
            for shape, dtype in zip(shapes, (torch.float32, torch.int64), strict=True)
        )
        arguments = (x, 1, dim) if name == "kthvalue" else (x, dim)
        getattr(torch, name)(*arguments, keepdim=keepdim, out=out)
        return torch.stack([out[0], out[1].float()])

    for rows, dim in ((None, 0), (None, -1), (0, 0), (3, 1)):
        for keepdim in (False, True):
            for shapes in (((5,), (4,)), ((), (2, 1)), ((1, 2), (3,)), ((0,), (2, 2, 2, 1))):
                compare(
                    lambda d, r=rows, i=dim, k=keepdim, s=shapes: call(d, r, i, k, *s),
                )


@pytest.mark.parametrize("shape", [(3,), (3, 2), (1, 1), (0,)], ids=str)
def test_randperm_into_out(shape):
    for n in (0, 1):
        compare(
            lambda d, n=n: torch.randperm(n, out=torch.zeros(shape, dtype=torch.int64, device=d))
        )
