"""Compiled graphs compute with the numbers of this call, not with those of an earlier one.

A number that changes becomes a symbol. Where a product with it stands beside an op that can't take
symbols, its value is a constant of the graph, which caches must not hand to another call.
"""

import math

import pytest
import torch
from torch.nn import functional as F

from torch_ocl.upstream.compile import float_guards

#: By default shapes are static at first; other settings take the same way through the compiler.
DYNAMIC = [None, pytest.param(True, marks=pytest.mark.slow)]
ALL_DYNAMIC = [*DYNAMIC, pytest.param(False, marks=pytest.mark.slow)]

FLOATS = (0.5, 0.75, 0.1, 0.9)

#: Sizes of interpolate's results are not once or twice 6, where the CPU forgets the factor.
PROGRAMS = {
    "where": lambda t, v: torch.where(t > v, t, v),
    "threshold": lambda t, v: F.threshold(t, v, -v),
    "clamp": lambda t, v: t.clamp(-v, v),
    "swiglu": lambda t, v: F.silu(t).clamp(max=v) * t.clamp(-v, v),
    "full": lambda t, v: t * v + torch.full_like(t, v),
    "full of the device": lambda t, v: torch.full((3,), v, device=t.device) * v * t[:3],
    "new_full": lambda t, v: t * v + t.new_full((6,), v + 1),
    "tensor": lambda t, v: t * v + torch.tensor(v, device=t.device),
    "fill": lambda t, v: t * v + torch.empty_like(t).fill_(v),
    "masked_fill": lambda t, v: (t * v).masked_fill(t > v, v),
    "addcmul": lambda t, v: torch.addcmul(t * v, t, t, value=v),
    "addcdiv": lambda t, v: torch.addcdiv(t * v, t, t + 9, value=v),
    "add": lambda t, v: torch.add(t * v, t, alpha=v),
    "hardtanh": lambda t, v: F.hardtanh(t * v, -v, v),
    "elu": lambda t, v: F.elu(t * v, v),
    "leaky_relu": lambda t, v: F.leaky_relu(t * v, v),
    "celu": lambda t, v: F.celu(t * v, v),
    "softplus": lambda t, v: F.softplus(t * v, v),
    "hardshrink": lambda t, v: F.hardshrink(t * v, v),
    "softshrink": lambda t, v: F.softshrink(t * v, v),
    "nan_to_num": lambda t, v: torch.nan_to_num(t / (t * v - t * v), v, v, v),
    "arange": lambda t, v: t * v + torch.arange(0.0, 6 * v, v, device=t.device)[:6].sum(),
    "linspace": lambda t, v: t * v + torch.linspace(0, v, 6, device=t.device),
    "layer_norm": lambda t, v: F.layer_norm(t * v, (6,), eps=v),
    "rms_norm": lambda t, v: F.rms_norm(t * v, (6,), eps=v + 1e-3),
    "huber_loss": lambda t, v: F.huber_loss(t * v, t, delta=v + 0.1),
    "smooth_l1_loss": lambda t, v: F.smooth_l1_loss(t * v, t, beta=v),
    "label_smoothing": lambda t, v: F.cross_entropy((t * v)[None], t.new_zeros(1).long(), None,
                                                    label_smoothing=v),
    "attention": lambda t, v: F.scaled_dot_product_attention(*[(t * v).view(1, 1, 3, 2)] * 3,
                                                             scale=v),
    "interpolate": lambda t, v: F.interpolate((t * v).view(1, 1, 6), scale_factor=3 * v + 1),
    "branch": lambda t, v: (t * v).exp() if v > 0.6 else t * v - v,
    "item of math": lambda t, v: t * v + torch.full_like(t, int(v * 10)),
    "baddbmm": lambda t, v: torch.addmm(*[(t * v)[:4].view(2, 2)] * 3, beta=v, alpha=v),
    "isclose": lambda t, v: torch.isclose(t * v, t, rtol=v).float() + t,
    "cdist": lambda t, v: torch.cdist((t * v)[None], t[None] + 1, p=v + 1),
    "norm": lambda t, v: torch.linalg.vector_norm(t * v, v + 1),
    "renorm": lambda t, v: torch.renorm((t * v).view(2, 3), 2, 0, v),
    "logit": lambda t, v: torch.logit(t * v, eps=v / 2),
    "rsub": lambda t, v: torch.rsub(t * v, t, alpha=v),
    "lerp": lambda t, v: torch.lerp(t * v, t + 1, v),
    "pow": lambda t, v: torch.pow((t * v).abs(), v),
    "pow of a number": lambda t, v: torch.pow(v, t * v),
    "float_power": lambda t, v: torch.float_power((t * v).abs(), v),
    "norm of an order": lambda t, v: torch.linalg.norm(t * v, v),
    "local_response_norm": lambda t, v: F.local_response_norm((t * v).view(1, 6, 1), 2, beta=v),
    "two numbers": lambda t, v: torch.lerp(torch.pow(v, t * v), t * (v - 0.3), v + 1),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _caches_of_this_test(tmp_path, monkeypatch):
    """Empty caches that are on, whatever the settings of a run."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=True, force_disable_caches=False):
        yield
    torch._dynamo.reset()


def leaf(device="ocl"):
    x = torch.tensor([-2.0, 0.05, 0.3, 0.6, 0.8, 2.0], device=device)
    return x.requires_grad_()


def results(function, x, value):
    """The result and the gradient."""
    out = function(x, value)
    if not out.requires_grad:
        return [out]
    return [out.detach(), *torch.autograd.grad(out.sum(), x)]


def check(function, values=FLOATS, **options):
    compiled = torch.compile(function, **options)
    for value in values:
        expected = results(function, leaf("cpu"), value)
        for a, e in zip(results(compiled, leaf(), value), expected, strict=True):
            torch.testing.assert_close(a.cpu(), e, equal_nan=True)


@pytest.mark.parametrize("dynamic", DYNAMIC)
@pytest.mark.parametrize("name", PROGRAMS)
def test_floats_that_change(name, dynamic):
    check(PROGRAMS[name], dynamic=dynamic)


@pytest.mark.parametrize("name", ["where", "clamp", "full", "rms_norm", "lerp", "pow of a number"])
def test_without_dynamic_shapes(name):
    check(PROGRAMS[name], dynamic=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["where", "full", "masked_fill", "addcmul", "fill"])
@pytest.mark.parametrize("values", [(2, 3, 5, 4), (True, False, True), (0.5, 1, True, 2.5, 3)])
def test_integers_bools_and_mixtures(name, values):
    check(PROGRAMS[name], values)
    torch._dynamo.reset()
    check(PROGRAMS[name], values, dynamic=True)


#: Their gradients are NaN where a number is 0.
WITH_NAN = {
    "layer_norm": PROGRAMS["layer_norm"],
    "normalize": lambda t, v: F.normalize((t * v).view(2, 3), eps=v),
    "xlog1py": lambda t, v: torch.special.xlog1py(v, (t * v).abs()),
    "quotient": lambda t, v: t * v / v,
}


@pytest.mark.parametrize("dynamic", DYNAMIC)
@pytest.mark.parametrize("name", WITH_NAN)
def test_mixtures_with_zero(name, dynamic):
    check(WITH_NAN[name], (1.5, False, 0.75, True, 0, 2), dynamic=dynamic)


@pytest.mark.parametrize("name", ["where", "clamp", "rms_norm", "lerp", "pow of a number"])
def test_replayed(name):
    check(PROGRAMS[name], mode="reduce-overhead")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["where", "lerp", "clamp", "pow of a number"])
def test_from_cpp(name):
    with torch._inductor.config.patch(cpp_wrapper=True):
        check(PROGRAMS[name])


@pytest.mark.filterwarnings("error:Error detected")
def test_a_float_that_a_gradient_refuses_is_no_error():
    check(PROGRAMS["pow of a number"])


def test_only_the_float_that_must_be_known_is_compiled_for():
    """Others stay symbols: new values of theirs compile nothing."""
    compiled = torch.compile(lambda t, v, w: torch.lerp(t * v, t, v) * w, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for w in FLOATS:
            x = leaf()
            torch.testing.assert_close(compiled(x, 0.5, w), torch.lerp(x * 0.5, x, 0.5) * w)


def test_a_later_process_finds_the_graphs_of_its_floats():
    """The cache is still used: for a float that was compiled for, nothing is compiled again."""
    from torch._dynamo.utils import counters

    for _ in range(2):
        torch._dynamo.reset()
        counters.clear()
        with torch.no_grad():
            check(PROGRAMS["where"], dynamic=True)
    assert counters["aot_autograd"]["autograd_cache_hit"] == len(FLOATS)
    assert counters["aot_autograd"]["autograd_cache_miss"] == 0


def test_graphs_of_other_devices_are_left_alone():
    graph = torch.fx.symbolic_trace(lambda x: abs(x))
    assert not float_guards.is_on_ocl(graph, [torch.ones(2), 3])
    assert float_guards.is_on_ocl(graph, [torch.ones(2, device="ocl")])


#: Programs whose results tell one zero from the other.
SIGNED = {
    "copysign": torch.copysign,
    "quotient": lambda t, v: t / v,
    "full": lambda t, v: 1 / (torch.full((), v, device=t.device) * t),
    "fill": lambda t, v: 1 / torch.empty_like(t).fill_(v),
    "atan2": lambda t, v: torch.atan2(t.new_full((6,), v), -t.abs()),
    "where": lambda t, v: 1 / torch.where(t > 0, t, v),
    "clamp": lambda t, v: 1 / t.clamp(v, v),
    "threshold": lambda t, v: 1 / F.threshold(t, 5.0, v),
    "math": lambda t, v: t * math.copysign(2, v),
}
NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", ALL_DYNAMIC)
@pytest.mark.parametrize("name", SIGNED)
def test_signs_of_zeros_and_what_no_symbol_is(name, dynamic):
    values = (-0.0, 0.0, -0.0, 2.0, 0.0, -0.0, NAN, 1.5, NAN, INFINITY, -INFINITY)
    with torch.no_grad():
        check(SIGNED[name], values, dynamic=dynamic)
        torch._dynamo.reset()
        check(SIGNED[name], (2.0, 3.0, -0.0, 0.0), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_zeros_in_tuples_attributes_and_complex_numbers(dynamic):
    class Holder(torch.nn.Module):
        def forward(self, t, pair, number):
            return torch.copysign(t, self.sign) + torch.copysign(1 / t, pair[1]) / number.imag

    plain = Holder()
    compiled, x = torch.compile(plain, dynamic=dynamic), leaf().detach()
    for i in range(16):
        a, b, c = (-0.0 if i >> bit & 1 else 0.0 for bit in (0, 1, 2))
        plain.sign = a
        torch.testing.assert_close(
            compiled(x, (1, b), complex(1, c)), plain(x, (1, b), complex(1, c))
        )


def test_nan_is_compiled_for_once():
    compiled = torch.compile(lambda t, v: t + v)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(3):
            assert compiled(leaf().detach(), float("nan")).isnan().all()


WITH_ALPHA = {
    "add": lambda x, v: torch.add(x, v, alpha=3),
    "sub": lambda x, v: torch.sub(x, v, alpha=3),
    "rsub": lambda x, v: torch.rsub(x, v, alpha=2),
    "add_": lambda x, v: x.clone().add_(v, alpha=2),
    "a changing alpha": lambda x, v: torch.sub(x, v, alpha=v),
    "a changing alpha of tensors": lambda x, v: torch.add(x, x, alpha=v),
}


@pytest.mark.parametrize("dynamic", DYNAMIC)
@pytest.mark.parametrize("name", WITH_ALPHA)
def test_alpha_of_sums(name, dynamic):
    """Upstream's pass makes sums of tensors without their keywords."""
    check(WITH_ALPHA[name], dynamic=dynamic)


CONDITIONS = {
    "above": lambda x, v: x * (v > 0),
    "equal": lambda x, v: x + (v == 2),
    "bool": lambda x, v: x * bool(v),
    "where": lambda x, v: torch.where(x > 0, v > 2, False),
    "full": lambda x, v: torch.full((2,), v > 2, device=x.device),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_on_integers(name):
    function = CONDITIONS[name]
    compiled = torch.compile(function)
    x = torch.tensor([-1.0, 2.0], device="ocl")
    for value in (1, 2, 3, -1, 0):
        assert torch.equal(compiled(x, value), function(x, value))


@pytest.mark.parametrize("function", [lambda x, v: x.pow(v), lambda x, v: torch.pow(v, x) * v])
def test_gradients_of_powers_with_integers(function):
    compiled = torch.compile(function)
    for value in (2, 3, 1):
        x = torch.tensor([0.5, 2.0], device="ocl", requires_grad=True)
        grads = [torch.autograd.grad(f(x, value).sum(), x)[0] for f in (compiled, function)]
        torch.testing.assert_close(*grads)
