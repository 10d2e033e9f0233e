"""Fake tensors tell the shapes, strides and aliases that the kernels of `ocl` give.

A compiled graph is planned with fakes: strides that differ from the kernel's give wrong results
or errors in the ops that follow.
"""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_utils import CrossRefFakeMode

from tests.coverage.compiled.fakes import KNOWN, KNOWN_OF_OTHERS, OPS, mismatches


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.full_name)
def test_fakes(op):
    found = mismatches(op, "ocl")
    if op.full_name in KNOWN:
        assert found, "no longer differs: take it out of KNOWN"
        found = [message for message in found if KNOWN[op.full_name] not in message]
    assert not found, "\n".join(found)


def test_known_ops_exist():
    assert {*KNOWN, *KNOWN_OF_OTHERS} <= {op.full_name for op in OPS}


@pytest.mark.parametrize("weight_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("training", [True, False])
def test_statistics_of_norms(weight_dtype, training):
    """They are saved as eagerly, by compiled graphs too: mixed dtypes save float32, evaluation of a
    batch norm nothing."""

    def norms(x, w):
        batch = torch.native_batch_norm(x, w, w, w.clone(), w.clone(), training, 0.1, 1e-5)
        return *batch, *torch.native_layer_norm(x, [3], w, w, 1e-5)

    torch._dynamo.reset()
    operands = (
        torch.randn(4, 3, 3).bfloat16().to("ocl"),
        torch.ones(3, dtype=weight_dtype).to("ocl"),
    )
    with FakeTensorMode() as mode:
        fakes = norms(*map(mode.from_tensor, operands))
    compiled = torch.compile(norms, fullgraph=True)(*operands)
    for fake, made, eager in zip(fakes, compiled, norms(*operands), strict=True):
        assert (made.dtype, made.shape) == (eager.dtype, eager.shape)
        assert (fake.dtype, fake.shape) == (eager.dtype, eager.shape)
        torch.testing.assert_close(made, eager)


@pytest.mark.parametrize(
    "op",
    [
        lambda x: torch.nn.functional.max_pool3d(x, 2),
        lambda x: torch.nn.functional.pad(x, (1,) * 6, mode="reflect"),
        lambda x: torch.nn.functional.pad(x, (1,) * 6, mode="replicate"),
    ],
    ids=["max_pool3d", "reflect", "replicate"],
)
def test_volumes_without_a_batch(op):
    """They lie channels last where an image of these strides would."""
    for memory_format in (torch.channels_last, torch.contiguous_format):
        x = torch.randn(2, 4, 5, 6, device="ocl").to(memory_format=memory_format)
        with CrossRefFakeMode(check_strides=True):
            assert op(x).is_contiguous(memory_format=memory_format)


def test_other_strides_are_found():
    """The comparison sees strides: an op whose fake lies contiguous and whose result does not."""
    with torch.library._scoped_library("ocl_test_fakes", "FRAGMENT") as library:
        library.define("turned(Tensor x) -> Tensor")
        library.impl("turned", lambda x: x.t().contiguous().t(), "PrivateUse1")
        library.impl("turned", torch.empty_like, "Meta")
        with (
            pytest.raises(RuntimeError, match="Stride mismatch"),
            CrossRefFakeMode(check_strides=True),
        ):
            torch.ops.ocl_test_fakes.turned(torch.ones(3, 4, device="ocl"))
