"""What indexing and combining through indices do at the ends of their input's range."""

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
