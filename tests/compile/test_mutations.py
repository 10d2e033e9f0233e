"""Compiled programs read a tensor before they write to it, as their text says."""

import operator

import pytest
import torch
from torch.utils._pytree import tree_leaves

from torch_ocl.upstream.compile import windows


def through_a_dtype_view(x):
    y = x.view(torch.int32) * 2
    y.sub_(-4)
    x[:, 2:5] = 2
    return y.view(torch.int64)


def of_another_view(x):
    y = x.view(torch.int32)[:, 2:] + 1
    x.view(torch.int16)[:, ::2] = 5
    return y.view(torch.int64), y


def copied_whole(x):
    y = torch.zeros_like(x)
    y[0:, :] = x[0:, :]
    x.add_(1)
    return y


def written_after_a_copy(x):
    y = x.clone()
    x.add_(y.flip(0))
    y[..., 2:] = 7
    return y


def kept_while_its_input_is_cleared(x):
    y = x.index_put((x > 2,), torch.tensor(-4, device=x.device))
    x.zero_()
    return y


def kept_while_its_input_gets_another(x):
    y = torch.diagonal_scatter(x, x[0, :4])
    x.copy_(y * 2)
    return y


def seen_through_a_view(x):
    y = x.index_put((x > 2,), torch.tensor(-4, device=x.device)).view(torch.int32)
    x.zero_()
    return y[1:]


def written_beside_what_is_read(x):
    x.diagonal().fill_(-4)
    y = x.flip(0)
    x.masked_fill_(y < 0, 7)
    return y


def written_after_it_is_concatenated(x):
    x[..., 1:] = -4
    y = torch.cat([x, x * 2])
    x.index_add_(0, torch.tensor([1, 0], device=x.device), x[2:] + 1)
    return y


def written_whole_after_a_part(x):
    x[:, 2:5] = 7
    x.index_fill_(0, torch.tensor([0, 1], device=x.device), 2)
    x[x > 2] = 5
    return x.view(torch.int32), x[::2].view(torch.int32)


def written_by_a_mask_through_a_dtype_view(x):
    y = x.view(torch.int8)
    y[y > 2] = -4
    return x


def written_twice_after_a_copy(x):
    x.diagonal().fill_(-4)
    y = x.clone()
    y.diagonal().fill_(2)
    x.fill_(-4)
    return y.view(torch.int32)


def written_from_itself(x):
    y = x.clone()
    x[torch.tensor([1, 0], device=x.device)] = y[:2]
    return x * 2


PROGRAMS = [
    through_a_dtype_view,
    of_another_view,
    copied_whole,
    written_after_a_copy,
    kept_while_its_input_is_cleared,
    kept_while_its_input_gets_another,
    seen_through_a_view,
    written_beside_what_is_read,
    written_after_it_is_concatenated,
    written_whole_after_a_part,
    written_by_a_mask_through_a_dtype_view,
    written_twice_after_a_copy,
    written_from_itself,
]


@pytest.fixture(autouse=True)
def _graphs_are_compiled_afresh():
    torch._dynamo.reset()


def differs(program, device="ocl", dtype=torch.int64, **options):
    x = torch.arange(-12, 12).reshape(4, 6).to(dtype)
    y = x.to(device)
    expected, actual = program(x), torch.compile(program, **options)(y)
    if torch.is_tensor(expected):
        expected, actual = [expected], [actual]
    pairs = zip([*actual, y], [*expected, x], strict=True)
    return not all(torch.equal(a.cpu(), e) for a, e in pairs)


@pytest.mark.parametrize("program", PROGRAMS, ids=operator.attrgetter("__name__"))
@pytest.mark.parametrize("dynamic", [False, True])
def test_values_from_before_a_write(program, dynamic):
    assert not differs(program, dynamic=dynamic)


@pytest.mark.parametrize("program", PROGRAMS, ids=operator.attrgetter("__name__"))
def test_replayed(program):
    assert not differs(program, mode="reduce-overhead")


def differs_in_halves(dtype):
    """Whether a write through one half type's view of another goes wrong."""

    def program(x):
        y = x + x
        halves = y.view(torch.bfloat16).view(torch.float16)
        halves[2:3] = 3
        return y, halves

    x = torch.arange(1, 33).reshape(4, 8).to(dtype)
    expected, right = program(x), []
    for _ in range(2):  # the second time inductor writes in place
        torch._dynamo.reset()
        found = torch.compile(program)(x.to("ocl"))
        right += [torch.equal(a.cpu(), e) for a, e in zip(found, expected, strict=True)]
    return not all(right)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_writes_through_two_dtype_views(dtype):
    assert not differs_in_halves(dtype)


def written_through_views_of_other_sizes(x):
    whole, bytes_of_it = x.view(torch.int64), x.view(torch.int8)
    whole.copy_(x.sum())
    x[-1:].mul_(2)
    bytes_of_it.masked_fill_(bytes_of_it > 3, 1)
    return x, bytes_of_it


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_other_sizes(dynamic):
    assert not differs(written_through_views_of_other_sizes, dtype=torch.int32, dynamic=dynamic)


def index(device):
    return torch.tensor([0, 2], device=device)


def filled_by_a_number(x):
    x[index(x.device)] = 6


def filled_at_places(x):
    x.index_put_((index(x.device), index(x.device) + 1), torch.full((2,), 6).to(x))


def filled_and_read(x):
    x.index_fill_(1, index(x.device), 5)
    x[1:].add_(x[:-1] + 1)


def scattered(x):
    x.scatter_(1, index(x.device)[None], 7)


#: A type with a fraction, and an integer of its size.
OF_ONE_SIZE = {
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}


def written_through_a_view_of_a_result(write, kind, device="ocl", **options):
    """Writes integers into a view of a compiled result: what that gives, and what it should."""

    def program(x):
        y = x.view(kind) * 1
        view = y.view(OF_ONE_SIZE[kind])
        write(view)
        return y, view, view.index_fill(0, index(x.device), 9).view(kind)

    x = torch.arange(1.0, 33).view(4, 8).to(kind).view(OF_ONE_SIZE[kind])
    found = torch.compile(program, **options)(x.to(device))
    return [[y.cpu().view(OF_ONE_SIZE[kind]) for y in ys] for ys in (found, program(x))]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", OF_ONE_SIZE, ids=str)
@pytest.mark.parametrize(
    "write",
    [filled_by_a_number, filled_at_places, filled_and_read, scattered],
    ids=operator.attrgetter("__name__"),
)
def test_integers_into_a_view_of_a_result(write, kind, dynamic):
    found, expected = written_through_a_view_of_a_result(write, kind, dynamic=dynamic)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("program", PROGRAMS[::2], ids=operator.attrgetter("__name__"))
def test_from_cpp(program):
    with torch._inductor.config.patch(cpp_wrapper=True):
        assert not differs(program)


def two_inputs(target, source):
    target[0:, :] = source[0:, :]
    source.add_(1)
    return source


def exchange(a, b):
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


def kept_in_another_input(a, b):
    """The diagonal's write may not be in `a`, which is written once more before `b` gets it."""
    a.diagonal().fill_(7)
    y = b.view(torch.int32)
    b.copy_(a)
    a[a > 2] = 2
    return y.view(torch.int8)


def through_a_view_that_is_computed(a, b):
    a.view(torch.uint8)[..., 1:] = 7
    a.index_fill_(0, torch.tensor([0, 1], device=a.device), 7)
    return b.view(torch.int8)


def with_another_name(a, b):
    """Memory is not used for the next result, though only its other name is read by then."""
    kept = a.unsqueeze(0)
    a.sub_(-4)
    b.view(torch.int32)[..., 4:] = 2
    y = b.contiguous()
    y.diagonal().fill_(7)
    return kept, b.view(torch.int8), y.view(torch.int8)


def copied_through_a_view(a, b):
    """The copy is no part of `b`, though `a` has the values of `b`."""
    a[:] = b
    y = a.t().clone()
    b.fill_(7)
    return y


def numbers(dtype, first=0):
    return torch.arange(first, first + 16).to(dtype).view(4, 4)


#: With what each is called.
PAIRS = {
    two_inputs: lambda: [torch.zeros(3, 4), torch.arange(12.0).view(3, 4)],
    exchange: lambda: [torch.arange(6.0), torch.arange(6.0) + 10],
    kept_in_another_input: lambda: [numbers(torch.int16, -8), numbers(torch.int16)],
    through_a_view_that_is_computed: lambda: [numbers(torch.int8, -8), numbers(torch.int8)],
    with_another_name: lambda: [torch.arange(16).int(), torch.arange(64).view(8, 8).char()],
    copied_through_a_view: lambda: [numbers(torch.int16), numbers(torch.int16, 20)],
}


def differs_for_two(program):
    x, y = PAIRS[program](), [t.to("ocl") for t in PAIRS[program]()]
    expected, actual = program(*x), torch.compile(program)(*y)
    pairs = zip(tree_leaves([actual, y]), tree_leaves([expected, x]), strict=True)
    return not all(e is None or torch.equal(a.cpu(), e) for a, e in pairs)


@pytest.mark.parametrize("program", PAIRS, ids=operator.attrgetter("__name__"))
def test_two_inputs(program):
    assert not differs_for_two(program)


def test_no_result_is_an_input():
    """A copy that changes nothing is still one, also of a view of what an input was copied to."""
    a, b = numbers(torch.float32).to("ocl"), numbers(torch.float32, 20).to("ocl")

    def copies(a, b):
        a[:] = b
        return a.t().clone(), a.t().contiguous(), a.view(2, 8).clone()

    found = torch.compile(copies)(a, b)
    places = {t.untyped_storage().data_ptr() for t in (a, b, *found)}
    assert len(places) == 5


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.bool, torch.float16])
def test_constants_through_a_dtype_view(dtype):
    def fill(x):
        y = x.view({1: torch.int8, 2: torch.bfloat16}[x.element_size()])
        y.fill_(1)
        return y

    x, y = torch.zeros(40, dtype=dtype), torch.zeros(40, dtype=dtype, device="ocl")
    assert torch.equal(torch.compile(fill)(y).cpu(), fill(x))
    assert torch.equal(y.cpu(), x)


def write_windows(x, size, step):
    y = x.unfold(0, size, step)
    y.mul_(3)
    y[1:].add_(1)
    return x * 1, y * 2


def write_windows_of_a_view(x, size, step):
    write_windows(x[1:], size, step)
    return x * 1


def of_a_value(x, size, step):
    y = (x * 1).view(-1, 1).expand(-1, 7).contiguous().t()
    y.unfold(0, size, step)[..., 0] = 5
    return y


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", [write_windows, write_windows_of_a_view, of_a_value])
@pytest.mark.parametrize(("size", "step"), [(1, 1), (2, 2), (2, 3), (1, 2)])
def test_writes_through_windows(program, size, step, dynamic):
    """Elements between windows keep their values."""
    x, y = torch.arange(7), torch.arange(9, device="ocl")[2:].sub_(2)
    expected, actual = (
        program(x, size, step),
        torch.compile(program, dynamic=dynamic)(y, size, step),
    )
    pairs = zip(tree_leaves([actual, y]), tree_leaves([expected, x]), strict=True)
    assert all(torch.equal(a.cpu(), e) for a, e in pairs)


@pytest.mark.parametrize(("size", "step"), [(3, 1), (2, 5)])
def test_windows_without_other_views(size, step):
    """Windows that overlap, or a last one without its gap: by strides, which upstream refuses to
    write if they are of a view."""
    x, y = torch.arange(7), torch.arange(7, device="ocl")

    def fill(x):
        x.unfold(0, size, step).fill_(9)
        return x * 1

    assert torch.equal(torch.compile(fill)(y).cpu(), fill(x))
    assert torch.equal(y.cpu(), x)
    with pytest.raises(RuntimeError, match="as_strided"):
        torch.compile(lambda x: fill(x.view(torch.int32)))(y)


def test_windows_that_are_read_are_left_alone():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_method("unfold", (x, 0, 2, 2))
    z = graph.call_method("add", (y, 1))
    graph.output(graph.call_method("add_", (z, 1)))
    for node in (x, y, z):
        node.meta["example_value"] = torch.ones(1, device="ocl")
    module = torch.fx.GraphModule({}, graph)
    windows.change_written_windows(module)
    assert y.target == "unfold"
    z.replace_input_with(y, x)
    graph.call_method("copy_", (y, z))
    windows.change_written_windows(module)
    assert y.target is windows.windows
