"""Functions over lists of tensors: against CPU torch, and how many launches they take."""

import pytest
import torch
from torch.testing import assert_close

from benchmarks.studies.footprint import launches

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SHAPES = [(20011,), (3, 5), (0,), (), (1,), (16,), (17, 4)] + [(i + 1,) for i in range(60)]


def tensors(seed, dtype=torch.float32, shapes=SHAPES):
    g = torch.Generator().manual_seed(seed)
    return [(torch.rand(shape, generator=g) + 0.5).to(dtype) for shape in shapes]


NUMBERS = [0.25 * i - 3.1 for i in range(len(SHAPES))]
#: name: arguments after the first list, made for a dtype.
CASES = {
    "sqrt": lambda t: (),
    "neg": lambda t: (),
    "abs": lambda t: (),
    "reciprocal": lambda t: (),
    "maximum": lambda t: (tensors(2, t),),
    "sub": lambda t: (tensors(2, t),),
    "add": lambda t: (1.5,),
    "add ": lambda t: (tensors(2, t),),
    "add  ": lambda t: (NUMBERS,),
    "mul": lambda t: (-0.5,),
    "mul ": lambda t: (tensors(2, t),),
    "mul  ": lambda t: (torch.tensor(0.75, dtype=t),),
    "mul   ": lambda t: (NUMBERS,),
    "div": lambda t: (3,),
    "div ": lambda t: (tensors(2, t),),
    "div  ": lambda t: (NUMBERS,),
    "lerp": lambda t: (tensors(2, t), 0.1),
    "lerp ": lambda t: (tensors(2, t), 0.8),
    "addcmul": lambda t: (tensors(2, t), tensors(3, t), 0.3),
    "addcdiv": lambda t: (tensors(2, t), tensors(3, t), -0.3),
    "addcdiv ": lambda t: (tensors(2, t), tensors(3, t), NUMBERS),
}


def moved(value, place):
    if isinstance(value, list):
        return [moved(v, place) for v in value]
    return value.to(place) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_against_the_cpu(device, case, dtype):
    arguments = CASES[case](dtype)
    first = tensors(1, dtype)
    name = case.strip()
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(dtype)
    tolerance = {"rtol": tolerance, "atol": tolerance} if tolerance else {}
    mine = moved(first, device)
    wanted = getattr(torch, f"_foreach_{name}")(first, *arguments)
    got = getattr(torch, f"_foreach_{name}")(mine, *moved(list(arguments), device))
    assert_close([t.cpu() for t in got], list(wanted), **tolerance)
    assert_close([t.cpu() for t in mine], first)
    places = [t.data_ptr() for t in mine]
    getattr(torch, f"_foreach_{name}_")(mine, *moved(list(arguments), device))
    assert_close([t.cpu() for t in mine], list(wanted), **tolerance)
    assert places == [t.data_ptr() for t in mine]


def test_alpha(device):
    first, second = tensors(1), tensors(2)
    got = torch._foreach_add(moved(first, device), moved(second, device), alpha=-2.5)
    assert_close([t.cpu() for t in got], list(torch._foreach_add(first, second, alpha=-2.5)))


def test_lists_that_go_tensor_by_tensor(device):
    """Integers, mixed dtypes, broadcasting, complex numbers, strides that differ."""
    a, b = torch.arange(6).view(2, 3), torch.ones(3)
    for lists in (
        ([a, a + 1], [a + 5, a]),
        ([a.float(), a.double()], [a.float(), a.float()]),
        ([a.float(), b], [b, b]),
        ([a.to(torch.complex64)], [a.to(torch.complex64)]),
        ([a.float(), a.float()[:, ::2]], [a.t().contiguous().t().float(), a.float()[:, 1:]]),
        ([a.t().float()], [a.view(3, 2).float()]),
    ):
        wanted = torch._foreach_add(*lists)
        got = torch._foreach_add(*moved(list(lists), device))
        assert_close([t.cpu() for t in got], list(wanted))
    mine = [torch.zeros(4, 6, device=device)[:, ::2]]
    torch._foreach_add_(mine, [torch.ones(4, 3, device=device)])
    assert (mine[0] == 1).all()
    with pytest.raises(RuntimeError):
        torch._foreach_add([a.to(device)], [])
    with pytest.raises(RuntimeError):
        torch._foreach_add([b.to(device)], [torch.ones(4, device=device)])


NORMS = [1, 2.0, torch.inf, 3]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", NORMS)
@pytest.mark.parametrize("sizes", [SHAPES, [(5,)], [(2_000_003,), (2, 3), (1,)]])
def test_norms(device, dtype, order, sizes):
    if abs(order) == torch.inf:
        sizes = [shape for shape in sizes if 0 not in shape]
    xs = [t - 1 for t in tensors(4, dtype, sizes)]
    wanted = torch._foreach_norm([x.double() for x in xs], order)
    got = torch._foreach_norm(moved(xs, device), order)
    tolerance = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-6}.get(dtype, 1e-12)
    for mine, exact, x in zip(got, wanted, xs, strict=True):
        assert mine.shape == () and mine.dtype == dtype
        if exact < torch.finfo(dtype).max:
            assert_close(mine.cpu().double(), exact, rtol=tolerance, atol=0)
        else:
            assert_close(mine.cpu(), torch.linalg.vector_norm(x, order))


def test_norms_of_what_is_no_number_and_of_other_lists(device):
    nan, inf = torch.nan, torch.inf
    xs = [torch.ones(1000), torch.ones(50_000), torch.zeros(3), torch.full((9,), 1e30)]
    xs[0][7], xs[1][49_999] = nan, -inf
    turned = [torch.ones(4, 6).t(), torch.ones(2, 2)]
    mixed = [torch.ones(3), torch.ones(3).double(), torch.ones(2, dtype=torch.complex64)]
    for order in (1, 2, inf):
        for lists in (xs, xs[::-1], [x[::2] for x in xs], turned, mixed):
            wanted = list(torch._foreach_norm(lists, order))
            got = torch._foreach_norm(moved(lists, device), order)
            assert_close([t.cpu() for t in got], wanted, equal_nan=True)
    halves = [torch.full((5000,), 3.0, dtype=torch.float16)]
    (got,) = torch._foreach_norm(moved(halves, device), 2, dtype=torch.float32)
    assert_close(got.cpu(), torch._foreach_norm(halves, 2, dtype=torch.float32)[0])
    for order, lists in ((inf, [torch.ones(2), torch.ones(0)]), (2, [torch.ones(3).int()])):
        with pytest.raises(RuntimeError) as theirs:
            torch._foreach_norm(lists, order)
        with pytest.raises(RuntimeError) as ours:
            torch._foreach_norm(moved(lists, device), order)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.bool], ids=str)
def test_zeros_and_copies(device, dtype):
    xs, ys = moved(tensors(1, dtype), device), tensors(2, dtype)
    xs.append(torch.ones(6, 4, device=device, dtype=dtype).t()[::2])
    ys.append(torch.zeros(4, 6, dtype=dtype)[::2])
    places = [x.data_ptr() for x in xs]
    torch._foreach_copy_(xs, moved(ys, device))
    assert_close([x.cpu() for x in xs], ys, rtol=0, atol=0)
    torch._foreach_zero_(xs)
    assert not any(x.any() for x in xs) and places == [x.data_ptr() for x in xs]
    torch._foreach_copy_(xs, ys)  # from the host
    torch._foreach_copy_(xs, [y.double() for y in moved(ys, device)])
    assert_close([x.cpu() for x in xs], ys, rtol=0, atol=0)


def test_clipping_gradients_takes_few_launches(device):
    def clip(count, place):
        parameters = [torch.nn.Parameter(torch.ones(9 + i, 3, device=place)) for i in range(count)]
        for number, p in enumerate(parameters):
            p.grad = torch.full_like(p, number + 1.0)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 2.0)
        return [norm.cpu(), *(p.grad.cpu() for p in parameters)]

    assert_close(clip(70, device), clip(70, "cpu"))
    counts = []
    for count in (60, 200):
        parameters = [torch.ones(9 + i, 3, device=device) for i in range(count)]
        for p in parameters:
            p.grad = torch.ones_like(p)
        torch.nn.utils.clip_grad_norm_(parameters, 2.0)
        torch.ocl.reset_launch_count()
        torch.nn.utils.clip_grad_norm_(parameters, 2.0)
        counts.append(torch.ocl.launch_count())
    assert counts[0] == counts[1] <= 12, counts


def test_values_that_are_no_numbers(device):
    """A NaN on either side is the maximum; the sign of a zero is dropped."""
    nan, inf = torch.nan, torch.inf
    a = torch.tensor([nan, 1.0, -inf, -0.0, 2.0])
    b = torch.tensor([1.0, nan, inf, -1.0, 2.0])
    (got,) = torch._foreach_maximum([a.to(device)], [b.to(device)])
    assert_close(got.cpu(), torch.maximum(a, b), equal_nan=True)
    (got,) = torch._foreach_abs([a.to(device)])
    assert not got.cpu().signbit()[1:].any()


def test_gradients(device):
    xs = [torch.rand(3, device=device, requires_grad=True) for _ in range(3)]
    loss = sum(t.sum() for t in torch._foreach_mul(torch._foreach_sqrt(xs), 2.0))
    grads = torch.autograd.grad(loss, xs)
    assert_close(list(grads), [x.detach().rsqrt() for x in xs])


def test_launches_of_a_step():
    """As many for two hundred parameters as for sixty, and few."""
    few, many = (launches([(7 + i,) for i in range(count)]) for count in (60, 200))
    assert few == many
    assert all(0 < count <= (2 if form == "fused" else 8) for (_, form), count in few.items()), few


@pytest.mark.parametrize("name", ["add", "mul", "copy", "zero", "sqrt", "addcmul", "lerp", "neg"])
def test_versions(device, name):
    """Autograd sees that a list was written, and refuses gradients of what was there."""
    values = [torch.rand(3, device=device)]
    others = {"add": (2.0,), "mul": (3.0,), "copy": (values,), "lerp": (values, 0.5)}
    others["addcmul"] = values, values
    w = torch.rand(3, device=device, requires_grad=True)
    loss = (w * w).sum()
    with torch.no_grad():
        getattr(torch, f"_foreach_{name}_")([w], *others.get(name, ()))
    assert w._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
