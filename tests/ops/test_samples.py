"""Gamma, Dirichlet, Poisson and binomial samples by their statistics; gradients of gamma and
Dirichlet samples against derivatives of their distribution functions. Permutations."""

import math

import pytest
import torch
from torch.distributions import Beta, Binomial, Dirichlet, Gamma, Poisson
from torch.testing import assert_close

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
N = 20000


def generator(seed=1234567890123):
    return torch.Generator(device="ocl").manual_seed(seed)


def full(value, dtype=torch.float32, n=N):
    return torch.full((n,), value, dtype=dtype).to("ocl")


def gamma(shape, dtype=torch.float32, n=N, seed=1):
    return torch._standard_gamma(full(shape, dtype, n), generator=generator(seed)).cpu()


def poisson(rate, dtype=torch.float32, n=N, seed=1):
    return torch.poisson(full(rate, dtype, n), generator=generator(seed)).cpu()


def binomial(count, p, dtype=torch.float32, n=N, seed=1):
    return torch.binomial(full(count, dtype, n), full(p, dtype, n), generator=generator(seed)).cpu()


def distance(x, cdf):
    """Kolmogorov-Smirnov's, in units that are below 2.5 but once in 10^5 runs; seeds are fixed."""
    x = x.double().sort().values
    f = cdf(x)
    i = torch.arange(len(x), dtype=torch.float64)
    return max((f - i / len(x)).max(), ((i + 1) / len(x) - f).max()).item() * math.sqrt(len(x))


def chi_square(x, log_probability, low, high):
    """The statistic over its expectation, of counts in bins expected to hold 10 or more."""
    values = torch.arange(low, high + 1, dtype=torch.float64)
    probability = log_probability(values).exp()
    expected, counts, bins = [], [], []
    total = 0.0
    for value, p in zip(values.tolist(), probability.tolist(), strict=True):
        total += p * len(x)
        if total >= 10:
            bins.append(value)
            expected.append(total)
            total = 0.0
    edges = torch.tensor(bins, dtype=torch.float64)
    which = torch.bucketize(x.double(), edges)
    counts = torch.bincount(which, minlength=len(bins) + 1)[: len(bins)].double()
    expected = torch.tensor(expected, dtype=torch.float64)
    degrees = len(bins) - 1
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    return (statistic - degrees) / math.sqrt(2 * degrees)


# ---- Gamma ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
@pytest.mark.parametrize("shape", [0.05, 0.5, 0.99, 1.0, 1.5, 7.0, 100.0, 1e4])
def test_gamma(device, shape, dtype):
    x = gamma(shape, dtype)
    a = torch.tensor(shape, dtype=torch.float64)
    assert distance(x, lambda v: torch.special.gammainc(a.expand_as(v), v)) < 2.5
    assert (x > 0).all()


@pytest.mark.parametrize("dtype", FLOATS[2:], ids=str)
def test_gamma_of_halves(device, dtype):
    x = gamma(3.0, dtype)
    assert x.dtype == dtype
    assert abs(x.double().mean() - 3) < 0.05 and abs(x.double().var() - 3) < 0.15
    assert (gamma(1e-3, dtype) > 0).all()


def test_gamma_edges(device):
    tiny = torch.finfo(torch.float32).tiny
    assert (gamma(0.0) == tiny).all() and (gamma(1e-5) >= tiny).all()
    assert gamma(float("nan"), n=3).isnan().all()


# ---- Dirichlet --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_dirichlet(device, dtype):
    alpha = torch.tensor([0.3, 1.0, 4.0], dtype=dtype)
    x = torch._sample_dirichlet(alpha.expand(N, 3).to(device), generator=generator()).cpu()
    assert_close(x.sum(-1), torch.ones(N, dtype=dtype))
    assert ((x > 0) & (x < 1)).all()
    mean = alpha.double() / alpha.sum().double()
    assert_close(x.double().mean(0), mean, rtol=0.03, atol=0)
    variance = mean * (1 - mean) / (alpha.sum().double() + 1)
    assert_close(x.double().var(0), variance, rtol=0.06, atol=0)
    tiny = torch._sample_dirichlet(torch.full((5, 2), 1e-6, dtype=dtype).to(device)).cpu()
    assert ((tiny > 0) & (tiny < 1)).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_dirichlet_of_small_concentrations(device, dtype):
    """Gamma variables of these are too small for the type; their shares aren't."""
    small = torch.full((N, 2), 1e-2, dtype=dtype).to(device)
    x = torch._sample_dirichlet(small, generator=generator()).cpu().double()[:, 0]
    assert (x == 0.5).double().mean() < 1e-3
    # In logarithms nearly everything is close to 0 or to 1.
    assert abs((x < 0.5).double().mean() - 0.5) < 0.02
    assert abs((x < 0.1).double().mean() - 0.489) < 0.02
    nothing = torch._sample_dirichlet(torch.zeros(5, 2, dtype=dtype).to(device)).cpu()
    assert (nothing == 0.5).all()


# ---- Poisson ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
@pytest.mark.parametrize("rate", [0.1, 1.0, 9.5, 10.0, 12.3, 50.0, 1000.0, 20000.0])
def test_poisson(device, rate, dtype):
    x = poisson(rate, dtype)
    assert torch.equal(x, x.floor()) and (x >= 0).all()
    spread = 8 * math.sqrt(rate) + 8
    law = Poisson(torch.tensor(rate, dtype=torch.float64))
    low, high = max(0, math.floor(rate - spread)), math.ceil(rate + spread)
    assert abs(chi_square(x, law.log_prob, low, high)) < 4.5


def test_poisson_large_rates(device):
    """A float's digits: at a rate of 10^7 the logarithms of probabilities are 10^8."""
    for rate in (1e5, 1e7):
        x = poisson(rate).double()
        assert abs(x.mean() - rate) < 5 * math.sqrt(rate / N)
        assert abs(x.var() / rate - 1) < 0.05
        z = (x - rate) / math.sqrt(rate)
        assert abs((z.abs() > 2).double().mean() - 0.0455) < 0.008


@pytest.mark.parametrize("dtype", FLOATS[2:], ids=str)
def test_poisson_of_halves(device, dtype):
    x = poisson(4.0, dtype)
    assert x.dtype == dtype and abs(x.double().mean() - 4) < 0.08
    assert abs(x.double().var() - 4) < 0.25


@pytest.mark.parametrize("bad", [-0.5, float("nan")])
def test_poisson_bad_rates(device, bad):
    rates = torch.tensor([1.0, bad, 3.0])
    with pytest.raises(RuntimeError, match="invalid Poisson rate"):
        torch.poisson(rates)
    with pytest.raises(RuntimeError, match="invalid Poisson rate"):
        torch.poisson(rates.to(device))
        torch.ocl.synchronize()
    assert (poisson(0.0) == 0).all()


# ---- Binomial ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
@pytest.mark.parametrize(
    "count, p",
    [(1, 0.3), (10, 0.5), (10, 0.95), (30, 0.4), (100, 0.02), (100, 0.7), (5000, 0.1), (1e5, 0.5)],
)
def test_binomial(device, count, p, dtype):
    x = binomial(float(count), p, dtype)
    assert torch.equal(x, x.floor()) and (x >= 0).all() and (x <= count).all()
    law = Binomial(torch.tensor(float(count), dtype=torch.float64), torch.tensor(p).double())
    if count < 5:
        assert abs(x.double().mean() - count * p) < 0.02
        return
    spread = 8 * math.sqrt(count * p * (1 - p)) + 8
    low, high = max(0, math.floor(count * p - spread)), min(count, math.ceil(count * p + spread))
    assert abs(chi_square(x, law.log_prob, int(low), int(high))) < 4.5


def test_binomial_large_counts(device):
    count, p = 1e7, 0.25
    x = binomial(count, p).double()
    variance = count * p * (1 - p)
    assert abs(x.mean() - count * p) < 5 * math.sqrt(variance / N)
    assert abs(x.var() / variance - 1) < 0.05


def test_binomial_edges(device):
    nan = float("nan")
    count = torch.tensor([-1.0, 5, 5, 5, 5, nan, 0, 7, 7])
    p = torch.tensor([0.5, -0.1, 1.1, nan, 1, 0.5, 0.5, 0, 1])
    wanted = torch.tensor([0.0, 0, 5, nan, 5, nan, 0, 0, 7])
    got = torch.binomial(count.to(device), p.to(device)).cpu()
    assert_close(got, wanted, equal_nan=True)
    assert torch.binomial(full(5.0, n=1), full(0.5, n=4)).shape == (4,)
    assert torch.binomial(full(5.0, n=4)[:, None], full(0.5, n=1)).shape == (4, 1)


# ---- The stream -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [
        lambda t, g: torch._standard_gamma(t, generator=g),
        lambda t, g: torch.poisson(t, generator=g),
        lambda t, g: torch.poisson(t * 30, generator=g),
        lambda t, g: torch.binomial(t * 10, t / 20, generator=g),
        lambda t, g: torch._sample_dirichlet(t, generator=g),
    ],
)
def test_seeds_and_layouts(device, draw):
    values = (torch.rand(40, 50, generator=torch.Generator().manual_seed(0)) * 9 + 1).to(device)
    g = generator(7)
    first = draw(values, g).cpu()
    assert not torch.equal(first, draw(values, g).cpu())
    assert torch.equal(first, draw(values, generator(7)).cpu())
    assert not torch.equal(first, draw(values, generator(8)).cpu())
    turned = values.t().contiguous().t()
    assert torch.equal(first, draw(turned, generator(7)).cpu())
    spaced = torch.stack([values, values], -1)[..., 0]
    assert torch.equal(first, draw(spaced, generator(7)).cpu())
    # An element's sample does not depend on how many there are.
    assert torch.equal(first[:3], draw(values[:3], generator(7)).cpu())
    assert draw(values[:0], g).shape == (0, 50)


def test_neighbours_are_independent(device):
    for x in (gamma(2.0), poisson(20.0), binomial(50.0, 0.4)):
        x = x.double()
        assert abs(torch.corrcoef(torch.stack([x[1:], x[:-1]]))[0, 1]) < 5 / math.sqrt(N)
    a, b = gamma(2.0, seed=1).double(), gamma(2.0, seed=2).double()
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 5 / math.sqrt(N)


def test_bad_dtypes(device):
    whole = torch.ones(3, dtype=torch.int64)
    for call in (
        lambda d: torch._standard_gamma(whole.to(d)),
        lambda d: torch._sample_dirichlet(whole.to(d)),
        lambda d: torch.poisson(whole.to(d)),
        lambda d: torch.binomial(whole.to(d), torch.ones(3).to(d)),
        lambda d: torch.binomial(torch.ones(3).to(d), whole.to(d)),
        lambda d: torch.binomial(torch.ones(3).to(d), torch.ones(3).double().to(d)),
        lambda d: torch._standard_gamma_grad(whole.to(d), whole.to(d)),
        lambda d: torch._dirichlet_grad(
            torch.ones(3).to(d), torch.ones(3).to(d), torch.ones(3).double().to(d)
        ),
    ):
        with pytest.raises(Exception) as on_cpu:
            call("cpu")
        with pytest.raises(type(on_cpu.value)):
            call("ocl")


# ---- Gradients --------------------------------------------------------------------------------

SHAPES = torch.tensor(
    [0.01, 0.05, 0.5, 1, 2.5, 3, 10, 50, 200, 900, 1100, 5000], dtype=torch.float64
)


def gamma_gradient(a, x):
    """By differences of the distribution function, of the side that is not close to 1."""

    def slope(function):
        h = torch.minimum(a * 1e-3, a.sqrt() * 3e-3)
        at = [function(a + k * h, x) for k in (-2, -1, 1, 2)]
        return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)

    low, high = slope(torch.special.gammainc), slope(torch.special.gammaincc)
    change = torch.where(x < a, low, -high)
    density = torch.exp((a - 1) * x.log() - x - torch.lgamma(a))
    return -change / density


def test_gamma_gradient(device):
    a = SHAPES[:, None]
    deviate = torch.tensor([-3.0, -2, -1, -0.1, 0, 0.1, 1, 2, 3, 5], dtype=torch.float64)
    # Wilson and Hilferty's quantiles, and small fractions of the mean.
    x = a * (1 - 1 / (9 * a) + deviate / (3 * a.sqrt())) ** 3
    x = torch.where(a < 2, a * (deviate + 3.1) / 3, x)
    a = a.expand_as(x).contiguous()
    wanted = gamma_gradient(a, x)
    assert_close(
        torch._standard_gamma_grad(a.to(device), x.to(device)).cpu(), wanted, rtol=1e-6, atol=0
    )
    single = torch._standard_gamma_grad(a.float().to(device), x.float().to(device)).cpu()
    assert_close(
        single, gamma_gradient(a.float().double(), x.float().double()).float(), rtol=1e-5, atol=1e-6
    )
    # CPU torch's approximation is good to 2e-3.
    host = torch._standard_gamma_grad(a[:10], x[:10])
    assert_close(single[:10].double(), host, rtol=2e-3, atol=1e-6)


def test_gamma_gradient_edges(device):
    a, x = torch.tensor([1.0, 2, -1, 3]), torch.tensor([0.0, 0, 1, float("nan")])
    got = torch._standard_gamma_grad(a.to(device), x.to(device)).cpu()
    assert_close(got, torch.tensor([0.0, 0, torch.nan, torch.nan]), equal_nan=True)


def test_dirichlet_gradient_of_powers(device):
    """With total = alpha + 1 the distribution function is x^alpha."""
    x = torch.tensor([1e-4, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999], dtype=torch.float64)[:, None]
    a = torch.tensor([0.05, 0.5, 1, 3, 10, 50, 1000], dtype=torch.float64)
    x, a = torch.broadcast_tensors(x, a)
    wanted = -x * x.log() / a / (1 - x)
    got = torch._dirichlet_grad(*(t.contiguous().to(device) for t in (x, a, a + 1)))
    assert_close(got.cpu(), wanted, rtol=1e-7, atol=0)
    # The other way round: 1 - (1 - x)^total', whose gradient with alpha = 1 has no closed form.
    got = torch._dirichlet_grad(*(t.float().contiguous().to(device) for t in (x, a, a + 1)))
    x, a = x.float().double(), a.float().double()
    total = (a + 1).float().double()
    assert_close(got.cpu(), (-x * x.log() / a / (1 - x))[...].float(), rtol=2e-4, atol=1e-6)
    assert (total > a).all()


def test_dirichlet_gradient(device):
    g = torch.Generator().manual_seed(0)
    alpha = torch.exp(torch.rand(4000, generator=g, dtype=torch.float64) * 8 - 3)
    other = torch.exp(torch.rand(4000, generator=g, dtype=torch.float64) * 8 - 3)
    torch.manual_seed(0)
    x = Beta(alpha, other).sample().clamp(1e-6, 1 - 1e-6)
    wanted = torch._dirichlet_grad(x, alpha, alpha + other)
    got = torch._dirichlet_grad(*(t.to(device) for t in (x, alpha, alpha + other))).cpu()
    error = ((got - wanted) / wanted).abs()
    # CPU torch approximates: to 1e-3 mostly, a few percent at worst.
    assert error.median() < 1e-3 and error.max() < 0.1


@pytest.mark.parametrize(
    "alpha, other", [(1e-3, 1e-3), (1e-2, 1e-4), (1e-2, 100), (1, 1e-4), (100, 1e-4), (1e4, 1e-2)]
)
def test_dirichlet_gradient_in_single_precision(device, alpha, other):
    """As exact as double's, also where one concentration is much larger."""
    x = torch.tensor([1e-38, 1e-30, 1e-4, 0.3, 0.7, 0.999, 1 - 2**-24])
    a = torch.full_like(x, alpha)
    total = a + other
    single = torch._dirichlet_grad(*(t.to(device) for t in (x, a, total)))
    double = torch._dirichlet_grad(*(t.double().to(device) for t in (x, a, total)))
    assert_close(single.cpu(), double.cpu().float(), rtol=2e-3, atol=0)


def test_dirichlet_gradient_of_a_lost_rest(device):
    """The sum of concentrations rounds to this one's: it is always 1."""
    x, a = torch.tensor([1 - 2**-20, 1 - 2**-24]), torch.full((2,), 1e4)
    got = torch._dirichlet_grad(x.to(device), a.to(device), a.to(device)).cpu()
    assert_close(got, torch._dirichlet_grad(x, a, a))


def test_through_distributions(device):
    """Reparameterised gradients: of the mean of samples, which is known."""
    alpha = torch.tensor([0.5, 2.0, 20.0], device=device, requires_grad=True)
    mean = Gamma(alpha, torch.ones_like(alpha)).rsample((N,)).mean(0)
    (grad,) = torch.autograd.grad(mean.sum(), alpha)
    assert_close(grad.cpu(), torch.ones(3), rtol=0.05, atol=0)
    mean = Dirichlet(alpha).rsample((N,)).mean(0)
    (grad,) = torch.autograd.grad(mean[1], alpha)
    total = 22.5
    wanted = torch.tensor([-2 / total**2, (total - 2) / total**2, -2 / total**2])
    assert_close(grad.cpu(), wanted, rtol=0.1, atol=3e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_multinomial_with_replacement(dtype):
    weights = torch.tensor([[0.0, 1, 2, 0, 1, 0], [4, 0, 0, 0, 0, 0]], dtype=dtype, device="ocl")
    x = torch.multinomial(weights, N, replacement=True, generator=generator()).cpu()
    share = torch.bincount(x[0], minlength=6) / N
    assert_close(share, torch.tensor([0, 0.25, 0.5, 0, 0.25, 0]), atol=0.02, rtol=0)
    assert share[0] == share[3] == share[5] == 0 and (x[1] == 0).all()


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_multinomial_of_nothing(shape):
    for replacement in (True, False):
        with pytest.raises(RuntimeError):
            torch.multinomial(torch.empty(shape, device="ocl"), 2, replacement)
    assert torch.ones(3, device="ocl").sum().item() == 3  # the device still works


# ---- Permutations -----------------------------------------------------------------------------

INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
NO_PERMUTATIONS = [torch.bool, torch.complex64, torch.uint16, torch.uint32]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + NO_PERMUTATIONS, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)], ids=str)
@pytest.mark.parametrize("n", [-1, 0, 5, 128, 129, 256, 257, 300, 2049, 2050])
def test_randperm_into_any_tensor(n, shape, dtype):
    def run(device):
        return torch.randperm(n, out=torch.empty(shape, dtype=dtype, device=device))

    try:
        expected = run("cpu")
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as raised:
            run("ocl")
        assert raised.type is type(error)
    else:
        # bfloat16 rounds what it doesn't hold.
        assert_close(run("ocl").cpu().double().sort()[0], expected.double().sort()[0])
