"""Compiled programs that write a part of a bool view of other dtypes, or of complex numbers: the
rest stays.

A byte of these views may be neither 0 nor 1, and the same truth then.
"""

import pytest
import torch


def a_part_of_an_input(x):
    x.view(torch.bool)[2:] = True
    return x + 0


def rows_of_a_result(x):
    y = x * 1
    rows = y.view(torch.bool).view(2, -1)
    rows[1].copy_(rows[0] ^ True)
    rows[0, 1] = False
    return y


def a_diagonal(x):
    y = x * 1
    v = y.view(torch.bool)
    v.view(2, -1).diagonal().fill_(True)
    return y, v.logical_not()


def every_second(x):
    y = x * 1
    y.view(torch.bool)[::2].logical_not_()
    return y.view(torch.int8)


def between_other_writes(x):
    v = x.view(torch.bool)
    v[1] = v[0]
    x.add_(1)
    v[3] = True
    return v | False


def the_view_itself(x):
    v = x.view(torch.bool)
    v[1:3].fill_(False)
    return v


def by_a_mask(x):
    y = x * 1
    v = y.view(torch.bool)
    v[:2].masked_fill_(v[2:4], True)
    return y


PROGRAMS = (
    a_part_of_an_input,
    rows_of_a_result,
    a_diagonal,
    every_second,
    between_other_writes,
    the_view_itself,
    by_a_mask,
)
INPUTS = {
    "uint8": torch.arange(8, dtype=torch.uint8),
    "int8": torch.arange(8, dtype=torch.int8),
    "int16": 301 * torch.arange(8, dtype=torch.int16),
    "float32": torch.tensor([1.5, 2.5]),
}


def comparable(result):
    """Bytes, and the truth of bools."""
    tensors = [t.cpu() for t in (result if isinstance(result, tuple) else (result,))]
    return [t.view(torch.uint8).ne(0) if t.dtype == torch.bool else t for t in tensors]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", INPUTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_not_written_stays(program, dtype, dynamic):
    torch._dynamo.reset()
    theirs, ours = INPUTS[dtype].clone(), INPUTS[dtype].to("ocl")
    expected = comparable(program(theirs))
    found = comparable(torch.compile(program, dynamic=dynamic)(ours))
    for a, b in zip([*found, ours.cpu()], [*expected, theirs], strict=True):
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def copied_diagonal(b):
    v = b * 2
    b.diagonal().fill_(3)
    return v.t()


@torch._inductor.config.patch(force_disable_caches=True)
def test_copies_of_complex_inputs():
    """Upstream copies an input that is partly written by an op without an overload."""
    torch._dynamo.reset()
    theirs = torch.randn(4, 4, dtype=torch.complex64)
    ours = theirs.to("ocl")
    expected, found = copied_diagonal(theirs), torch.compile(copied_diagonal)(ours)
    assert torch.equal(found.cpu(), expected)
    assert torch.equal(ours.cpu(), theirs)
