"""Cases of single ops: pointwise, reductions, rows, copies, launches."""

import math

import torch
from torch.nn import functional

from benchmarks.harness.case import LOOSE, READ, add, tensors

MIB = 2**20


def pointwise(name, call, shapes, moved, dtype=torch.float32, **properties):
    def make(device):
        inputs = tensors(device, *shapes, dtype=dtype)
        return lambda: call(*inputs)

    add(name, "pointwise", make, dtype=str(dtype)[6:], bytes=moved, **properties)


N16M = (16 * MIB,)


def out_of(function, inputs):
    def make(device):
        values = tensors(device, *[N16M] * inputs)
        out = torch.empty_like(values[0])
        return lambda: function(*values, out=out)

    return make


for label, function, inputs in (
    ("add", torch.add, 2),
    ("mul", torch.mul, 2),
    ("exp", torch.exp, 1),
    ("sigmoid", torch.sigmoid, 1),
    ("tanh", torch.tanh, 1),
):
    add(
        f"{label} out= 16M",
        "pointwise",
        out_of(function, inputs),
        bytes=4 * 16 * MIB * (inputs + 1),
        moves=(inputs, 1),
    )
pointwise("gelu 16M", functional.gelu, [N16M], 8 * 16 * MIB)
pointwise("add row 4096x4096", torch.add, [(4096, 4096), (4096,)], 8 * 4096**2)
pointwise("add column 4096x4096", torch.add, [(4096, 4096), (4096, 1)], 8 * 4096**2)
pointwise(
    "add float16 16M", torch.add, [N16M, N16M], 6 * 16 * MIB, dtype=torch.float16, moves=(2, 1)
)
pointwise(
    "add bfloat16 16M", torch.add, [N16M, N16M], 6 * 16 * MIB, dtype=torch.bfloat16, moves=(2, 1)
)


def make_mixed(device):
    (a,) = tensors(device, (4096, 1024))
    b = torch.arange(1024).to(device)
    return lambda: a + b


def make_int64(device):
    a = torch.arange(8 * MIB).to(device)
    return lambda: a + a


def make_where(device):
    a, b = tensors(device, N16M, N16M)
    condition = a > 0
    return lambda: torch.where(condition, a, b)


add("add float32 and int64", "pointwise", make_mixed, bytes=8 * 4 * MIB)
add("add int64 8M", "pointwise", make_int64, dtype="int64", bytes=24 * 8 * MIB)
add("where 16M", "pointwise", make_where, bytes=13 * 16 * MIB, moves=(2, 1))


def unary(name, family, call, shape, moved, **properties):
    def make(device):
        (x,) = tensors(device, shape)
        return lambda: call(x)

    add(name, family, make, bytes=moved, **properties)


SQUARE = (4096, 4096)
ROWS = (4096, 1024)
unary("transposed copy 4096x4096", "copy", lambda x: x.t().contiguous(), SQUARE, 8 * 4096**2)
unary("cast to float16 16M", "copy", lambda x: x.half(), N16M, 6 * 16 * MIB, moves=(2, 1))
unary("cast to float64 4M", "copy", lambda x: x.double(), (4 * MIB,), 12 * 4 * MIB, moves=(1, 2))
unary("clone 16M", "copy", torch.clone, N16M, 8 * 16 * MIB)
unary("fill 16M", "copy", lambda x: x.fill_(1.5), N16M, 4 * 16 * MIB, moves=(0, 1))
for name, call, shape, tolerance in (
    ("sum 16M", torch.sum, N16M, {"rtol": 1e-3, "atol": 2.0}),
    ("sum dim 0 4096x4096", lambda x: x.sum(0), SQUARE, LOOSE),
    ("sum dim 1 4096x4096", lambda x: x.sum(1), SQUARE, LOOSE),
    ("amax 16M", torch.amax, N16M, {}),
    ("argmax 16M", torch.argmax, N16M, {}),
    ("var dim 1 4096x4096", lambda x: x.var(1), SQUARE, LOOSE),
):
    unary(name, "reduce", call, shape, 4 * math.prod(shape), moves=READ, tolerance=tolerance)
unary("softmax 4096x1024", "rows", lambda x: x.softmax(1), ROWS, 8 * 4 * MIB)
unary("log_softmax 4096x1024", "rows", lambda x: x.log_softmax(1), ROWS, 8 * 4 * MIB)


def with_backward(function, shape, dtype=torch.float32):
    def make(device):
        x, gradient = tensors(device, shape, shape, dtype=dtype)
        x.requires_grad_()
        return lambda: torch.autograd.grad(function(x), x, gradient)

    return make


add(
    "softmax forward and backward",
    "rows",
    with_backward(lambda x: x.softmax(1), ROWS),
    bytes=20 * 4 * MIB,
    moves=(3, 2),
)
add(
    "softmax forward and backward bfloat16",
    "rows",
    with_backward(lambda x: x.softmax(1), ROWS, torch.bfloat16),
    bytes=10 * 4 * MIB,
    moves=(3, 2),
    tolerance={"rtol": 1e-2, "atol": 1e-2},
)
add(
    "log_softmax forward and backward",
    "rows",
    with_backward(lambda x: x.log_softmax(1), ROWS),
    bytes=20 * 4 * MIB,
    moves=(3, 2),
    tolerance=LOOSE,
)


def normalization(function, dtype, bias, backward, as_float=False):
    """A norm of 4096 rows of 1024 elements; with `backward`, the gradients of input and parameters.
    `as_float`: the same values in float."""

    def make(device):
        shapes = [ROWS, ROWS, *[(1024,)] * (2 if bias else 1)]
        made = tensors(device, *shapes, dtype=dtype)
        x, gradient, *parameters = [t.float() for t in made] if as_float else made
        if not backward:
            return lambda: function(x, (1024,), *parameters)
        leaves = [t.requires_grad_() for t in (x, *parameters)]
        out = function(x, (1024,), *parameters)
        return lambda: torch.autograd.grad(out, leaves, gradient, retain_graph=True)

    return make


for dtype in (torch.float32, torch.bfloat16):
    size = torch.empty(0, dtype=dtype).element_size()
    suffix = "" if dtype == torch.float32 else f" {str(dtype)[6:]}"
    for label, function, bias in (
        ("layer norm", functional.layer_norm, True),
        ("rms norm", functional.rms_norm, False),
    ):
        for direction, moved in (("forward", 2), ("backward", 3)):
            what = function, dtype, bias, direction == "backward"
            add(
                f"{label} 4096x1024 {direction}{suffix}",
                "rows",
                normalization(*what),
                dtype=str(dtype)[6:],
                bytes=moved * size * 4 * MIB,
                moves=(moved - 1, 1),
                # Mean and deviation are saved in bfloat16, for sums of 4096 terms.
                tolerance=LOOSE if dtype == torch.float32 else {"rtol": 2e-2, "atol": 0.6},
                # CPU torch sums the parameters' gradients in bfloat16, and is off by 20.
                exact=None
                if dtype == torch.float32
                else lambda what=what: normalization(*what, as_float=True)("cpu")(),
            )


def transform(name, call, shape, elements, complex_input=True):
    """A Fourier transform of `elements` numbers in all, counted as 5 n log2 n for each of n."""

    def make(device):
        (x,) = tensors(device, (*shape, 2) if complex_input else shape)
        x = torch.view_as_complex(x) if complex_input else x
        return lambda: call(x)

    logarithm = math.log2(math.prod(shape) if "fft2" in name else shape[-1])
    share = 1 if complex_input else 0.5
    add(
        name,
        "fft",
        make,
        dtype="complex64" if complex_input else "float32",
        flops=5 * share * elements * logarithm,
        bytes=16 * share * elements,
        tolerance={"rtol": 1e-4, "atol": 4e-3},
    )


for label, call, shape, complex_input in (
    ("fft 2^20", torch.fft.fft, (MIB,), True),
    ("fft 1000003", torch.fft.fft, (1000003,), True),
    ("fft 1024x1024", torch.fft.fft, (1024, 1024), True),
    ("fft 1000x1000", torch.fft.fft, (1000, 1000), True),
    ("fft2 1024x1024", torch.fft.fft2, (1024, 1024), True),
    ("rfft 1024x1024", torch.fft.rfft, (1024, 1024), False),
    ("rfft 2^20", torch.fft.rfft, (MIB,), False),
):
    transform(label, call, shape, math.prod(shape), complex_input)


def make_embedding(device):
    (weight,) = tensors(device, (32000, 512))
    weight.requires_grad_()
    index = torch.randint(0, 32000, (4096,), generator=torch.Generator().manual_seed(1)).to(device)
    gradient = torch.ones(4096, 512).to(device)
    return lambda: torch.autograd.grad(functional.embedding(index, weight), weight, gradient)


def make_index_select(device):
    (x,) = tensors(device, (32000, 512))
    index = torch.randint(0, 32000, (4096,), generator=torch.Generator().manual_seed(1)).to(device)
    return lambda: x.index_select(0, index)


add(
    "embedding 32000x512 forward and backward",
    "index",
    make_embedding,
    bytes=4 * 512 * (32000 + 3 * 4096),
)
add("index_select 4096 of 32000x512", "index", make_index_select, bytes=8 * 512 * 4096)
for shape in ((10**7,), (10**5, 16), (1000, 1000)):
    name = "x".join(map(str, shape))
    moved = 16 * math.prod(shape)
    unary(f"sort {name}", "sort", lambda x: x.sort(stable=True)[0], shape, moved)
unary("topk 10 of 1000x1000", "sort", lambda x: x.topk(10)[0], (1000, 1000), 4 * 10**6)
unary("unique 1000000", "sort", lambda x: (x * 1000).long().unique(), (10**6,), 24 * 10**6)
unary(
    "dropout 16M", "random", lambda x: functional.dropout(x, 0.5), N16M, 9 * 16 * MIB, random=True
)
unary(
    "uniform_ 16M", "random", lambda x: x.uniform_(), N16M, 4 * 16 * MIB, moves=(0, 1), random=True
)


def make_many(op, shape, count=1000):
    def make(device):
        a, b = tensors(device, shape, shape)

        def call():
            for _ in range(count):
                result = op(a, b)
            return result

        return call

    return make


add("1000 adds of 10 elements", "launch", make_many(torch.add, (10,)), repeats=1000, target=3.0)
add("1000 mm of 8x8", "launch", make_many(torch.mm, (8, 8)), repeats=1000, target=3.0)


def make_upload(device):
    host = torch.randn(16 * MIB)
    return lambda: host.to(device) if device != "cpu" else host.clone()


def make_download(device):
    (x,) = tensors(device, N16M)
    return lambda: x.cpu() if device != "cpu" else x.clone()


add("host to device 64 MiB (CPU: clone)", "copy", make_upload, bytes=8 * 16 * MIB, random=True)
add("device to host 64 MiB (CPU: clone)", "copy", make_download, bytes=8 * 16 * MIB, random=True)
