"""unique in its forms, and isin, against CPU torch."""

import math

import pytest
import torch

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGER = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
ALL = [*FLOATING, *INTEGER, torch.bool]


def make(shape, dtype, high=20):
    torch.manual_seed(sum(shape))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    x = torch.randint(-high if dtype.is_signed else 0, high, shape)
    return (x / 4).to(dtype) if dtype.is_floating_point else x.to(dtype)


def assert_same(actual, expected):
    if isinstance(expected, torch.Tensor):
        actual, expected = (actual,), (expected,)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert a.device.type == "ocl"
        torch.testing.assert_close(a.cpu(), e, rtol=0, atol=0, equal_nan=True)


def check(function, x, **arguments):
    assert_same(function(x.to("ocl"), **arguments), function(x, **arguments))


def check_all(x, dims=(None,)):
    for dim in dims:
        for inverse in (False, True):
            for counts in (False, True):
                arguments = {"return_inverse": inverse, "return_counts": counts, "dim": dim}
                check(torch.unique, x, **arguments)
                check(torch.unique_consecutive, x, **arguments)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_unique(dtype):
    check_all(make((50,), dtype))
    check_all(make((4, 30), dtype), dims=(None, 0, 1, -1))
    check_all(make((40000,), dtype, high=100))
    x = make((6, 5, 4), dtype)
    check_all(x.transpose(0, 2), dims=(None, 0, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.bool], ids=str)
def test_unique_rows(dtype):
    for shape in [(100, 2), (1000, 3), (7, 500), (1, 4), (300, 2, 2), (50, 1), (513, 1)]:
        x = make(shape, dtype, high=2 if shape[0] > shape[1] else 20)
        check_all(x, dims=(0, 1))
        check_all(x.transpose(0, 1), dims=(0, 1))
    repeated = torch.cat([x, x, x])
    check_all(repeated, dims=(0,))


def test_unique_small():
    check_all(torch.tensor(5.0))
    check_all(torch.empty(0))
    check_all(torch.empty(0, 3))
    check_all(torch.empty(0, 3), dims=(0,))
    check_all(torch.ones(1), dims=(None, 0))
    assert_same(torch._unique(make((30,), torch.int32).to("ocl"), True, True),
                torch._unique(make((30,), torch.int32), True, True))  # fmt: skip
    check(torch.unique, make((300,), torch.float32), sorted=False)


def test_unique_errors():
    for device in ("cpu", "ocl"):
        with pytest.raises(RuntimeError, match="zero sized"):
            torch.unique(torch.empty(0, 0, device=device), dim=0)
        with pytest.raises(RuntimeError, match="0 sized"):
            torch.unique(torch.empty(0, 3, device=device), dim=1)
        with pytest.raises(IndexError):
            torch.unique(torch.empty(3, 3, device=device), dim=2)
        with pytest.raises(IndexError):
            torch.unique(torch.tensor(1.0, device=device), dim=0)
        with pytest.raises(NotImplementedError):
            torch.unique(torch.tensor([1j], device=device))


def test_special_values():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([nan, 1.0, -0.0, nan, 0.0, inf, -inf, 1.0])
    check(torch.unique, x)  # no NaN equals another
    check(torch.unique, x, return_counts=True)
    check(torch.unique_consecutive, torch.tensor([1.0, 1.0, nan, nan, -0.0, 0.0]))
    check(torch.unique_consecutive, torch.tensor([[1.0, nan], [1.0, nan], [2.0, 0.0], [2.0, -0.0]]),
          dim=0)  # fmt: skip


def test_large():
    x = torch.randint(0, 1000000, (1000000,))
    check(torch.unique, x, return_inverse=True, return_counts=True)
    check(torch.unique, x.float())
    check(torch.unique_consecutive, x // 100000, return_counts=True)
    check(torch.unique, x.view(-1, 2) % 300, dim=0, return_counts=True, return_inverse=True)
    check(torch.unique, torch.ones(100000))


@pytest.mark.parametrize(
    "shape", [(4, 3), (4, 1), (3, 4, 5), (2, 3, 2, 2), (0, 3), (2, 0, 3)], ids=str
)
def test_strides_along_a_dimension(shape):
    x = torch.arange(math.prod(shape)).view(shape) % 3
    for layout in (x, x.transpose(0, -1), x.transpose(0, -1).contiguous().transpose(0, -1)):
        for dim in range(x.dim()):
            if layout.numel() == 0 and layout.shape[dim] != 0:
                continue
            for function in (torch.unique, torch.unique_consecutive):
                options = {"dim": dim, "return_inverse": True, "return_counts": True}
                actual, expected = (
                    function(layout.to("ocl"), **options),
                    function(layout, **options),
                )
                assert_same(actual, expected)
                assert [x.stride() for x in actual] == [x.stride() for x in expected]


@pytest.mark.parametrize("dtype", [d for d in ALL if d != torch.bool], ids=str)
@pytest.mark.parametrize("counts", [(5, 3), (100, 7), (7, 100), (3000, 500)], ids=str)
def test_isin(dtype, counts):
    elements, tests = make((counts[0],), dtype, 60), make((counts[1],), dtype, 60)
    for invert in (False, True):
        for assume_unique in (False, True):
            a, b = (elements.unique(), tests.unique()) if assume_unique else (elements, tests)
            arguments = {"invert": invert, "assume_unique": assume_unique}
            actual = torch.isin(a.to("ocl"), b.to("ocl"), **arguments)
            assert_same(actual, torch.isin(a, b, **arguments))
        value = elements[0].item()
        assert_same(torch.isin(elements.to("ocl"), value, invert=invert),
                    torch.isin(elements, value, invert=invert))  # fmt: skip
        assert_same(torch.isin(value, elements.to("ocl"), invert=invert),
                    torch.isin(value, elements, invert=invert))  # fmt: skip


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_runs_of_neighbours(dtype):
    """Runs that end anywhere in a vector and in a work-item's share; neighbours all different."""
    for n in (1, 15, 16, 17, 31, 33, 255, 256, 257, 9000):
        lengths = torch.randint(1, 40, (n,), generator=torch.Generator().manual_seed(n))
        x = (torch.arange(n) % 2 + torch.arange(n) % 3).to(dtype).repeat_interleave(lengths)[:n]
        check_all(x)
        check_all((torch.arange(n) % 2).to(dtype))
        check_all(torch.zeros(n, dtype=dtype))
    if dtype.is_floating_point:
        x[100:200] = float("nan")
        x[300:400:2] = -0.0
        x[301:401:2] = 0.0
        check(torch.unique_consecutive, x, return_inverse=True, return_counts=True)
    check(torch.unique_consecutive, x[::2], return_inverse=True, return_counts=True)


def test_isin_shapes_and_dtypes():
    nan = float("nan")
    for elements, tests in [
        (torch.randint(0, 9, (3, 4, 5)).transpose(0, 2), torch.randint(0, 9, (2, 2))),
        (torch.empty(0, 3), torch.ones(2)),
        (torch.ones(3, 2), torch.empty(0)),
        (torch.tensor(3.0), torch.arange(5.0)),
        (torch.arange(6), torch.tensor([1.5, 2.0])),
        (torch.arange(6).to(torch.uint8), torch.tensor([-1, 2, 258])),
        (torch.arange(6.0).half(), torch.arange(3.0).bfloat16()),
        (torch.tensor([nan, 1.0, -0.0]), torch.tensor([nan, 0.0])),
    ]:
        for invert in (False, True):
            expected = torch.isin(elements, tests, invert=invert)
            assert_same(torch.isin(elements.to("ocl"), tests.to("ocl"), invert=invert), expected)
    x = torch.arange(12).view(3, 4)
    out = torch.zeros(4, 3, dtype=torch.bool, device="ocl").t()
    torch.isin(x.to("ocl"), x.to("ocl")[0], out=out)
    assert_same(out, torch.isin(x, x[0]))
    for device in ("cpu", "ocl"):
        with pytest.raises(RuntimeError, match="isin"):
            torch.isin(torch.ones(2, device=device).bool(), torch.ones(2, device=device).bool())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.float32], ids=str)
@pytest.mark.parametrize("function", [torch.unique, torch.unique_consecutive])
def test_numbers_have_no_dimension(function, dtype):
    """A dtype that isn't ordered is refused first."""
    for shape, dim in (((), 0), ((), 1), ((0,), 0), ((2, 0), 0)):
        raised = []
        for device in ("cpu", "ocl"):
            try:
                function(torch.ones(shape, device=device).to(dtype), dim=dim)
                raised.append(None)
            except Exception as error:  # noqa: BLE001 - whatever CPU torch raises is what is wanted
                raised.append(type(error))
        assert raised[0] is raised[1], (shape, dim)
