"""Compiled programs that write a tensor's own values into it, and through views of other shapes.

Upstream takes the copy that such a program makes for a copy of nothing, and reads what it has just
written; and what an op writes into a view that has no strides is lost.
"""

import pytest
import torch


def rows_in_another_order(x, order):
    y = x.relu()
    y[order] = y.clone()
    return y


def rows_of_an_input(x, order):
    x[order] = x.clone()
    return x * 1


def columns_in_another_order(x, order):
    y = x.relu()
    y[:, order] = y.clone()
    return y


def some_rows(x, order):
    z = x + 1
    z[order[:2]] = z[:2].clone()
    return z


def copied_rows(x, order):
    z = x + 1
    z.index_copy_(0, order[:2], z[:2].clone())
    return z


def result_of_copied_rows(x, order):
    y = x + 1
    return y.index_copy(0, order[:2], y[:2])


def added_rows(x, order):
    y = x + 1
    y.index_add_(0, order, y.clone())
    return y


def added_rows_as_integers(x, order):
    z = x[:2] + 1
    z.index_add_(0, order[:2] % 2, z[:2].clone())
    return z.view(torch.int32)


def scattered_rows(x, order):
    y = x + 1
    y.scatter_add_(0, order[:, None].expand(*y.shape), y.clone())
    return y


def added_through_a_view(x, order):
    t = x.view(-1, 2)
    t.add_(1)
    t.index_add_(0, order[:2], t[2:4].clone())
    return t


def added_through_a_view_of_a_product(x, order):
    h = x * 2
    t = h.view(-1, 2)
    t.index_put_((order[:2],), t[2:4].relu(), accumulate=True)
    return h


def masked_through_a_view(x, order):
    t = x.view(-1, 2)
    t.add_(1)
    mask = torch.zeros(t.shape[0], dtype=torch.bool, device=x.device)
    mask[order[:2]] = True
    t[mask] = t[2:4].clone()
    return t


def scattered_through_a_view(x, order):
    t = x.view(-1, 2)
    t.mul_(2)
    t.scatter_reduce_(0, order[:2, None].expand(2, 2), t[2:4].clone(), "amax")
    return t


PROGRAMS = [
    rows_in_another_order,
    rows_of_an_input,
    columns_in_another_order,
    some_rows,
    copied_rows,
    result_of_copied_rows,
    added_rows,
    added_rows_as_integers,
    scattered_rows,
    added_through_a_view,
    added_through_a_view_of_a_product,
    masked_through_a_view,
    scattered_through_a_view,
]
OF_UPSTREAM = {"own": rows_in_another_order, "views": masked_through_a_view}


def differs(program, device, dynamic):
    torch._dynamo.reset()
    order = torch.tensor([1, 2, 3, 0], device=device)
    inputs = [torch.arange(16.0).reshape(4, 4).to(device) for _ in range(2)]
    expected = program(inputs[0], order)
    got = torch.compile(program, dynamic=dynamic, fullgraph=True)(inputs[1], order)
    return not torch.equal(got, expected) or not torch.equal(*inputs)


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_without_a_compiler(program, dynamic):
    assert not differs(program, "ocl", dynamic)


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize("program", OF_UPSTREAM.values(), ids=OF_UPSTREAM)
def test_upstream_differs(program):
    """Where this fails, upstream has been mended."""
    assert differs(program, "cpu", None)


def power(n, k):
    return n**k


def constant_to_the_power(n, k):
    return (k + 2) ** n


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize("program", [power, constant_to_the_power])
def test_powers(program):
    """An integer that changes is an exponent, or what is raised."""
    n = torch.arange(5)
    torch._dynamo.reset()
    compiled = torch.compile(program, dynamic=True, fullgraph=True)
    for k in (2, 3, 5, 1):
        assert torch.equal(compiled(n.to("ocl"), k).cpu(), program(n, k))
    torch._dynamo.reset()
    with pytest.raises(torch._inductor.exc.InductorError):
        torch.compile(program, dynamic=True)(n, 4)
