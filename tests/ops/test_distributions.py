"""Every sampler against its distribution, at small, middle and large parameters: Kolmogorov and
Smirnov's distance for continuous ones, chi-square for discrete ones. Seeds are fixed."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

N = 20000
# A distance that chance exceeds once in 10^5 runs, and that chance.
KS_LIMIT, LEAST_CHANCE = 2.5, 1e-5


@pytest.fixture(autouse=True)
def _seed():
    torch.ocl.manual_seed(20240229)


def make(dtype):
    return torch.empty(N, dtype=dtype, device="ocl")


def full(value, dtype):
    return torch.full((N,), value, dtype=dtype, device="ocl")


def cell_ends(values):
    """Numbers that are rounded to each of the tensor's values lie between these."""
    infinity = torch.full_like(values, math.inf)
    middle = [
        (values.double() + torch.nextafter(values, side).double()) / 2
        for side in (-infinity, infinity)
    ]
    # Gamma's samples are not below the least normal number, nor a component above the last one
    # before 1.
    if values[0] == torch.finfo(values.dtype).tiny:
        middle[0][0] = -math.inf
    if 1 - values[-1] in (torch.finfo(values.dtype).eps / 2, 0):
        middle[1][-1] = math.inf
    return (m.numpy() for m in middle)


def distance(samples, law):
    values, counts = samples.cpu().unique(return_counts=True)
    assert not values.isnan().any()
    total = counts.cumsum(0).numpy() / counts.sum().item()
    low, high = cell_ends(values)
    before = np.concatenate([[0], total[:-1]])
    gap = max(np.abs(total - law.cdf(high)).max(), np.abs(before - law.cdf(low)).max())
    return gap * math.sqrt(len(samples))


def chance(samples, law, bins=30):
    """The probability of such counts or worse ones, by chi-square in bins of 10 or more."""
    x = samples.cpu().double().numpy()
    assert (x == np.floor(x)).all()
    quantiles = law.ppf(np.linspace(0, 1, bins + 1)[1:-1])
    edges = np.unique([quantiles - 1, quantiles])
    share = shares(law, edges)
    while (rare := share * len(x) < 10).any():
        edges = np.delete(edges, min(int(np.argmax(rare)), len(edges) - 1))
        share = shares(law, edges)
    counts = np.bincount(np.searchsorted(edges, x), minlength=len(share))
    expected = share * len(x)
    assert len(edges) > 0, "all samples are expected to be the same"
    return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(edges))


def shares(law, edges):
    return np.diff(np.concatenate([[0], law.cdf(edges), [1]]))


CONTINUOUS = {
    "uniform": (
        lambda t, a, b: make(t).uniform_(a, b),
        lambda a, b: stats.uniform(a, b - a),
        [(0, 1), (-3, 5), (0, 1e-4), (1e3, 6e4)],
    ),
    "normal": (
        lambda t, m, s: make(t).normal_(m, s),
        stats.norm,
        [(0, 1), (1, 1e-2), (0, 1e-4), (-10, 5e3)],
    ),
    "normal_of_tensors": (
        lambda t, m, s: torch.normal(full(m, t), full(s, t)),
        stats.norm,
        [(0, 1e-4), (1, 2), (-10, 5e3)],
    ),
    "exponential": (
        lambda t, rate: make(t).exponential_(rate),
        lambda rate: stats.expon(scale=1 / rate),
        [(1e-3,), (1,), (1e3,)],
    ),
    "cauchy": (
        lambda t, m, s: make(t).cauchy_(m, s),
        stats.cauchy,
        [(0, 1e-2), (1, 2), (0, 1)],
    ),
    "log_normal": (
        lambda t, m, s: make(t).log_normal_(m, s),
        lambda m, s: stats.lognorm(s, scale=math.exp(m)),
        [(0, 1e-2), (0.5, 0.7), (0, 2)],
    ),
    "gamma": (
        lambda t, a: torch._standard_gamma(full(a, t)),
        stats.gamma,
        [(1e-3,), (1e-2,), (0.5,), (1,), (7,), (1e3,)],
    ),
}


def dirichlet(t, *alpha):
    """The first component's samples; those of all must add up to one."""
    x = torch._sample_dirichlet(torch.tensor(alpha, dtype=t, device="ocl").expand(N, -1))
    assert (x.sum(-1).cpu() - 1).abs().max() < 4 * torch.finfo(t).eps
    return x[:, 0]


CONTINUOUS["dirichlet"] = (
    dirichlet,
    lambda first, *others: stats.beta(first, sum(others)),
    [(1e-3, 1e-3), (0.01, 0.02, 0.001), (3, 1, 0.1), (100, 200, 50)],
)


def multinomial(t, *weights, replacement=True):
    rows = torch.tensor(weights, dtype=t, device="ocl").expand(N, -1)
    return torch.multinomial(rows, 1, replacement)[:, 0]


def pairs(t, *weights):
    """Two draws without replacement, as one number."""
    rows = torch.tensor(weights, dtype=t, device="ocl").expand(N, -1)
    first, second = torch.multinomial(rows, 2).unbind(1)
    return first * len(weights) + second


def categories(*weights):
    share = np.array(weights) / sum(weights)
    return stats.rv_discrete(values=(np.arange(len(share)), share))


def categories_of_pairs(*weights):
    share = np.array(weights) / sum(weights)
    both = share[:, None] * share / (1 - share[:, None])
    np.fill_diagonal(both, 0)
    return stats.rv_discrete(values=(np.arange(both.size), both.ravel()))


WEIGHTS = [(1, 2, 1), (1e-3, 1, 1e-2, 0.5), tuple(range(1, 200))]
PROBABILITIES = [(1e-3,), (0.4,), (0.99,)]

DISCRETE = {
    "geometric": (
        lambda t, p: make(t).geometric_(p),
        stats.geom,
        [(1e-2,), (0.3,), (0.999,)],
    ),
    "bernoulli": (lambda t, p: make(t).bernoulli_(p), stats.bernoulli, PROBABILITIES),
    "bernoulli_of_tensors": (
        lambda t, p: torch.bernoulli(full(p, t)),
        stats.bernoulli,
        PROBABILITIES,
    ),
    "random": (
        lambda t, low, high: make(t).random_(low, high),
        stats.randint,
        [(0, 2), (-3, 9), (0, 257)],
    ),
    "poisson": (
        lambda t, rate: torch.poisson(full(rate, t)),
        stats.poisson,
        [(1e-3,), (0.5,), (9.5,), (40,)],
    ),
    "binomial": (
        lambda t, n, p: torch.binomial(full(n, t), full(p, t)),
        stats.binom,
        [(1, 0.3), (10, 0.01), (100, 0.7), (200, 0.1)],
    ),
    "multinomial": (multinomial, categories, WEIGHTS),
    "multinomial_once": (lambda t, *w: multinomial(t, *w, replacement=False), categories, WEIGHTS),
    "multinomial_pairs": (pairs, categories_of_pairs, [(1, 2, 1), (0.1, 3, 2, 7)]),
}

# Past what a half type counts exactly.
LARGE_DISCRETE = {
    "geometric": [(1e-5,), (1e-7,)],
    "random": [(0, 2**24), (-(2**24), 2**23)],
    "poisson": [(1e4,), (1e6,)],
    "binomial": [(5e3, 0.1), (1e6, 0.5), (1e6, 1e-5), (1e7, 0.25)],
}

D = torch.distributions

COMPOSED = {
    "Beta": (D.Beta, stats.beta, [(1e-3, 1e-3), (1e-2, 1e-2), (0.3, 2), (50, 400)]),
    "Chi2": (D.Chi2, stats.chi2, [(0.1,), (3,), (1e3,)]),
    "FisherSnedecor": (D.FisherSnedecor, stats.f, [(0.1, 2), (3, 5), (1e3, 100)]),
    "Gumbel": (D.Gumbel, stats.gumbel_r, [(0, 1e-3), (1, 2), (-50, 1e3)]),
    "HalfCauchy": (D.HalfCauchy, lambda s: stats.halfcauchy(scale=s), [(1e-3,), (1e3,)]),
    "InverseGamma": (
        D.InverseGamma,
        lambda a, b: stats.invgamma(a, scale=b),
        [(0.5, 1), (5, 10), (1e3, 1)],
    ),
    "Laplace": (D.Laplace, stats.laplace, [(0, 1e-3), (1, 2), (-50, 1e3)]),
    "Pareto": (
        D.Pareto,
        lambda s, a: stats.pareto(a, scale=s),
        [(1, 0.5), (1e-2, 5), (100, 50)],
    ),
    "StudentT": (D.StudentT, stats.t, [(0.1,), (3,), (1e4,)]),
    "VonMises": (D.VonMises, lambda m, k: stats.vonmises(k, m), [(0, 1e-2), (0.5, 2), (0, 1e4)]),
    "Weibull": (
        D.Weibull,
        lambda s, a: stats.weibull_min(a, scale=s),
        [(1, 0.1), (1e-2, 5), (100, 50)],
    ),
}


def rounded(dtype, parameters):
    """The numbers as a tensor of the dtype holds them."""
    return [torch.tensor(p, dtype=torch.float64).to(dtype).item() for p in parameters]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name, dtype):
    draw, law, cases = CONTINUOUS[name]
    for parameters in cases:
        samples = draw(dtype, *parameters)
        assert samples.dtype == dtype
        gap = distance(samples, law(*rounded(dtype, parameters)))
        assert gap < KS_LIMIT, (parameters, gap)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name, dtype):
    draw, law, cases = DISCRETE[name]
    large = LARGE_DISCRETE.get(name, []) if dtype == torch.float32 else []
    for parameters in cases + large:
        # A parameter that is no tensor is not rounded.
        exact = name in ("geometric", "bernoulli", "random")
        wanted = law(*(parameters if exact else rounded(dtype, parameters)))
        assert chance(draw(dtype, *parameters), wanted) > LEAST_CHANCE, parameters


@pytest.mark.parametrize("name", COMPOSED)
def test_composed(name):
    distribution, law, cases = COMPOSED[name]
    for parameters in cases:
        values = rounded(torch.float32, parameters)
        samples = distribution(*(torch.tensor(v, device="ocl") for v in values)).sample((N,))
        gap = distance(samples, law(*values))
        assert gap < KS_LIMIT, (parameters, gap)


def test_integers_of_a_range():
    for low, high in [(0, 2), (-5, 12), (0, 2**33)]:
        samples = torch.randint(low, high, (N,), device="ocl")
        assert chance(samples, stats.randint(low, high)) > LEAST_CHANCE, (low, high)


def test_permutations_put_every_number_everywhere():
    firsts = torch.stack([torch.randperm(20, device="ocl")[:2] for _ in range(1000)])
    for place in firsts.unbind(1):
        assert chance(place, stats.randint(0, 20)) > LEAST_CHANCE
    assert (firsts[:, 0] != firsts[:, 1]).all()
