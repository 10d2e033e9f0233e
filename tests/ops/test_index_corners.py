"""Indexing and combining through indices at the ends of their input's range."""

import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from tests.refusals import raise_the_same

LEAST = -(2**63)


def ones(*shape):
    return torch.ones(*shape, device="ocl")


def index(*values):
    return torch.tensor(values, device="ocl")


COMBINATIONS = {
    "scatter_add": lambda i: ones(4).scatter_add(0, i, ones(2)),
    "scatter_reduce": lambda i: ones(4).scatter_reduce(0, i, ones(2), "amax"),
    "scatter": lambda i: ones(4).scatter(0, i, ones(2), reduce="add"),
    "index_put": lambda i: ones(4).index_put((i,), ones(2), accumulate=True),
    "index_add": lambda i: ones(4).index_add(0, i, ones(2)),
    "index_add rows": lambda i: ones(4, 3).index_add(0, i, ones(2, 3)),
    "index_reduce": lambda i: ones(4).index_reduce(0, i, ones(2), "prod"),
    "put": lambda i: ones(4).put_(i, ones(2), accumulate=True),
    "embedding": lambda i: torch.ops.aten.embedding_dense_backward(ones(2, 3), i, 4, -1, False),
}


@pytest.mark.parametrize("value", [LEAST, LEAST + 1, 4, 2**63 - 1])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_combining_reports_every_wrong_index(name, value):
    COMBINATIONS[name](index(0, value))
    with pytest.raises((IndexError, RuntimeError), match=str(value)):
        torch.ocl.synchronize()
    assert ones(3).sum().item() == 3


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("alpha", [2.5, -1.5, 2, True])
def test_index_add_of_integers_with_any_factor(dtype, alpha):
    if dtype == torch.uint8 and alpha < 0:
        alpha = 1.5
    x, source = torch.zeros(5, dtype=dtype), torch.tensor([3, 1], dtype=dtype)
    where = torch.tensor([4, 0])
    expected = x.index_add(0, where, source, alpha=alpha)
    got = x.to("ocl").index_add(0, where.to("ocl"), source.to("ocl"), alpha=alpha)
    assert_close(got.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_index_add_of_half_types_sums_in_float(dtype):
    source = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    index = torch.arange(4000) % 20
    for dim, values in ((0, source), (1, source.t().contiguous())):
        out = torch.zeros(20, 5, dtype=dtype) if dim == 0 else torch.zeros(5, 20, dtype=dtype)
        exact = out.double().index_add(dim, index, values.double()).to(dtype)
        got = out.to("ocl").index_add(dim, index.to("ocl"), values.to("ocl"))
        torch.testing.assert_close(got.cpu(), exact)


def test_index_add_refuses_a_factor_out_of_range():
    for device in ("cpu", "ocl"):
        x = torch.zeros(2, dtype=torch.uint8, device=device)
        with pytest.raises(RuntimeError, match="overflow"):
            x.index_add(0, torch.tensor([0], device=device), x[:1], alpha=300)


@pytest.mark.parametrize("accumulate", [False, True])
def test_indices_that_do_not_fit_each_other(accumulate):
    for device in ("cpu", "ocl"):
        x = torch.zeros(4, 4, device=device)
        indices = (torch.zeros(2, dtype=torch.long), torch.zeros(3, dtype=torch.long))
        with pytest.raises(IndexError, match="shape mismatch"):
            x.index_put([i.to(device) for i in indices], x[0, 0], accumulate=accumulate)


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("shape", [(4,), (4, 3), (3, 2, 4)], ids=str)
def test_index_reduce_of_dtypes_for_slices_alone(shape, include_self, reduce, dtype):
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(0, 2, shape, generator=generator).to(dtype)
    source = torch.randint(0, 2, (2, *shape[1:]), generator=generator).to(dtype)

    def run(device):
        arguments = torch.tensor([2, 2]).to(device), source.to(device), reduce
        return x.to(device).index_reduce(0, *arguments, include_self=include_self).cpu()

    try:
        expected = run("cpu")
    except NotImplementedError:
        with pytest.raises(NotImplementedError, match="index_reduce"):
            run("ocl")
    else:
        assert_close(run("ocl"), expected)


OWN_NAMES = {
    r"scatter\(reduce=\)": [
        lambda i: ones(4).scatter(0, i, ones(2), reduce="add"),
        lambda i: ones(4).scatter(0, i, 2.0, reduce="multiply"),
    ],
    "scatter_reduce": [lambda i: ones(4).scatter_reduce(0, i, ones(2), "prod")],
}


@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_wrong_index_is_reported_under_the_name_of_the_call(name):
    for call in OWN_NAMES[name]:
        with pytest.raises(RuntimeError, match=f"{name}.*index 7 "):
            call(index(0, 7))
            torch.ocl.synchronize()


def test_one_hot():
    for classes in (-1, 5):
        for labels in (torch.tensor([[1, 0], [4, 2]]), torch.tensor(3), torch.tensor([0])):
            expected = torch.nn.functional.one_hot(labels, classes)
            got = torch.nn.functional.one_hot(labels.to("ocl"), classes)
            assert_close(got.cpu(), expected)
    x = torch.tensor([[1, 2, 0], [0, 1, 1]])
    strided = torch.nn.functional.one_hot(x.to("ocl").t(), 3)
    assert_close(strided.cpu(), torch.nn.functional.one_hot(x.t(), 3))
    empty = torch.empty(0, dtype=torch.long)
    assert torch.nn.functional.one_hot(empty.to("ocl"), 3).shape == (0, 3)
    raise_the_same(
        [
            lambda d: torch.nn.functional.one_hot(empty.to(d)),
            lambda d: torch.nn.functional.one_hot(x.float().to(d)),
            lambda d: torch.nn.functional.one_hot(x.to(d), 0),
        ]
    )
    for wrong, words in ((3, "must be smaller than num_classes"), (-1, "must be non-negative")):
        for device in ("cpu", "ocl"):
            with pytest.raises(RuntimeError, match=f"Class values {words}"):
                torch.nn.functional.one_hot(torch.tensor([0, wrong]).to(device), 3)
                torch.ocl.synchronize()
    mapped = torch.func.vmap(lambda t: torch.nn.functional.one_hot(t, 3))(x.to("ocl"))
    assert_close(mapped.cpu(), torch.nn.functional.one_hot(x, 3))


def test_no_index_fits_a_dimension_without_elements():
    def indices(device):
        return torch.zeros(2, dtype=torch.long, device=device)

    raise_the_same(
        [
            lambda d: torch.zeros(0, device=d).index_select(0, indices(d)),
            lambda d: torch.zeros(0, device=d).index_add(0, indices(d), torch.ones(2, device=d)),
            lambda d: torch.zeros(0, device=d).index_reduce(
                0, indices(d), torch.ones(2, device=d), "prod"
            ),
        ]
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("torch.ones(3, device=d).index_reduce(0, i, torch.ones(1, device=d), 'prod')", "beta"),
        ("torch.ones(3, dtype=torch.complex64, device=d).to(torch.float64)", "imaginary part"),
    ],
)
def test_warnings(call, text):
    """Each once in a process."""
    script = f"""
import torch, warnings
for d in ("cpu", "ocl"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        i = torch.tensor([0], device=d)
        {call}
        {call}
    assert [{text!r} in str(w.message) for w in caught] == [True], (d, [str(w) for w in caught])
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_masks_without_dimensions_alone():
    """Where nothing is left to index with, as on the CPU."""
    x, one = torch.zeros(4, 3, device="ocl"), torch.ones((), device="ocl")
    aten = torch.ops.aten
    for value in (True, False):
        mask = torch.tensor(value, device="ocl")
        assert x[mask].shape == (int(value), 4, 3)
        for call in (
            lambda m=mask: aten.index(x, (m,)),
            lambda m=mask: torch.index_put(x, (m,), torch.ones(3, device="ocl")),
            lambda m=mask: torch.index_put(x, (m,), one, accumulate=True),
        ):
            with pytest.raises(RuntimeError, match="expected an index tensor"):
                call()
        filled = torch.index_put(x, (mask,), one)
        assert filled.tolist() == torch.index_put(x.cpu(), (mask.cpu(),), one.cpu()).tolist()
    with pytest.raises(RuntimeError, match="expected an index tensor"):
        x.index_put_((), one)


def test_masked_scatter_from_itself():
    """CPU torch writes one element after the other, and reads what it wrote."""
    generator = torch.Generator().manual_seed(5)
    for n in (1, 6, 300):
        mask = torch.rand(n, generator=generator) < 0.6
        for to, source in (
            (lambda x, n=n: x[:n], lambda x, n=n: x[:n]),
            (lambda x, n=n: x[2 : n + 2], lambda x, n=n: x[:n]),
            (lambda x, n=n: x[:n], lambda x, n=n: x[2 : n + 2]),
            (lambda x, n=n: x[: 2 * n : 2], lambda x, n=n: x),
            (lambda x, n=n: x[: 2 * n : 2], lambda x, n=n: x[: 2 * n : 2]),
            (lambda x, n=n: x[2 * n], lambda x: x),
        ):
            expected, x = torch.arange(2.0 * n + 4), torch.arange(2.0 * n + 4, device="ocl")
            for y, m in ((expected, mask), (x, mask.to("ocl"))):
                to(y).masked_scatter_(m[0] if to(y).dim() == 0 else m, source(y))
            assert_close(x.cpu(), expected, rtol=0, atol=0)
    mask = torch.tensor([True, False, True])
    expected = mask.clone().masked_scatter_(mask, torch.zeros(3, dtype=torch.bool))
    x = mask.to("ocl")
    assert_close(x.masked_scatter_(x, torch.zeros_like(x)).cpu(), expected)


@pytest.mark.parametrize("dims", [16, 17, 33, 64])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_more_indices_and_dimensions_than_kernels_take(dims, dtype):
    cpu = torch.arange(24).view(*(1,) * (dims - 3), 2, 3, 4)
    lists = [torch.tensor([0, -1, 0], dtype=dtype)] * (dims - 3) + [
        torch.tensor(values, dtype=dtype) for values in ([0, 1, -1], [2, -3, 0], [3, 1, -4])
    ]

    def put(x, indices, accumulate):
        return x.index_put(indices, torch.tensor([7, 8, 9], device=x.device), accumulate=accumulate)

    for call in (
        lambda x, i: x[i],
        lambda x, i: x[(slice(None), *i[1:])],
        lambda x, i: put(x, i, False),
        lambda x, i: put(x, i, True),
        lambda x, i: put(x.transpose(-1, -2), (*i[:-2], i[-1], i[-2]), True),
        lambda x, i: x.nonzero(),
        lambda x, i: x.transpose(0, -1).nonzero(),
        lambda x, i: x[x > 20],
        lambda x, i: torch.nonzero_static(x, size=30, fill_value=-7),
        lambda x, i: torch.nonzero_static(x, size=3),
        lambda x, i: x[..., :0].nonzero(),
    ):
        expected = call(cpu, tuple(lists))
        got = call(cpu.to("ocl"), tuple(i.to("ocl") for i in lists))
        assert_close(got.cpu(), expected)
        assert got.stride() == expected.stride()
    for place in (0, dims - 1):
        wrong = [torch.tensor([0, 5 if k == place else 0]).to("ocl") for k in range(dims)]
        with pytest.raises(IndexError, match="index 5 "):
            cpu.to("ocl")[tuple(wrong)]
            torch.ocl.synchronize()


@pytest.mark.slow
def test_nonzero_past_the_range_of_32_bits():
    n = 2**31 + 10
    x = torch.zeros(n, dtype=torch.bool, device="ocl")
    places = torch.tensor([0, 2**30 - 1, 2**30, 2**31 - 1, 2**31, n - 1])
    for place in places.tolist():
        x[place] = True
    assert_close(x.nonzero().cpu(), places.view(-1, 1))
    rows = x.view(2, n // 2).nonzero().cpu()
    assert_close(rows, torch.stack([places // (n // 2), places % (n // 2)]).t())


@pytest.mark.parametrize("shape", [(4, 3), (0, 3), (4, 0), (4,), (0,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64, torch.float8_e4m3fn], ids=str)
def test_index_reduce_of_nothing(dtype, shape):
    for count in (0, 2):
        if count and len(shape) == 1:
            continue
        for reduce in ("prod", "mean", "amax", "amin"):

            def run(device, count=count, reduce=reduce):
                x = torch.ones(shape, device=device).to(dtype)
                source = torch.ones(count, *shape[1:], device=device).to(dtype)
                return x.index_reduce(
                    0, torch.zeros(count, dtype=torch.long, device=device), source, reduce
                )

            try:
                expected = run("cpu")
            except Exception as error:  # noqa: BLE001 - whatever CPU torch raises is what is wanted
                with pytest.raises(type(error)):
                    run("ocl")
            else:
                assert torch.equal(run("ocl").cpu().float(), expected.float())
