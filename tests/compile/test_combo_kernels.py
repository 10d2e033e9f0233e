"""Kernels side by side in one launch: torch._foreach_*, optimisers, config.combo_kernels."""

import copy

import pytest
import torch
from torch import nn
from torch._inductor import config

SIZES = [(5,), (4, 7), (33,), (), (100, 3), (4, 7), (8, 0), (1,), (64, 64), (20000,)]


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def moved(tensors):
    return [t.to("ocl") for t in tensors]


def launches(call):
    """The result, and how many launches it took."""
    torch.ocl.synchronize()
    before = torch.ocl.launch_count()
    result = call()
    torch.ocl.synchronize()
    return result, torch.ocl.launch_count() - before


def check(function, *lists, most, dynamic=None):
    """Results and inputs are those of the CPU's eager ops, with that many launches at most."""
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    theirs, ours = copy.deepcopy(lists), [moved(tensors) for tensors in lists]
    compiled(*[[t.clone() for t in tensors] for tensors in ours])
    found, count = launches(lambda: compiled(*ours))
    torch.testing.assert_close(found, function(*theirs), check_device=False)
    torch.testing.assert_close(ours, list(theirs), check_device=False)
    assert count <= most


def made(dtype, sizes=SIZES):
    if dtype.is_floating_point:
        return [torch.randn(size).to(dtype) for size in sizes]
    return [torch.randint(-9, 9, size, dtype=dtype) for size in sizes]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8]
)
def test_dtypes_and_sizes(dtype):
    def function(xs, ys):
        sums = torch._foreach_add(xs, ys)
        return sums, torch._foreach_mul(sums, 3)

    check(function, made(dtype), made(dtype), most=1)


def test_chains_of_several_lists():
    def function(xs, ys, zs):
        sums = torch._foreach_add(xs, ys, alpha=2.0)
        torch._foreach_addcdiv_(zs, sums, [y.abs() + 1 for y in ys], value=-0.1)
        return torch._foreach_sqrt(torch._foreach_abs(sums))

    check(function, *(made(torch.float32) for _ in range(3)), most=2)


def test_mixed_dtypes():
    xs = [torch.randn(40), torch.randn(41).half(), torch.randn(7).bfloat16(), torch.arange(9)]
    check(lambda xs: torch._foreach_mul(xs, 2), xs, most=1)


def test_what_has_no_place_beside_others():
    """Layouts that differ, and lines that lanes must not cross, have kernels of their own."""
    xs = [torch.randn(6, 5).t(), torch.randn(31, 17)[:, :13], torch.randn(9), torch.randn(40, 3)]
    ys = [torch.randn(5, 6), torch.randn(31, 13), torch.randn(9), torch.randn(3).expand(40, 3)]
    check(lambda xs, ys: torch._foreach_add(xs, ys), xs, ys, most=4)


def test_writes():
    """Into inputs that the next part reads, so that all parts in one launch would be wrong."""

    def function(xs):
        doubled = torch._foreach_add(xs, xs[1:] + xs[:1])
        torch._foreach_copy_(xs, doubled)
        return torch._foreach_neg(doubled)

    check(function, made(torch.float32, [(50000,)] * 4), most=12)


def test_what_is_read_before_a_write():
    """And computed after it, unless something is done about it."""

    def function(xs, ys):
        doubled = [x * 2 for x in xs]
        torch._foreach_add_(xs, ys)
        return doubled

    check(function, *(made(torch.float32, [(50000,)] * 4) for _ in range(2)), most=9)


def test_more_tensors_than_a_launch_has_parameters_for():
    sizes = [(3 + n % 5, 7 + n) for n in range(70)]
    check(
        lambda xs, ys: torch._foreach_add(xs, ys),
        *(made(torch.float32, sizes) for _ in range(2)),
        most=4,
    )


def test_sizes_that_change():
    compiled = torch.compile(lambda xs: torch._foreach_mul(xs, 2.5), dynamic=True)
    for length in (4, 17, 40):
        xs = made(torch.float32, [(length, 3), (2 * length,), (5,)])
        torch.testing.assert_close(
            compiled(moved(xs)), torch._foreach_mul(xs, 2.5), check_device=False
        )


def test_numbers_on_the_host():
    def function(xs, numbers):
        return torch._foreach_mul(xs, numbers[0])

    compiled = torch.compile(function)
    xs = made(torch.float32)
    for number in (torch.tensor(2.5), torch.tensor(-1.5)):
        torch.testing.assert_close(
            compiled(moved(xs), [number]), function(xs, [number]), check_device=False
        )


def test_combo_kernels():
    """The option puts kernels of any ops side by side; reductions and checks stay alone."""

    def function(xs, indices):
        x, y, z = xs
        return x.sin(), y.exp() * 2, z.sum(0), z.softmax(1), y[indices[0]], z.t().contiguous() + 1

    xs = [torch.randn(40), torch.randn(9, 5), torch.randn(33, 21)]
    with config.patch(combo_kernels=True):
        check(function, xs, [torch.tensor([3, 8, 0])], most=5)


@pytest.mark.parametrize("cpp_wrapper", [False, True])
@pytest.mark.parametrize(
    "name, arguments",
    [
        ("SGD", {"momentum": 0.9, "weight_decay": 0.01}),
        ("Adam", {"amsgrad": True}),
        ("AdamW", {}),
        ("AdamW", {"capturable": True}),
    ],
)
def test_optimizers(name, arguments, cpp_wrapper):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(9, 16), nn.LayerNorm(16), nn.Linear(16, 3))
    gradients = [[torch.randn_like(p) for p in network.parameters()] for _ in range(4)]

    def steps(device):
        parameters = list(copy.deepcopy(network).to(device).parameters())
        # The CPU has no captures.
        ours = device == "ocl"
        rest = {k: v for k, v in arguments.items() if ours or k != "capturable"}
        optimizer = getattr(torch.optim, name)(parameters, lr=0.01, **rest)
        step = torch.compile(optimizer.step) if ours else optimizer.step
        for given in gradients:
            for parameter, gradient in zip(parameters, given, strict=True):
                parameter.grad = gradient.to(device)
            _, count = launches(step)
        return parameters, count

    with config.patch(cpp_wrapper=cpp_wrapper):
        found, count = steps("ocl")
    torch.testing.assert_close(found, steps("cpu")[0], check_device=False)
    assert count <= 2
