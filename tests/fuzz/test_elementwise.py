"""Random cases for the engines that walk tensors as they lie: pointwise, copy, reduce, scan."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.tensors import DTYPES, FLOAT, INT, REAL, broadcastable, dims_of, pair, same, shapes

UNARY = (
    torch.abs,
    torch.neg,
    torch.sign,
    torch.square,
    torch.exp,
    torch.sin,
    torch.tanh,
    torch.sqrt,
    torch.log1p,
    torch.floor,
    torch.ceil,
    torch.round,
    torch.trunc,
    torch.erf,
    torch.isnan,
    torch.isinf,
    torch.logical_not,
    torch.signbit,
    torch.relu,
    torch.sigmoid,
    torch.nan_to_num,
    torch.sgn,
    torch.conj_physical,
)
# CPU torch's vectors of complex numbers lose infinities, and digits beside a pole.
REAL_ONLY = (torch.log1p, torch.sigmoid)
BINARY = (
    torch.add,
    torch.sub,
    torch.mul,
    torch.true_divide,
    torch.maximum,
    torch.minimum,
    torch.fmax,
    torch.fmin,
    torch.atan2,
    torch.eq,
    torch.ne,
    torch.lt,
    torch.ge,
    torch.logical_and,
    torch.logical_xor,
    torch.bitwise_and,
    torch.bitwise_or,
    torch.copysign,
    torch.heaviside,
    torch.gcd,
    torch.hypot,
    torch.floor_divide,
    torch.remainder,
    torch.fmod,
)


@given(st.data())
def test_unary(data):
    shape = data.draw(shapes())
    dtype = data.draw(st.sampled_from(DTYPES))
    x = data.draw(pair(shape, dtype, special=data.draw(st.booleans())))
    functions = [f for f in UNARY if not (dtype.is_complex and f in REAL_ONLY)]
    function = data.draw(st.sampled_from(functions))
    same("pointwise", function, x)


@given(st.data())
def test_binary(data):
    shape = data.draw(shapes())
    function = data.draw(st.sampled_from(BINARY))
    # The remainders of halves are those of rounded quotients on the CPU.
    integers = function in (torch.floor_divide, torch.remainder, torch.fmod)
    dtypes = st.sampled_from(INT if integers else DTYPES)
    a = data.draw(pair(data.draw(broadcastable(shape)), data.draw(dtypes)))
    kinds = ["tensor", "tensor", "tensor", "number", "cpu scalar"]
    # Upstream lets gcd have no scalar of another device.
    kind = data.draw(st.sampled_from(kinds[:4] if function is torch.gcd else kinds))
    if kind == "number":
        b = data.draw(st.sampled_from([2, -3, True] if integers else [2, -3, 0, 0.5, True]))
    elif kind == "cpu scalar":
        b = torch.tensor(3, dtype=data.draw(dtypes))
    else:
        b = data.draw(pair(data.draw(broadcastable(shape)), data.draw(dtypes)))
    same("pointwise", function, a, b)


@given(st.data())
def test_ternary(data):
    shape = data.draw(shapes(max_dims=4))
    dtype = data.draw(st.sampled_from((torch.float32, torch.float64, torch.int64, torch.int32)))
    a, b, c = (
        data.draw(pair(data.draw(broadcastable(shape)), dtype, exact=True)) for _ in range(3)
    )
    mask = data.draw(pair(data.draw(broadcastable(shape)), torch.bool))
    function, first = data.draw(
        st.sampled_from([(torch.where, mask), (torch.addcmul, a), (torch.clamp, a)])
    )
    same("pointwise", function, first, b, c)


@given(st.data())
def test_out_and_inplace(data):
    """Results go into memory of any layout and dtype, and nowhere else; overlap with the inputs is
    either allowed or refused, as on the CPU."""
    shape = data.draw(shapes(max_dims=4))
    in_place = data.draw(st.booleans())
    # Elements that share memory are written in any order.
    dtype = data.draw(st.sampled_from(DTYPES))
    a = data.draw(pair(shape, dtype, overlapping=not in_place, exact=True))
    b = data.draw(
        pair(data.draw(broadcastable(shape)), data.draw(st.sampled_from(DTYPES)), exact=True)
    )
    function = data.draw(st.sampled_from([torch.add, torch.mul, torch.maximum, torch.lt]))
    if in_place:
        inplace = getattr(torch.Tensor, function.__name__ + "_", torch.Tensor.add_)
        same("pointwise", inplace, a, b)
        return
    out = data.draw(pair(shape, data.draw(st.sampled_from(DTYPES)), overlapping=False))
    same("pointwise", lambda x, y, o: function(x, y, out=o), a, b, out)


@given(st.data())
def test_overlapping_views(data):
    """Source and destination are parts of one tensor."""
    size = data.draw(st.integers(2, 300))
    x = data.draw(pair((size,), data.draw(st.sampled_from(DTYPES)), overlapping=False))
    length = data.draw(st.integers(1, size - 1))
    first, second = (data.draw(st.integers(0, size - length)) for _ in range(2))
    functions = [
        torch.Tensor.copy_,
        torch.Tensor.add_,
        lambda a, b: torch.mul(b, b, out=a),
        lambda a, b: torch.where(b == b, a, b, out=a),
        lambda a, b: torch.neg(b, out=a),
    ]
    function = data.draw(st.sampled_from(functions))
    same("copy", lambda t: function(t[first : first + length], t[second : second + length]), x)


@given(st.data())
def test_copy(data):
    shape = data.draw(shapes())
    source = data.draw(pair(data.draw(broadcastable(shape)), data.draw(st.sampled_from(DTYPES))))
    target = data.draw(pair(shape, data.draw(st.sampled_from(DTYPES)), overlapping=False))
    if target[0].dtype is torch.uint8 and source[0].dtype is not torch.bool:
        source = tuple(t.abs() for t in source)  # negative reals to unsigned: undefined
    same("copy", lambda t, s: t.copy_(s), target, source)
    # Between the host and the device.
    same("copy", lambda t, s: t.copy_(s), target, source[0])
    same("copy", lambda s: s.to("cpu").to(s.device).contiguous(), source)


@given(st.data())
def test_cat_and_formats(data):
    shape = list(data.draw(shapes(min_dims=1, max_dims=4)))
    dim = data.draw(st.integers(0, len(shape) - 1))
    dtypes = st.sampled_from(DTYPES)
    parts = []
    for _ in range(data.draw(st.integers(1, 4))):
        shape[dim] = data.draw(st.integers(0, 20))
        parts.append(data.draw(pair(tuple(shape), data.draw(dtypes))))
    same("copy", lambda *tensors: torch.cat(tensors, dim), *parts)
    if len(shape) == 4:
        same("copy", lambda t: t.clone(memory_format=torch.channels_last), parts[0])


def reduced(t, name, dims, keepdim):
    function = getattr(torch, name)
    if name == "logsumexp" and t.is_cpu:
        # CPU torch rounds to the half types on the way: 4 units of the last place.
        return function(t.double(), dims, keepdim=keepdim).to(t.dtype)
    return function(t) if dims is None else function(t, dims, keepdim=keepdim)


@given(st.data())
def test_reduce(data):
    shape = data.draw(shapes())
    name = data.draw(
        st.sampled_from(["sum", "mean", "prod", "amax", "amin", "any", "all", "std", "logsumexp"])
    )
    # The product of many half numbers leaves their range on the way, in an order of its own.
    dtypes = INT if name == "prod" else FLOAT if name in ("std", "mean", "logsumexp") else REAL
    dtype = data.draw(st.sampled_from(dtypes))
    special = dtype.is_floating_point and name in ("amax", "amin", "any", "all")
    x = data.draw(pair(shape, dtype, exact=True, special=special and data.draw(st.booleans())))
    dims = None
    if name == "prod":
        dims = data.draw(dims_of(shape))
    elif name == "logsumexp" or (shape and data.draw(st.booleans())):
        everything = list(range(len(shape)))
        dims = data.draw(st.lists(st.sampled_from(everything), unique=True)) if shape else [0]
    same("reduce", reduced, x, name, dims, data.draw(st.booleans()))


@given(st.data())
def test_reduce_positions(data):
    shape = data.draw(shapes())
    x = data.draw(pair(shape, data.draw(st.sampled_from([*FLOAT, *INT])), special=True))
    name = data.draw(st.sampled_from(["argmax", "argmin", "max", "min"]))
    same("reduce", reduced, x, name, data.draw(dims_of(shape)), data.draw(st.booleans()))


@given(st.data())
def test_scan(data):
    shape = data.draw(shapes())
    name = data.draw(st.sampled_from(["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]))
    dtypes = {"cumprod": INT, "logcumsumexp": (torch.float32, torch.float64)}
    dtype = data.draw(st.sampled_from(dtypes.get(name, REAL)))
    # Running sums of quarters are exact, also where each is rounded to the dtype.
    x = data.draw(pair(shape, dtype, exact=True, special=name in ("cummax", "cummin")))
    same("scan", getattr(torch, name), x, data.draw(dims_of(shape)))
