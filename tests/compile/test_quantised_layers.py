"""Linear layers of 8 and 4 bits with few rows: torch.ops.ocl.linear_pieces with scales, and what
torch.compile makes of torch's own ops, on GPUs in fewer launches."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_ocl.inductor.passes  # noqa: F401
from tests.as_gpu import run_as_gpu, takes_gpu_kernels
from tests.compile.test_combo_kernels import launches
from torch_ocl.utils import int4

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
#: An error may be that part of the largest result: what its dtype rounds to, and sums of float.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
BITS = ["int8", "int4", "points"]


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def quantised(bits, n, k, dtype, group=32):
    """A weight and its scales for linear_pieces, on the device, and its numbers."""
    if bits == "int8":
        weight, scales = torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n).to(dtype)
        return weight.to("ocl"), scales.to("ocl"), weight.double() * scales.double()[:, None]
    values = torch.randint(0, 16, (n, k), dtype=torch.uint8)
    pairs = torch.randn(k // group, n, 2).to(dtype)
    if bits == "points":
        pairs[..., 1] = torch.randint(0, 17, pairs.shape[:2])
    scale, second = pairs.double().repeat_interleave(group, 0).transpose(0, 1).unbind(-1)
    numbers = (values - second) * scale if bits == "points" else (values - 8.0) * scale + second
    # As GPUs have them: a CPU's product asks for other kernels.
    blocks = values.view(n, k // 32, 2, 16)
    packed = (blocks[:, :, 0] | blocks[:, :, 1] << 4).reshape(n, k // 2)
    return packed.to("ocl"), pairs.to("ocl"), numbers


def check(bits, x, widths, group=32, scales_dtype=None, norm=None, place=lambda t: t.to("ocl")):
    made = [quantised(bits, n, x.shape[1], scales_dtype or x.dtype, group) for n in widths]
    rest = {} if norm is None else {"epsilon": 1e-6, "norm": place(norm), "shift": 1.0}
    found = torch.ops.ocl.linear_pieces(
        place(x),
        [place(w) for w, _, _ in made],
        [place(s) for _, s, _ in made],
        points=bits == "points",
        **rest,
    )
    exact = x.double()
    if norm is not None:
        exact = exact * (exact.square().mean(-1, True) + 1e-6).rsqrt() * (norm.double() + 1)
    expected = exact @ torch.cat([numbers for _, _, numbers in made]).t()
    assert found.dtype == x.dtype
    most = expected.abs().max().item() if expected.numel() else 0
    atol = TOLERANCE[x.dtype] * most
    torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sizes(dtype, bits):
    for rows in (0, 1, 2, 3, 5, 8, 9):
        for depth in (32, 96, 1024):
            x, norm = torch.randn(rows, depth).to(dtype), torch.randn(depth)
            for widths in ((40,), (64, 32), (100, 3, 17), (12, 0, 40)):
                check(bits, x, widths)
                check(bits, x, widths, norm=norm)


@pytest.mark.parametrize("bits", BITS)
def test_parts_of_long_columns(bits):
    """Few columns that are long are summed by several groups."""
    for widths in ((16,), (8, 8)):
        check(bits, torch.randn(1, 2**15), widths)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_places(dtype, bits):
    """Groups of other lengths, scales of other dtypes, and operands that are aligned to nothing."""
    x, norm = torch.randn(2, 256).to(dtype), torch.randn(256).to(dtype)
    for group in (64, 128, 256):
        check(bits, x, (48,), group)
    for other in DTYPES:
        check(bits, x, (24, 40), scales_dtype=other, norm=norm)

    def shifted(t):
        t = t.to("ocl")
        return torch.cat([t.new_zeros(1), t.flatten()])[1:].view(t.shape)

    def strided(t):
        return torch.stack([t, t], -1).to("ocl")[..., 0]

    for place in (shifted, strided):
        check(bits, x, (24, 40), norm=norm, place=place)
    check(bits, x, (8,) * 4)


@pytest.mark.parametrize("bits", BITS)
def test_values(bits):
    """A row's infinity and NaN are its own."""
    x = torch.randn(4, 64)
    x[1, 3], x[2, 40], x[3] = torch.nan, torch.inf, 0
    weight, scales, numbers = quantised(bits, 24, 64, torch.float32)
    rest = {"points": bits == "points"}
    found = torch.ops.ocl.linear_pieces(x.to("ocl"), [weight], [scales], **rest)
    expected = (x.double() @ numbers.t()).float()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-3, equal_nan=True)


def test_it_says_what_it_wants():
    x = torch.randn(2, 64, device="ocl")
    weight, scales, _ = quantised("int4", 8, 64, torch.float32)
    call = torch.ops.ocl.linear_pieces
    for weights, given, match in (
        ([weight], [scales, scales], "scales for each of 1"),
        ([weight[:, :16]], [scales], "weights of 64 columns"),
        ([weight.to(torch.int16)], [scales], "weights of 64 columns"),
        ([weight, weight.char().repeat(1, 2)], [scales] * 2, "weights of 64 columns"),
        ([weight], [scales[:, :7]], "scales of 8 rows"),
        ([weight], [scales.double()], "scales of 8 rows"),
        ([weight], [scales.cpu()], "scales of 8 rows"),
        ([weight], [scales.repeat(2, 1, 1)], "scales of 8 rows"),
    ):
        with pytest.raises(RuntimeError, match=match):
            call(x, weights, given)
    with pytest.raises(RuntimeError, match="an input of float32, float16 or bfloat16"):
        call(x.double(), [weight], [scales])
    torch.library.opcheck(
        call, (x, [weight], [scales]), test_utils=("test_schema", "test_faketensor")
    )


class Quantised(nn.Module):
    """A layer without a bias, by the op that torch has for such a weight."""

    def __init__(self, bits, inputs, outputs, dtype):
        super().__init__()
        self.bits = bits
        if bits == "int8":
            weight = torch.randint(-128, 128, (outputs, inputs), dtype=torch.int8).to("ocl")
            scales = (torch.rand(outputs) / 128).to(dtype)
            self.numbers = weight.cpu().double() * scales.double()[:, None]
        else:
            values = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8)
            pairs = (values[:, ::2] << 4 | values[:, 1::2]).to("ocl")
            weight = torch.ops.aten._convert_weight_to_int4pack(pairs, 2)
            scales = torch.rand(inputs // 32, outputs, 2).to(dtype) / 8
            scale, offset = scales.double().repeat_interleave(32, 0).transpose(0, 1).unbind(-1)
            self.numbers = (values - 8.0) * scale + offset
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales.to("ocl"))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        if x.device.type == "cpu":
            out = rows @ self.numbers.to(x.dtype).t()
        elif self.bits == "int8":
            out = torch.ops.aten._weight_int8pack_mm(rows, self.weight, self.scales)
        else:
            out = torch.ops.aten._weight_int4pack_mm(rows, self.weight, 32, self.scales)
        return out.view(*x.shape[:-1], out.shape[-1])


class Layer(nn.Module):
    """A decoder's layer without attention."""

    def __init__(self, bits, dtype):
        super().__init__()
        self.norms = nn.ParameterList(torch.rand(64).to(dtype) for _ in range(2))
        shapes = {"q": (64, 64), "k": (64, 32), "v": (64, 32), "o": (64, 64)}
        shapes |= {"gate": (64, 96), "up": (64, 96), "down": (96, 64)}
        layers = {name: Quantised(bits, *shape, dtype) for name, shape in shapes.items()}
        self.layers = nn.ModuleDict(layers)

    def forward(self, x):
        of = self.layers
        normed = F.rms_norm(x, (64,), self.norms[0].to(x.dtype), 1e-6)
        mixed = torch.cat([of["k"](normed), of["v"](normed)], -1).flip(-1)
        x = x + of["o"](of["q"](normed).flip(-1) + mixed)
        normed = F.rms_norm(x, (64,), self.norms[1].to(x.dtype), 1e-6)
        return x + of["down"](F.silu(of["gate"](normed)) * of["up"](normed))


@pytest.mark.parametrize("bits", ["int8", "int4"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 4])
@torch.no_grad()
def test_layers(rows, dtype, bits):
    torch.manual_seed(rows)
    layer = Layer(bits, dtype)
    x = torch.randn(1, rows, 64).to(dtype)
    expected = layer(x.double())
    layer = layer.to("ocl")
    function = torch.compile(layer, fullgraph=True)
    function(x.to("ocl"))
    found, count = launches(lambda: function(x.to("ocl")))
    atol = 8 * TOLERANCE[dtype] * expected.abs().max().item()
    torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=atol)
    if takes_gpu_kernels():
        # Query, key and value; what is done to them; output; gate and up; their product; down.
        assert count <= 6


class Packed(nn.Module):
    """Layers as GPTQ and AWQ have them, with a bias or without."""

    def __init__(self, bias, dtype):
        super().__init__()
        values = [torch.randint(0, 16, (96, 64), dtype=torch.uint8) for _ in range(2)]
        pairs = [torch.rand(2, 96, 2).to(dtype) / 8 for _ in range(2)]
        for pair in pairs:
            pair[..., 1] = 8
        scale = [p[..., 0].double().repeat_interleave(32, 0).t() for p in pairs]
        self.numbers = [(v - 8.0) * s for v, s in zip(values, scale, strict=True)]
        self.weights = [
            int4.pack(v.to("ocl"), *p.to("ocl").unbind(-1), None, dtype)
            for v, p in zip(values, pairs, strict=True)
        ]
        self.bias = torch.randn(96).to(dtype) if bias else None

    def forward(self, x):
        bias = None if self.bias is None else self.bias.to(x.device, x.dtype)
        weights = self.weights
        if x.device.type == "cpu":
            weights = [numbers.to(x.dtype) for numbers in self.numbers]
        normed = F.rms_norm(x, (64,), None, 1e-6)
        return F.gelu(F.linear(x, weights[0], bias)) + F.linear(normed, weights[1]).flip(-1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.no_grad()
def test_layers_with_points(dtype, bias):
    layer = Packed(bias, dtype)
    x = torch.randn(1, 1, 64).to(dtype)
    expected = layer(x.double())
    function = torch.compile(layer, fullgraph=True)
    function(x.to("ocl"))
    found, count = launches(lambda: function(x.to("ocl")))
    atol = 4 * TOLERANCE[dtype] * expected.abs().max().item()
    torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=atol)
    if takes_gpu_kernels():
        assert count <= 4


@torch.no_grad()
def test_columns_that_are_symbols():
    """Weights are inputs of the graph, too."""

    def function(x, plain, weight, scales):
        both = [F.linear(x, w) for w in plain]
        alone = torch.ops.aten._weight_int4pack_mm(x, weight, 32, scales)
        return torch.cat(both, 1).flip(1), torch.relu(alone) + 1

    compiled = torch.compile(function, dynamic=True)
    for n in (48, 64, 80):
        x, plain = torch.randn(2, 64), [torch.randn(n, 64) for _ in range(2)]
        bits = torch.randint(0, 256, (n, 32), dtype=torch.uint8).to("ocl")
        weight = torch.ops.aten._convert_weight_to_int4pack(bits, 2)
        operands = x.to("ocl"), [w.to("ocl") for w in plain], weight, torch.rand(2, n, 2).to("ocl")
        for found, expected in zip(compiled(*operands), function(*operands), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


@torch.no_grad()
def test_called_from_cpp():
    """A product alone stays torch's own op there."""
    layer = Layer("int4", torch.float32)
    x = torch.randn(1, 1, 64)
    expected = layer(x.double()).float()
    function = torch.compile(layer.to("ocl"), options={"cpp_wrapper": True})
    torch.testing.assert_close(function(x.to("ocl")).cpu(), expected, rtol=1e-4, atol=1e-3)


def test_as_gpu():
    run_as_gpu(__file__)
