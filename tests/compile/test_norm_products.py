"""RMS norms that the products after them take over, on GPUs: results as float64's, in fewer
launches."""

import functools

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

import torch_ocl.inductor.passes  # noqa: F401
from tests.as_gpu import run_as_gpu, takes_gpu_kernels
from tests.compile.test_combo_kernels import launches

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
#: An error may be that part of the largest result: what its dtype rounds to, and sums of float.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def reference(x, weights, epsilon, norm, shift):
    x = x.double()
    x = x * (x.square().mean(-1, True) + epsilon).rsqrt() * (norm.double() + shift)
    return x @ torch.cat(weights).double().t()


def check(x, weights, epsilon, norm, shift=0.0, dtype=None, place=lambda t: t.to("ocl")):
    found = torch.ops.ocl.linear_pieces(
        place(x),
        [place(w) for w in weights],
        dtype=dtype,
        epsilon=epsilon,
        norm=place(norm),
        shift=shift,
    )
    assert found.dtype == (dtype or x.dtype)
    expected = reference(x, weights, epsilon, norm, shift)
    most = expected.abs().max().item() if expected.numel() else 0
    tolerance = TOLERANCE.get(x.dtype, 1e-12) * most
    torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("of_norm", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
def test_sizes(dtype, of_norm):
    for rows in (0, 1, 2, 3, 5, 8, 9):
        for depth in (1, 7, 128, 129, 1000):
            for widths in ((40,), (64, 32), (100, 3, 17), (12, 0, 40)):
                x = torch.randn(rows, depth).to(dtype)
                weights = [torch.randn(n, depth).to(dtype) for n in widths]
                check(x, weights, 1e-6, torch.randn(depth).to(of_norm), shift=1.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_places(dtype):
    """Operands that are aligned to no vector, strided ones, wide sums."""
    x, norm = torch.randn(2, 256).to(dtype), torch.randn(256).to(dtype)
    weights = [torch.randn(n, 256).to(dtype) for n in (64, 48)]

    def shifted(t):
        one_more = torch.cat([t.new_zeros(1), t.flatten()]).to("ocl")
        return one_more[1:].view(t.shape)

    def strided(t):
        return torch.stack([t, t], -1).to("ocl")[..., 0]

    for place in (shifted, strided):
        check(x, weights, 1e-5, norm, place=place)
    check(x, weights, 1e-5, norm, dtype=torch.float32)
    check(x, weights * 2, 1e-5, norm)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values(dtype):
    """Rows of zeros, of large numbers whose squares are, and of no numbers."""
    x, norm, weight = torch.randn(4, 64), torch.randn(64), torch.randn(20, 64)
    x[0], x[1] = 0, x[1] * 200
    x[2, 3], x[3, 5] = torch.nan, torch.inf
    x, norm, weight = (t.to(dtype) for t in (x, norm, weight))
    moved = [t.to("ocl") for t in (x, norm, weight)]
    found = torch.ops.ocl.linear_pieces(moved[0], [moved[2]], epsilon=1e-5, norm=moved[1]).cpu()
    expected = reference(x, [weight], 1e-5, norm, 0)
    assert found[0].abs().max() == 0 and found[2:].isnan().all() and expected[2:].isnan().all()
    atol = TOLERANCE[dtype] * expected[1].abs().max().item()
    torch.testing.assert_close(found[1].double(), expected[1], rtol=0, atol=atol)


def test_it_says_what_it_wants():
    x, weight, norm = (torch.randn(s, device="ocl") for s in ((2, 8), (3, 8), (8,)))
    call = functools.partial(torch.ops.ocl.linear_pieces, x, [weight])
    for wrong in (
        {"epsilon": 1e-5},
        {"norm": norm},
        {"epsilon": 1e-5, "norm": norm[:7]},
        {"epsilon": 1e-5, "norm": norm.int()},
        {"epsilon": 1e-5, "norm": norm.cpu()},
    ):
        with pytest.raises(RuntimeError, match="expected an epsilon, and a norm of 8"):
            call(**wrong)
    arguments = {"epsilon": 1e-5, "norm": norm, "shift": 1.0}
    torch.library.opcheck(
        torch.ops.ocl.linear_pieces,
        (x, [weight]),
        arguments,
        test_utils=("test_schema", "test_faketensor"),
    )


class Layers(nn.Module):
    """A norm and the linear layers that share it; `gated` multiplies two, as Llama does."""

    def __init__(self, norm, outputs, bias=False, gated=False):
        super().__init__()
        self.norm, self.gated = norm, gated
        nn.init.normal_(norm.weight)
        self.layers = nn.ModuleList(nn.Linear(64, n, bias=bias) for n in outputs)

    def forward(self, x):
        normed = self.norm(x)
        outputs = [layer(normed) for layer in self.layers]
        if self.gated:
            return F.silu(outputs[0]) * outputs[1]
        return torch.cat([out.flip(-1) for out in outputs], -1)


NORMS = {
    "torch": lambda: nn.RMSNorm(64, eps=1e-6),
    "llama": lambda: LlamaRMSNorm(64),
    "gemma": lambda: GemmaRMSNorm(64),
}


def compiled(module, x):
    """The compiled module's result, that of float64, and the launches of one call."""
    expected = module.double()(x.double())
    module = module.to(x.dtype).to("ocl")
    function = torch.compile(module, fullgraph=True)
    function(x.to("ocl"))
    found, count = launches(lambda: function(x.to("ocl")))
    return found.cpu(), expected, count


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NORMS)
@torch.no_grad()
def test_modules(name, dtype, gated, bias):
    module = Layers(NORMS[name](), (96, 96) if gated else (64, 32, 32), bias, gated)
    # Parameters are the dtype's, so that what is left is the arithmetic.
    module = module.to(dtype)
    found, expected, count = compiled(module, torch.randn(1, 1, 64).to(dtype))
    atol = 3 * TOLERANCE[dtype] * expected.abs().max().item()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=atol)
    # The products, and what follows.
    if takes_gpu_kernels():
        assert count <= (2 if gated or not bias else 3)


@torch.no_grad()
def test_norms_that_others_read_stay():
    """So do those over another dimension, and what only looks like one."""
    weight = torch.randn(96, 64)

    def read(x, w, n):
        normed = F.rms_norm(x, (64,), n)
        return F.linear(normed, w).cumsum(-1), normed.cumsum(-1)

    def of_batches(x, w, n):
        x = x * torch.rsqrt(x.square().mean(0, True) + 1e-5) * n
        return F.linear(x, w).cumsum(-1)

    def of_another(x, w, n):
        x = x * torch.rsqrt((x + 1).square().mean(-1, True) + 1e-5) * n
        return F.linear(x, w).cumsum(-1)

    def cubes(x, w, n):
        x = x * torch.rsqrt(x.pow(3).abs().mean(-1, True) + 1e-5) * n
        return F.linear(x, w).cumsum(-1)

    def matrices(x, w, n):
        x = x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-5) * torch.outer(n[:2], n)
        return F.linear(x, w).cumsum(-1)

    def written(x, w, n):
        out = F.linear(F.rms_norm(x, (64,), n), w).cumsum(-1)
        x.add_(1)
        return out, F.linear(F.rms_norm(x, (64,), n), w).cumsum(-1)

    for function in (read, of_batches, of_another, cubes, matrices, written):
        torch._dynamo.reset()
        tensors = torch.randn(2, 64), weight, torch.randn(64)
        ours = [t.to("ocl") for t in tensors]
        found = torch.compile(function, fullgraph=True)(*ours)
        expected = function(*tensors)
        torch.testing.assert_close(found, expected, check_device=False, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(ours[0].cpu(), tensors[0])


def test_gradients_keep_the_norm():
    module = Layers(nn.RMSNorm(64, eps=1e-6), (64, 32))
    x = torch.randn(2, 64)
    module(x).square().mean().backward()
    expected = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    module.to("ocl")
    torch.compile(module, fullgraph=True)(x.to("ocl")).square().mean().backward()
    found = [p.grad.cpu() for p in module.parameters()]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


#: More of a configuration, and the most launches on GPUs. On CPUs the norms are two more.
MODELS = {
    "Llama": ({}, 7),
    "Qwen2": ({}, 8),
    "Gemma": ({"head_dim": 16}, 7),
    "Phi3": ({"pad_token_id": 0}, 7),
}


@pytest.mark.parametrize(
    "name", ["Llama", *(pytest.param(n, marks=pytest.mark.slow) for n in MODELS if n != "Llama")]
)
@torch.no_grad()
def test_launches_of_a_decoders_layer(name):
    """A token of transformers' models, over a static cache."""
    counts = []
    more, most = MODELS[name]
    for layers in (1, 2):
        torch._dynamo.reset()
        torch.manual_seed(0)
        config = getattr(transformers, f"{name}Config")(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=128,
            max_position_embeddings=64,
            **more,
        )
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        ids = torch.randint(0, 128, (1, 6))
        expected = model(ids).logits[:, -1]
        model = model.to("ocl")
        cache = transformers.StaticCache(config=config, max_cache_len=32)
        model(ids[:, :4].to("ocl"), past_key_values=cache, use_cache=True)
        first, second = ids[:, 4:5].to("ocl"), ids[:, 5:].to("ocl")
        step = functools.partial(torch.compile(model), past_key_values=cache, use_cache=True)
        step(first)
        last, count = launches(functools.partial(step, second))
        torch.testing.assert_close(last.logits[:, -1].cpu(), expected, rtol=1e-3, atol=1e-3)
        counts.append(count)
    if takes_gpu_kernels() or name == "Llama":
        assert counts[1] - counts[0] <= most + (0 if takes_gpu_kernels() else 2)


def test_as_gpu():
    run_as_gpu(__file__)


@pytest.mark.slow
def test_decoders_as_gpu():
    run_as_gpu(__file__, "-m", "slow", "-k", "launches_of")
