"""The 8-bit floating types: conversions to the same bits as CPU torch's, storage, equality."""

import pytest
import torch

FLOAT8 = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
WIDER = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OTHERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]

pytestmark = pytest.mark.parametrize("float8", FLOAT8, ids=str)


def every(float8):
    return torch.arange(256, dtype=torch.int32).to(torch.uint8).view(float8)


def turned(float8):
    """A tensor in reverse: flip() of the CPU takes no float8."""
    return every(float8).view(torch.uint8).flip(0).view(float8)


def same_values(actual, expected):
    """Equal dtypes and values; NaN equals NaN, whatever its bits."""
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(
        actual.cpu().double(), expected.double(), rtol=0, atol=0, equal_nan=True
    )


def same_bits(actual, expected):
    assert actual.dtype == expected.dtype
    assert torch.equal(actual.cpu().view(torch.uint8), expected.view(torch.uint8))


def same_but_signs_of_nan(actual, expected):
    """For conversions by a GPU's own instruction: NVIDIA's drops the sign of a NaN."""
    assert actual.dtype == expected.dtype
    actual, nan = actual.cpu(), expected.float().isnan()
    assert torch.equal(actual.float().isnan(), nan)
    same_bits(actual[~nan], expected[~nan])


def halves():
    bits = torch.arange(1 << 16, dtype=torch.int32)
    return bits.to(torch.int16).view(torch.float16)


def floats():
    """Floats of every exponent, with many mantissas, and what lies beside and between values."""
    bits = torch.arange(0, 1 << 32, 4093, dtype=torch.int64)
    swept = bits.to(torch.int32).view(torch.float32)
    edges = torch.cat([every(dtype).float() for dtype in FLOAT8]).unique()
    edges = edges[edges.isfinite()].sort().values
    middles = (edges[1:] + edges[:-1]) / 2
    exact = torch.cat([edges, middles])
    infinity = torch.tensor(float("inf"))
    beside = [exact, torch.nextafter(exact, infinity), torch.nextafter(exact, -infinity)]
    large = torch.tensor([448.0, 464.0, 465.0, 480.0, 1e30, float("inf"), float("nan"), 57344.0])
    large = torch.cat([large, torch.tensor([61440.0, 61441.0, 65536.0, 240.0, 248.0, 249.0])])
    return torch.cat([swept, *beside, large, -large])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_from_every_half(float8, dtype):
    values = halves() if dtype == torch.float16 else halves().view(torch.bfloat16)
    on_gpu = torch.ocl.get_device_properties(0).type == "gpu"
    same = same_but_signs_of_nan if on_gpu else same_bits
    same(values.to("ocl").to(float8), values.to(float8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_from_floats(float8, dtype):
    values = floats().to(dtype)
    same_bits(values.to("ocl").to(float8), values.to(float8))
    # One element at a time, and with strides.
    few = values[-7:]
    same_bits(few.to("ocl").to(float8), few.to(float8))
    table = values[: 40 * 50].view(40, 50).t()
    same_bits(table.to("ocl").to(float8).contiguous(), table.to(float8).contiguous())


@pytest.mark.parametrize("dtype", WIDER, ids=str)
def test_to_wider(float8, dtype):
    same_values(every(float8).to("ocl").to(dtype), every(float8).to(dtype))
    same_values(every(float8)[::3].to("ocl").to(dtype), every(float8)[::3].to(dtype))


@pytest.mark.parametrize("dtype", OTHERS, ids=str)
def test_integers(float8, dtype):
    values = every(float8)
    small = values[values.float().abs() < 120]
    if dtype == torch.uint8:
        small = small[small.float() >= 0]
    same_values(small.to("ocl").to(dtype), small.to(dtype))
    whole = torch.arange(100).to(dtype)
    same_bits(whole.to("ocl").to(float8), whole.to(float8))


def test_complex_and_other_float8(float8):
    values = every(float8)
    values = values[~values.float().isnan()]
    same = values.to("ocl").to(torch.complex64).cpu()
    assert torch.equal(same, values.to(torch.complex64))
    for other in FLOAT8:
        same_bits(values.to("ocl").to(other), values.to(other))


def test_storage(float8):
    host, device = every(float8), every(float8).to("ocl")
    same_bits(device.cpu(), host)
    same_bits(device.clone(), host)
    same_bits(device.view(16, 16).t().contiguous(), host.view(16, 16).t().contiguous())
    same_bits(torch.cat([device, device[:3]]), torch.cat([host, host[:3]]))
    same_bits(torch.stack([device, device]), torch.stack([host, host]))
    same_bits(device.flip(0), turned(float8))
    same_bits(device.view(16, 16).repeat(2, 3), host.view(16, 16).repeat(2, 3))
    same_bits(device.roll(5), host.roll(5))
    same_bits(device[torch.tensor([3, 200], device="ocl")], host[torch.tensor([3, 200])])
    mask = torch.arange(256) % 3 == 0
    same_bits(device[mask.to("ocl")], host[mask])
    chosen = torch.where(mask.to("ocl"), device, device.flip(0))
    same_bits(chosen, host.where(mask, turned(float8)))
    index = torch.tensor([1, 7])
    same_bits(device.index_select(0, index.to("ocl")), host.index_select(0, index))
    put = device.clone().index_put_((index.to("ocl"),), device[100:102])
    expected = host.clone().view(torch.uint8)  # CPU torch puts no float8_e8m0fnu
    expected[index] = host[100:102].view(torch.uint8)
    same_bits(put, expected.view(float8))
    rows = torch.nn.functional.embedding(index.to("ocl"), device.view(16, 16))
    same_bits(rows, torch.nn.functional.embedding(index, host.view(16, 16)))
    assert torch.equal(device.view(torch.uint8).cpu(), host.view(torch.uint8))
    loaded = torch.empty(256, dtype=float8, device="ocl").copy_(host)
    same_bits(loaded, host)


def test_fills(float8):
    small = 0.3 if float8 is torch.float8_e8m0fnu else -0.3
    for make in (
        lambda d: torch.zeros(5, dtype=float8, device=d),
        lambda d: torch.ones(5, dtype=float8, device=d),
        lambda d: torch.full((5,), 2.7, dtype=float8, device=d),
        lambda d: torch.zeros(5, dtype=float8, device=d).fill_(small),
        lambda d: torch.ones(5, dtype=float8, device=d).zero_(),
        lambda d: torch.ones(5, device=d).to(float8)[2:].fill_(3),
    ):
        same_bits(make("ocl"), make("cpu"))
    with pytest.raises(RuntimeError, match="overflow"):
        torch.zeros(2, dtype=float8, device="ocl").fill_(1e40)


def test_equality(float8):
    host = every(float8)
    device = host.to("ocl")
    for compare in (torch.eq, torch.ne):
        assert torch.equal(compare(device, device.flip(0)).cpu(), compare(host, turned(float8)))
        assert torch.equal(compare(device, device).cpu(), compare(host, host))
        for value in (1.0, 1.05, 0, float("nan")):
            assert torch.equal(compare(device, value).cpu(), compare(host, value))
    assert torch.equal(device.isnan().cpu(), host.isnan())


def test_arithmetic_of_the_cpu(float8):
    host = every(float8)
    device = host.to("ocl")
    if float8 is not torch.float8_e8m0fnu:
        same_values(device.abs(), host.abs())
    same_values(device * device.flip(0), host * turned(float8))


def test_printing_and_items(float8):
    host = every(float8)[20:40]
    device = host.to("ocl")
    assert device.tolist() == host.tolist()
    assert device[3].item() == host[3].item()
    numbers = repr(host).split("(", 1)[1].rsplit(", dtype", 1)[0]
    assert repr(device).split("(", 1)[1].startswith(numbers)


def test_what_the_cpu_refuses_is_refused(float8):
    for call in (
        lambda x: x + x,
        lambda x: -x,
        lambda x: x < x,
        lambda x: x.sum(),
        lambda x: x.sort(),
        lambda x: x.sigmoid(),
        lambda x: x.clamp(0, 1),
        lambda x: x.max(),
        lambda x: x.cumsum(0),
    ):
        for device in ("cpu", "ocl"):
            with pytest.raises(NotImplementedError):
                call(torch.ones(3, device=device).to(float8))
    with pytest.raises(RuntimeError, match="Promotion"):
        torch.ones(3, device="ocl").to(float8) + torch.ones(3, device="ocl")
