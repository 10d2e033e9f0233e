"""What indexing, combining through indices and sampling do at the ends of their input's range."""

import pytest
import torch
from torch.testing import assert_close

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


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_multinomial_of_nothing(shape):
    for replacement in (True, False):
        with pytest.raises(RuntimeError):
            torch.multinomial(torch.empty(shape, device="ocl"), 2, replacement)
    assert ones(3).sum().item() == 3


def test_erfcx_of_large_negative_numbers():
    if torch.ocl.get_device_properties(0).has_fp64:
        x = -torch.logspace(0, 300, 3000, dtype=torch.float64)
        assert_close(torch.special.erfcx(x.to("ocl")).cpu(), torch.special.erfcx(x))


def test_distances_of_order_0_keep_nan():
    x = torch.tensor([[float("nan"), 1.0], [1.0, 2.0], [1.0, 1.0]])
    on_device = x.to("ocl")
    assert_close(
        torch.cdist(on_device, on_device, p=0.0).cpu(), torch.cdist(x, x, p=0.0), equal_nan=True
    )
    assert_close(torch.pdist(on_device, p=0.0).cpu(), torch.pdist(x, p=0.0), equal_nan=True)


@pytest.mark.parametrize("correction", [-5, 0, 1])
@pytest.mark.parametrize("shape", [(0,), (3, 0)])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_variances_of_nothing(shape, correction):
    x = torch.empty(shape)
    for function in (torch.var, torch.std, torch.var_mean, torch.std_mean):
        expected = function(x, -1, correction=correction)
        got = function(x.to("ocl"), -1, correction=correction)
        if isinstance(got, tuple):
            assert_close([t.cpu() for t in got], list(expected), equal_nan=True)
        else:
            assert_close(got.cpu(), expected, equal_nan=True)


def test_eigenvalues_of_expanded_and_of_infinite_matrices():
    matrix = torch.randn(4, 4)
    expanded = matrix.to("ocl").expand(3, 4, 4)
    assert_close(
        torch.linalg.eigvals(expanded).abs().sort(-1).values.cpu(),
        torch.linalg.eigvals(matrix.expand(3, 4, 4)).abs().sort(-1).values,
    )
    large = torch.randn(300, 300)
    assert_close(
        torch.linalg.svdvals(large.to("ocl").expand(2, 300, 300)).cpu(),
        torch.linalg.svdvals(large).expand(2, 300),
    )
    for value in (float("nan"), float("inf")):
        with pytest.raises(RuntimeError, match="infinities or NaN"):
            torch.linalg.eigvals(torch.full((3, 3), value, device="ocl"))
