"""Results that share memory with themselves or with an operand are refused where CPU torch does."""

import pytest
import torch


def numbers(device, n=10):
    return torch.arange(float(n), device=device)


def one_place(device, *shape, dtype=torch.float32):
    """A tensor whose elements are all the same one."""
    return torch.zeros([1] * len(shape), device=device, dtype=dtype).expand(*shape)


def positions(device, n):
    return torch.zeros(n, dtype=torch.long, device=device)


def shifted(device, call):
    x = numbers(device)
    return call(x[:-1], x[1:])


REFUSED = {
    "cumsum_": lambda d: one_place(d, 3).cumsum_(0),
    "cumprod_": lambda d: one_place(d, 3).cumprod_(0),
    "normal_": lambda d: one_place(d, 3, 3).normal_(),
    "randn": lambda d: torch.randn(3, device=d, out=one_place(d, 3)),
    "addbmm_": lambda d: one_place(d, 3, 3).addbmm_(*torch.ones(2, 2, 3, 3, device=d)),
    "addmm_": lambda d: one_place(d, 3, 3).addmm_(*torch.ones(2, 3, 3, device=d)),
    "mm": lambda d: torch.mm(*torch.ones(2, 2, 2, device=d), out=one_place(d, 2, 2)),
    "addmm, addend": lambda d: torch.addmm(
        numbers(d)[:4].view(2, 2), *torch.ones(2, 2, 2, device=d), out=one_place(d, 2, 2)
    ),
    "aminmax": lambda d: torch.aminmax(
        numbers(d).view(2, 5), dim=0, out=(one_place(d, 5), numbers(d)[:5])
    ),
    "kthvalue": lambda d: torch.kthvalue(
        numbers(d).view(2, 5), 1, 0, out=(one_place(d, 5), positions(d, 5))
    ),
    "mode": lambda d: torch.mode(
        numbers(d).view(2, 5), 0, out=(numbers(d)[:5], one_place(d, 5, dtype=torch.long))
    ),
    "cumsum": lambda d: torch.cumsum(numbers(d), 0, out=one_place(d, 10)),
    "logcumsumexp": lambda d: torch.logcumsumexp(numbers(d), 0, out=one_place(d, 10)),
    "sort": lambda d: torch.sort(numbers(d), out=(one_place(d, 10), positions(d, 10))),
    "sort, positions": lambda d: torch.sort(
        numbers(d), out=(numbers(d), one_place(d, 10, dtype=torch.long))
    ),
    "topk": lambda d: torch.topk(numbers(d), 3, out=(one_place(d, 3), positions(d, 3))),
    "mean": lambda d: torch.mean(torch.ones(3, 3, device=d), 0, out=one_place(d, 3)),
    "max": lambda d: torch.max(
        torch.ones(3, 3, device=d), 0, out=(one_place(d, 3), positions(d, 3))
    ),
    "cumsum, shifted": lambda d: shifted(d, lambda a, b: torch.cumsum(a, 0, out=b)),
    "cumprod, shifted": lambda d: shifted(d, lambda a, b: torch.cumprod(a, 0, out=b)),
    "sort, shifted": lambda d: shifted(d, lambda a, b: torch.sort(a, out=(b, positions(d, 9)))),
    "topk, part": lambda d: (lambda x: torch.topk(x, 3, out=(x[1:4], positions(d, 3))))(numbers(d)),
    "_foreach_add_": lambda d: shifted(d, lambda a, b: torch._foreach_add_([b], [a])),
    "_foreach_addcmul_": lambda d: (lambda x: torch._foreach_addcmul_([x[:5]], [x[1:6]], [x[2:7]]))(
        numbers(d)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_overlapping_results_are_refused(name):
    call = REFUSED[name]
    for device in ("cpu", "ocl"):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            call(device)


ALLOWED = {
    "cumsum": lambda x: torch.cumsum(x, 0, out=x),
    "sort": lambda x: torch.sort(x, out=(x, positions(x.device, 10)))[0],
    "_foreach_add_": lambda x: (torch._foreach_add_([x], [x]), x)[1],
}


@pytest.mark.parametrize("name", ALLOWED)
def test_a_result_may_be_the_operand(name):
    call = ALLOWED[name]
    assert torch.equal(call(numbers("ocl")).cpu(), call(numbers("cpu")))
