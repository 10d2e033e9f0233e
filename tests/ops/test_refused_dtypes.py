"""Pointwise ops refuse the dtypes that CPU torch refuses, with the same exception."""

import pytest
import torch

from codegen.optable import load_table

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
NAMES = [entry.name for entry in load_table(torch_version=VERSION) if entry.kind == "pointwise"]
# Arguments that are no tensor of shape (2, 2), of the dtype tested, and no 1.
SHAPES = {
    ("addr", "vec1"): (2,),
    ("addr", "vec2"): (2,),
    ("glu_backward", "grad_output"): (2, 1),
    ("glu_jvp", "glu"): (2, 1),
}
DTYPES_OF_OUT = {
    ("complex", "out"): torch.complex64,
    ("polar", "out"): torch.complex64,
    ("frexp", "exponent"): torch.int32,
}
VALUES = {
    ("div", "rounding_mode"): "floor",
    ("glu_backward", "dim"): -1,
    ("glu_jvp", "dim"): -1,
}


def overload(name):
    """The ATen function that an entry names."""
    base, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), variant or "default")


# The factor of a mean over no elements is infinite, which an integer can't hold: CPU torch raises
# for that, where the device has nothing to compute.
INFINITE_FACTOR = {"mse_loss_backward", "smooth_l1_loss_backward"}


def arguments(function, dtype, device, rows=2):
    """(positional, keyword) arguments: what has a default keeps it, but for optional bounds.

    Tensors have so many rows.
    """
    positional, keyword = [], {}
    base = function._schema.name.removeprefix("aten::")
    for argument in function._schema.arguments:
        key, kind = (base, argument.name), str(argument.type)
        if argument.is_out:
            out = DTYPES_OF_OUT.get(key, dtype)
            keyword[argument.name] = torch.empty(0, dtype=out, device=device)
            continue
        if key in VALUES:
            value = VALUES[key]
        elif argument.has_default_value() and not base.startswith("clamp"):
            continue
        elif "Tensor" in kind:
            shape = SHAPES.get(key, (2, 2))
            value = torch.ones((rows, *shape[1:]), dtype=dtype, device=device)
        elif "number" in kind and dtype is torch.bool:
            value = True  # 1 would be promoted to
        else:
            value = {"bool": False, "float": 1.0}.get(kind, 1)
        if argument.kwarg_only:
            keyword[argument.name] = value
        else:
            positional.append(value)
    return positional, keyword


def outcome(function, dtype, device, rows=2):
    """The exception that a call raises, None if nothing."""
    positional, keyword = arguments(function, dtype, device, rows)
    try:
        function(*positional, **keyword)
        if device == "ocl":
            torch.ocl.synchronize()
    except Exception as error:  # noqa: BLE001 - whatever CPU torch raises is what is wanted
        return error
    return None


@pytest.mark.parametrize("name", NAMES)
def test_refused_dtypes(name):
    function = overload(name)
    expected = {dtype: outcome(function, dtype, "cpu") for dtype in DTYPES}
    assert None in expected.values(), f"these arguments are wrong: {expected[torch.float32]}"
    # The op matrix compares what CPU torch accepts.
    for dtype, error in expected.items():
        if error is not None:
            actual = outcome(function, dtype, "ocl")
            assert type(actual) is type(error), f"{dtype}: {actual!r} instead of {error!r}"


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_refused_of_no_elements(name):
    function = overload(name)
    for dtype in DTYPES:
        error = outcome(function, dtype, "cpu", rows=0)
        actual = outcome(function, dtype, "ocl", rows=0)
        if name.partition(".")[0] in INFINITE_FACTOR and "without overflow" in str(error):
            error = None
        assert type(actual) is type(error), f"{dtype}: {actual!r} instead of {error!r}"


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (lambda x: x.bernoulli_(0.5), torch.complex64),
        (lambda x: x.bernoulli_(torch.full((3,), 0.5, device=x.device)), torch.complex64),
        (lambda x: x.geometric_(0.5), torch.complex64),
        (lambda x: torch.ldexp(x, x.bool()), torch.float32),
        (lambda x: torch.ldexp(x, x.bool(), out=x), torch.float16),
        (lambda x: x[:0].ldexp_(x[:0].bool()), torch.float64),
        (lambda x: torch.nn.functional.gelu(x[:0]), torch.bool),
        (lambda x: torch.nn.functional.gelu(x[:0], approximate="tanh"), torch.int32),
        (lambda x: torch.ops.aten.gelu_backward(x[:0], x[:0]), torch.complex64),
        (lambda x: torch.nn.functional.logsigmoid(x[:0]), torch.uint8),
        (lambda x: torch.ops.aten.log_sigmoid_backward(x[:0], x[:0], x[:0]), torch.int64),
        (lambda x: torch._softmax_backward_data(x, x, 0, x.dtype), torch.int64),
        (lambda x: torch._log_softmax_backward_data(x, x, 0, x.dtype), torch.complex64),
    ],
)
def test_refused_by_others(call, dtype):
    for device in ("cpu", "ocl"):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            call(torch.ones(3, dtype=dtype, device=device))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: torch.linalg.cross(x, y),
        lambda x, y: torch.linalg.cross(y, x),
        lambda x, y: torch.cdist(x, y),
        lambda x, y: torch.cdist(y, x),
        lambda x, y: torch.cdist(x, y, p=1.0),
    ],
)
def test_refused_mixtures(call):
    """A kernel would read the second operand as something else, past its end."""
    for device in ("cpu", "ocl"):
        x, y = torch.ones(2, 3, device=device), torch.ones(2, 3, device=device).double()
        with pytest.raises(RuntimeError, match="expected scalar type .* but found"):
            call(x, y)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.int32, torch.bool, torch.float8_e4m3fn, torch.complex64], ids=str
)
def test_matrices_without_elements(dtype):
    def compared(call, *shape):
        results = []
        for device in ("cpu", "ocl"):
            try:
                found = call(torch.zeros(shape, dtype=dtype, device=device))
                found = found if isinstance(found, tuple) else (found,)
                results.append([(one.shape, one.stride(), one.dtype) for one in found])
            except Exception as error:  # noqa: BLE001 - whatever CPU torch raises is what is wanted
                results.append(type(error))
        assert results[0] == results[1], (call, shape)

    for shape in ((0, 0), (0, 3), (3, 0), (2, 0, 0), (0, 2, 2), (2, 3, 0), (0,)):
        compared(lambda x: tuple(torch.geqrf(x)), *shape)
        compared(torch.cholesky_inverse, *shape)
        compared(lambda x: tuple(torch.linalg.qr(x)), *shape)
        compared(lambda x: tuple(torch.linalg.qr(x, "complete")), *shape)
    compared(lambda x: torch.linalg.householder_product(x, x[..., 0, :]), 3, 0)
    compared(lambda x: torch.ormqr(x, x[..., 0, :], x), 3, 0)
    if dtype == torch.float8_e4m3fn:
        compared(torch.linalg.matrix_exp, 3, 3)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_positions_that_need_no_kernel(dtype):
    """Those in a dimension of one element and in results of none are there for every dtype."""
    x = torch.tensor([[[1.0, 0.0, 2.0]], [[0.0, 1.0, 4.0]]]).to(dtype)
    for call in (
        lambda x: x.argmax(1),
        lambda x: x.argmin(1, keepdim=True),
        lambda x: x[0, 0, :1].argmax(-1),
        lambda x: torch.nonzero_static(x, size=0),
        lambda x: torch.nonzero_static(x[0, 0, 0], size=3),
        lambda x: torch.nonzero_static(x[0, 0, 0], size=0),
    ):
        expected, actual = call(x), call(x.to("ocl"))
        assert actual.shape == expected.shape and torch.equal(actual.cpu(), expected)
    for call in (lambda x: x.argmax(2), lambda x: torch.nonzero_static(x, size=2)):
        for device in ("cpu", "ocl"):
            with pytest.raises(NotImplementedError):
                call(x.to(device))
