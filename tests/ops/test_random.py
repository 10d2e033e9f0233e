"""Random numbers: bits against a Philox written here, distributions by their statistics, and the
generator's promises."""

import math

import numpy as np
import pytest
import torch

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool]
N = 20000


def philox(seed, subsequence, offset):
    """Philox 4x32-10: four uint32 per subsequence, as an array (len(subsequence), 4)."""
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    sub = np.asarray(subsequence, np.uint64)
    c = [
        np.full_like(sub, offset & 0xFFFFFFFF),
        np.full_like(sub, offset >> 32),
        sub & mask,
        sub >> shift,
    ]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c[0]
        p1 = np.uint64(0xCD9E8D57) * c[2]
        c = [
            (p1 >> shift) ^ c[1] ^ np.uint64(k[0]),
            p1 & mask,
            (p0 >> shift) ^ c[3] ^ np.uint64(k[1]),
            p0 & mask,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1)


def words(n, seed, offset=0):
    """The 32-bit word of each of n elements."""
    return philox(seed, np.arange((n + 3) // 4), offset).reshape(-1)[:n]


def words64(n, seed, offset=0):
    groups = np.arange((n + 3) // 4)
    w = np.concatenate([philox(seed, groups, offset), philox(seed, groups, offset + 1)], 1)
    return (w[:, 0::2] | (w[:, 1::2] << np.uint64(32))).reshape(-1)[:n]


def generator(device, seed=1234567890123):
    return torch.Generator(device=device).manual_seed(seed)


def make(device, dtype=torch.float32, n=N):
    return torch.empty(n, dtype=dtype, device=device)


# ---- Bits -------------------------------------------------------------------------------------


# A CPU's work-item takes 64 elements in the lanes of vectors.
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 63, 64, 65, 127, 128, 131, 1027])
def test_uniform_is_philox(device, n):
    seed = 0x123456789ABCDEF
    got = make(device, n=n).uniform_(generator=generator(device, seed)).cpu()
    want = (words(n, seed) >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)
    assert np.array_equal(got.numpy(), want)


def test_uniform_double_is_philox(device):
    got = make(device, torch.float64, 1001).uniform_(generator=generator(device, 7)).cpu()
    want = (words64(1001, 7) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    assert np.array_equal(got.numpy(), want)


def test_integers_are_philox(device):
    got = make(device, torch.int64, 999).random_(-5, 100, generator=generator(device, 3)).cpu()
    want = ((words(999, 3) * np.uint64(105)) >> np.uint64(32)).astype(np.int64) - 5
    assert np.array_equal(got.numpy(), want)
    got = make(device, torch.int64, 999).random_(-(2**63), None, generator=generator(device, 3))
    assert np.array_equal(got.cpu().numpy(), words64(999, 3).view(np.int64))


def test_normal_is_box_muller(device):
    got = make(device, n=1000).normal_(2, 3, generator=generator(device, 5)).cpu().double().numpy()
    # Rounded to float as the kernel does, before the logarithm.
    u = (words(1000, 5).astype(np.float32).astype(np.float64) + 0.5) * 2.0**-32
    u = u.astype(np.float32).astype(np.float64)
    radius = np.sqrt(-2 * np.log(u[0::2]))
    want = np.empty(1000)
    want[0::2] = radius * np.cos(2 * np.pi * u[1::2])
    want[1::2] = radius * np.sin(2 * np.pi * u[1::2])
    np.testing.assert_allclose(got, want * 3 + 2, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.half, torch.float, torch.double])
def test_coins_are_philox(device, dtype):
    heads = words(1001, 9) <= np.uint64(0.3 * 2**32)
    out = make(device, dtype, 1002)
    out[1:].bernoulli_(0.3, generator=generator(device, 9))  # of any alignment
    assert np.array_equal(out[1:].cpu().numpy() != 0, heads)
    assert out[1:].cpu().sum() == heads.sum()


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float, torch.double])
def test_dropout_is_philox(device, dtype):
    torch.manual_seed(21)
    x = torch.randn(1001).to(dtype)
    x[:130:13] = math.inf
    torch.ocl.manual_seed(21)
    out, mask = torch.native_dropout(x.to(device), 0.25, True)
    heads = torch.from_numpy(words(1001, 21) <= np.uint64(0.75 * 2**32 - 1))
    assert torch.equal(mask.cpu(), heads)
    scaled = x.double() * (heads.double() / 0.75)  # infinity times 0 is NaN
    torch.testing.assert_close(out.cpu(), scaled.to(dtype), equal_nan=True)


def test_second_call_uses_the_next_counters(device):
    g = generator(device, 11)
    make(device, n=8).uniform_(generator=g)
    got = make(device, n=8).uniform_(generator=g).cpu().numpy()
    want = (words(8, 11, offset=4) >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)
    assert np.array_equal(got, want)


# ---- The stream does not depend on layout -----------------------------------------------------

FILLS = {
    "uniform": lambda t, g: t.uniform_(generator=g),
    "normal": lambda t, g: t.normal_(generator=g),
    "random": lambda t, g: t.random_(0, 1000, generator=g),
    "bernoulli": lambda t, g: t.bernoulli_(0.4, generator=g),
    "exponential": lambda t, g: t.exponential_(generator=g),
    "log_normal": lambda t, g: t.log_normal_(generator=g),
    "cauchy": lambda t, g: t.cauchy_(generator=g),
    "geometric": lambda t, g: t.geometric_(0.3, generator=g),
    "bernoulli_tensor": lambda t, g: t.bernoulli_(
        torch.full((5, 1), 0.4).to(t.device), generator=g
    ),
}


@pytest.mark.parametrize("fill", FILLS)
def test_strides_do_not_change_the_stream(device, fill):
    want = FILLS[fill](torch.empty(3, 5, 35, device=device), generator(device)).cpu()
    layouts = [
        torch.empty(35, 5, 3, device=device).permute(2, 1, 0),
        torch.empty(3, 5, 70, device=device)[..., ::2],
        torch.empty(4, 6, 36, device=device)[1:, :5, 1:],
    ]
    for target in layouts:
        assert torch.equal(FILLS[fill](target, generator(device)).cpu(), want)


def test_sliced_target_leaves_the_rest(device):
    whole = torch.full((10, 10), 7.0, device=device)
    whole[2:5, 3:7].uniform_()
    host = whole.cpu()
    assert ((host[2:5, 3:7] >= 0) & (host[2:5, 3:7] < 1)).all()
    host[2:5, 3:7] = 7
    assert (host == 7).all()


def test_prefix_of_a_longer_tensor(device):
    long = make(device, n=1000).uniform_(generator=generator(device)).cpu()
    short = make(device, n=10).uniform_(generator=generator(device)).cpu()
    assert torch.equal(long[:10], short)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_small_shapes(device, shape):
    t = torch.empty(shape, device=device)
    for fill in (t.uniform_, t.normal_, t.random_, t.exponential_, t.bernoulli_, t.cauchy_):
        assert fill().shape == shape


# ---- Seeds, states, generators ----------------------------------------------------------------


def test_manual_seed_repeats(device):
    torch.manual_seed(42)
    a = torch.rand(100, device=device).cpu()
    b = torch.rand(100, device=device).cpu()
    torch.manual_seed(42)
    assert torch.equal(a, torch.rand(100, device=device).cpu())
    assert torch.equal(b, torch.rand(100, device=device).cpu())
    assert not torch.equal(a, b)


def test_rng_state_repeats(device):
    state = torch.ocl.get_rng_state()
    a = torch.randn(100, device=device).cpu()
    torch.ocl.set_rng_state(state)
    assert torch.equal(a, torch.randn(100, device=device).cpu())


def test_generator_is_apart_from_the_default(device):
    torch.manual_seed(1)
    a = torch.rand(10, device=device).cpu()
    torch.manual_seed(1)
    torch.rand(10, device=device, generator=generator(device, 9))
    assert torch.equal(a, torch.rand(10, device=device).cpu())


def test_generator_of_another_device(device):
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device=device, generator=torch.Generator())


# ---- Distributions ----------------------------------------------------------------------------


def check_moments(x, mean, std, low=-math.inf, high=math.inf):
    x = x.cpu().double()
    assert abs(x.mean().item() - mean) < 5 * std / math.sqrt(x.numel()) + 0.004 * (abs(mean) + std)
    assert abs(x.std().item() / std - 1) < 0.06
    assert x.min() >= low and x.max() <= high


def check_distribution(x, cdf):
    """Kolmogorov-Smirnov, at a level that fails by chance once in 10^5 runs; the seed is fixed."""
    x = np.sort(x.cpu().double().numpy())
    f = cdf(x)
    i = np.arange(len(x))
    distance = max((f - i / len(x)).max(), ((i + 1) / len(x) - f).max())
    assert distance < 2.5 / math.sqrt(len(x))


def normal_cdf(x):
    return 0.5 * (1 + torch.erf(torch.as_tensor(x) / math.sqrt(2))).numpy()


def test_uniform_distribution(device):
    x = make(device).uniform_(-3, 5, generator=generator(device))
    check_distribution(x, lambda v: (v + 3) / 8)


def test_normal_distribution(device):
    x = make(device).normal_(1, 2, generator=generator(device))
    check_distribution(x, lambda v: normal_cdf((v - 1) / 2))


def test_log_normal_distribution(device):
    x = make(device).log_normal_(0.5, 0.7, generator=generator(device))
    check_distribution(x, lambda v: normal_cdf((np.log(v) - 0.5) / 0.7))


def test_exponential_distribution(device):
    x = make(device).exponential_(2.5, generator=generator(device))
    assert (x > 0).all()
    check_distribution(x, lambda v: 1 - np.exp(-2.5 * v))


def test_cauchy_distribution(device):
    x = make(device).cauchy_(1, 2, generator=generator(device))
    check_distribution(x, lambda v: np.arctan((v - 1) / 2) / np.pi + 0.5)


def test_geometric_distribution(device):
    for dtype in [torch.float32, torch.int64, torch.float64]:
        x = make(device, dtype).geometric_(0.3, generator=generator(device))
        assert (x >= 1).all()
        check_moments(x, 1 / 0.3, math.sqrt(0.7) / 0.3)


@pytest.mark.parametrize("dtype", FLOATS)
def test_moments_per_dtype(device, dtype):
    g = generator(device)
    check_moments(make(device, dtype).uniform_(generator=g), 0.5, math.sqrt(1 / 12), 0, 1)
    assert make(device, dtype, 200000).uniform_(generator=g).max() < 1
    assert make(device, dtype, 200000).uniform_(1, 1.5, generator=g).max() < 1.5
    check_moments(make(device, dtype).normal_(generator=g), 0, 1)
    check_moments(make(device, dtype).exponential_(generator=g), 1, 1, low=0)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex(device, dtype):
    x = torch.randn(N, dtype=dtype, device=device, generator=generator(device)).cpu()
    check_moments(x.real, 0, math.sqrt(0.5))
    check_moments(x.imag, 0, math.sqrt(0.5))
    check_moments(
        torch.rand(N, dtype=dtype, device=device).cpu().imag, 0.5, math.sqrt(1 / 12), 0, 1
    )


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_random_covers_the_dtype(device, dtype):
    x = make(device, dtype).random_(generator=generator(device)).cpu()
    if dtype == torch.bool:
        top = 1
    elif dtype.is_floating_point:
        top = {11: 2048, 24: 2**24, 53: 2**53, 8: 256}[
            {torch.float16: 11, torch.float32: 24, torch.float64: 53, torch.bfloat16: 8}[dtype]
        ]
    else:
        top = torch.iinfo(dtype).max
    x = x.double()
    assert x.min() >= 0 and x.max() <= top and x.max() > 0.98 * top
    assert abs(x.mean().item() / top - 0.5) < 0.02


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS[:-1])
def test_random_range(device, dtype):
    low = 0 if dtype == torch.uint8 else -3
    x = make(device, dtype).random_(low, 9, generator=generator(device)).cpu()
    counts = torch.bincount((x.long() - low), minlength=9 - low)
    assert len(counts) == 9 - low
    expected = N / (9 - low)
    assert ((counts - expected).abs() < 6 * math.sqrt(expected)).all()


def test_random_wide_range(device):
    x = make(device, torch.int64).random_(-(2**40), 2**41, generator=generator(device)).cpu()
    assert x.min() >= -(2**40) and x.max() < 2**41
    check_moments(x, 2**39, 3 * 2**40 / math.sqrt(12))
    assert (make(device, torch.bfloat16).random_(-(2**63), None).cpu().abs().max()) > 2**60


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_bernoulli(device, dtype):
    x = make(device, dtype).bernoulli_(0.3, generator=generator(device)).cpu().double()
    assert ((x == 0) | (x == 1)).all()
    check_moments(x, 0.3, math.sqrt(0.21))
    assert (make(device, dtype).bernoulli_(1.0) == 1).all()
    assert (make(device, dtype).bernoulli_(0.0) == 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_bernoulli_of_a_tensor(device, dtype):
    p = torch.tensor([0.0, 0.25, 0.75, 1.0], dtype=dtype).repeat(N // 4, 1).to(device)
    for x in (torch.bernoulli(p), torch.empty_like(p, dtype=torch.int64).bernoulli_(p)):
        mean = x.cpu().double().mean(0)
        assert mean[0] == 0 and mean[3] == 1
        assert abs(mean[1] - 0.25) < 0.03 and abs(mean[2] - 0.75) < 0.03
    transposed = torch.bernoulli(p.t(), generator=generator(device))
    assert transposed.shape == (4, N // 4)
    assert torch.bernoulli(p, 0.5).shape == p.shape
    with pytest.raises(NotImplementedError):
        make(device).bernoulli_(torch.ones(N, dtype=torch.int64, device=device))


def test_normal_overloads(device):
    mean = torch.linspace(-5, 5, N).to(device)
    std = torch.linspace(0.1, 3, N).to(device)
    for x in (torch.normal(mean, std), torch.normal(mean, std, out=torch.empty(N, device=device))):
        check_moments((x - mean) / std, 0, 1)
    check_moments(torch.normal(mean, 2.0) - mean, 0, 2)
    check_moments((torch.normal(1.0, std) - 1) / std, 0, 1)
    check_moments(torch.normal(1.0, 2.0, (N,), device=device), 1, 2)


def test_composites(device):
    assert torch.rand(3, 4, device=device).shape == (3, 4)
    assert torch.randn_like(torch.empty(5, device=device)).device.type == "ocl"
    x = torch.randint(5, 9, (N,), device=device).cpu()
    assert x.dtype == torch.int64 and set(x.tolist()) == {5, 6, 7, 8}
    assert torch.randint_like(torch.empty(5, device=device), 3).dtype == torch.float32


# ---- Bad arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.uniform_(2, 1),
        lambda t: t.normal_(0, -1),
        lambda t: t.exponential_(-1),
        lambda t: t.cauchy_(0, 0),
        lambda t: t.log_normal_(0, 0),
        lambda t: t.geometric_(1.5),
        lambda t: t.bernoulli_(1.5),
        lambda t: t.random_(5, 5),
        lambda t: t.byte().random_(0, 300),
        lambda t: t.long().normal_(),
        lambda t: t.long().uniform_(),
        lambda t: t.long().exponential_(),
    ],
)
def test_bad_arguments(device, call):
    with pytest.raises(Exception) as on_cpu:
        call(torch.zeros(3))
    with pytest.raises(type(on_cpu.value)):
        call(torch.zeros(3).to(device))


# ---- Permutations -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 1000, 1024, 1025, 2047, 4096, 50000])
def test_randperm(device, n):
    x = torch.randperm(n, device=device, generator=generator(device)).cpu()
    assert torch.equal(x.sort().values, torch.arange(n))
    assert torch.equal(x, torch.randperm(n, device=device, generator=generator(device)).cpu())
    if n >= 64:
        assert not torch.equal(x, torch.arange(n))
        assert abs(np.corrcoef(x.numpy(), np.arange(n))[0, 1]) < 5 / math.sqrt(n)
        assert (x == torch.arange(n)).sum() < 10


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.float32, torch.float64])
def test_randperm_dtypes(device, dtype):
    x = torch.randperm(1500, device=device, dtype=dtype).cpu()
    assert x.dtype == dtype and torch.equal(x.sort().values, torch.arange(1500, dtype=dtype))
    out = torch.empty(3000, dtype=dtype, device=device)[::2]
    assert torch.equal(
        torch.randperm(1500, out=out).cpu().sort().values, torch.arange(1500, dtype=dtype)
    )


def test_randperm_is_even_over_all_orders(device):
    g = generator(device)
    counts = {}
    for _ in range(600):
        order = tuple(torch.randperm(3, device=device, generator=g).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6 and min(counts.values()) > 60


def test_randperm_of_a_power_of_two_is_odd_or_even(device):
    g = generator(device)
    parities = set()
    for _ in range(12):
        order = torch.randperm(2048, device=device, generator=g).tolist()
        cycles = 0
        for start in range(len(order)):
            cycles += order[start] >= 0
            while order[start] >= 0:
                order[start], start = -1, order[start]
        parities.add(cycles % 2)
    assert parities == {0, 1}


def test_randperm_bad_arguments(device):
    with pytest.raises(RuntimeError):
        torch.randperm(-1, device=device)
    with pytest.raises(RuntimeError):
        torch.randperm(3000, dtype=torch.float16, device=device)
    with pytest.raises(RuntimeError):
        torch.randperm(300, dtype=torch.uint8, device=device)
