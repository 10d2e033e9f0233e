"""nll_loss and nll_loss2d against CPU torch, forward and backward; checks made on the device."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
REDUCTIONS = ["none", "mean", "sum"]
# Input shapes: classes, batch x classes, with one and two spatial dimensions, and more.
SHAPES = [
    (7,),
    (5, 7),
    (1, 1),
    (6, 4, 9),
    (3, 5, 8, 11),
    (2, 4, 3, 2, 5),
    (5000, 10),
    (4, 3, 65, 70),
]


def problem(shape, dtype, ignore_index):
    x = torch.randn(shape).log_softmax(1 if len(shape) > 1 else 0).to(dtype)
    classes = shape[1] if len(shape) > 1 else shape[0]
    target = torch.randint(0, classes, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if target.dim() > 0 and target.numel() > 1:
        target.view(-1)[1] = ignore_index
    return x, target, torch.rand(classes).to(dtype) + 0.5


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_and_backward(shape, weighted, reduction, dtype):
    # CPU torch adds up in half itself.
    rough = {"rtol": 2e-2, "atol": 2e-2} if dtype in (torch.float16, torch.bfloat16) else {}
    for ignore_index in (-100, 0):
        x, target, weight = problem(shape, dtype, ignore_index)
        if dtype in (torch.float16, torch.bfloat16) and reduction != "none":
            reference_x, reference_weight = x.float(), weight.float()
        else:
            reference_x, reference_weight = x.clone(), weight
        a = reference_x.requires_grad_()
        b = x.to("ocl").requires_grad_()
        expected = F.nll_loss(
            a,
            target,
            reference_weight if weighted else None,
            reduction=reduction,
            ignore_index=ignore_index,
        )
        actual = F.nll_loss(
            b,
            target.to("ocl"),
            weight.to("ocl") if weighted else None,
            reduction=reduction,
            ignore_index=ignore_index,
        )
        assert actual.dtype == dtype
        assert_close(actual.cpu(), expected.to(dtype), equal_nan=True, **rough)
        grad = torch.rand(expected.shape)
        expected.backward(grad.to(expected.dtype))
        actual.backward(grad.to(dtype).to("ocl"))
        assert_close(b.grad.cpu(), a.grad.to(dtype), equal_nan=True, **rough)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_layouts(reduction):
    x = torch.randn(8, 6, 5, 4).log_softmax(1)
    target = torch.randint(0, 6, (4, 5, 8)).permute(2, 1, 0)
    for view in (
        x,
        x.contiguous(memory_format=torch.channels_last),
        x.transpose(2, 3).contiguous().transpose(2, 3),
    ):
        device_view = torch.empty_strided(view.size(), view.stride(), device="ocl").copy_(view)
        assert_close(
            F.nll_loss(device_view, target.to("ocl"), reduction=reduction).cpu(),
            F.nll_loss(view, target, reduction=reduction),
        )
    y, t = torch.randn(6, 9).t(), torch.randint(0, 6, (9,))
    assert_close(
        F.nll_loss(y.t().to("ocl").t(), t.to("ocl"), reduction=reduction).cpu(),
        F.nll_loss(y, t, reduction=reduction),
    )


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_empty_and_all_ignored(reduction):
    for shape, target in [
        ((0, 3), torch.empty(0, dtype=torch.long)),
        ((4, 3), torch.full((4,), -100)),
        ((0, 3, 2, 2), torch.empty(0, 2, 2, dtype=torch.long)),
        ((2, 3, 2, 2), torch.full((2, 2, 2), -100)),
    ]:
        x = torch.randn(shape)
        op = (
            torch.ops.aten.nll_loss2d_forward
            if len(shape) == 4
            else torch.ops.aten.nll_loss_forward
        )
        expected = op(x, target, None, reduction, -100)
        actual = op(x.to("ocl"), target.to("ocl"), None, reduction, -100)
        assert_close(tuple(t.cpu() for t in actual), tuple(expected), equal_nan=True)


def test_uint8_target():
    x, target = torch.randn(5, 4), torch.randint(0, 4, (5,)).byte()
    assert_close(F.nll_loss(x.to("ocl"), target.to("ocl")).cpu(), F.nll_loss(x, target))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("bad", [-1, 7])
@pytest.mark.parametrize("shape", [(5, 7), (2, 7, 3, 3)], ids=str)
def test_target_out_of_range(shape, bad, reduction):
    x = torch.randn(shape)
    target = torch.zeros(shape[:1] + shape[2:], dtype=torch.long)
    target.view(-1)[2] = bad
    with pytest.raises(IndexError, match=f"Target {bad} is out of bounds."):
        F.nll_loss(x, target, reduction=reduction)
    with pytest.raises(IndexError, match=f"nll_loss.*Target {bad} is out of bounds."):
        F.nll_loss(x.to("ocl"), target.to("ocl"), reduction=reduction)
        torch.ocl.synchronize()
    # Nothing is left over.
    assert F.nll_loss(x.to("ocl"), torch.zeros_like(target).to("ocl")).isfinite().item()


def test_out():
    x, target = torch.randn(5, 4), torch.randint(0, 4, (5,))
    expected, out = torch.empty(0), torch.empty(0, device="ocl")
    torch._C._nn.nll_loss(x, target, out=expected)
    torch._C._nn.nll_loss(x.to("ocl"), target.to("ocl"), out=out)
    assert_close(out.cpu(), expected)


def test_errors():
    for device in ("cpu", "ocl"):
        x = torch.randn(5, 4, device=device)
        images = torch.randn(2, 4, 3, 3, device=device)
        target = torch.zeros(5, dtype=torch.long, device=device)
        labels = torch.zeros(2, 3, 3, dtype=torch.long, device=device)
        with pytest.raises(RuntimeError, match="expected target dtype to be Long or Byte"):
            F.nll_loss(x, target.int())
        with pytest.raises(ValueError):
            F.nll_loss(x, target[:3])
        with pytest.raises(RuntimeError):
            F.nll_loss(x, target, torch.ones(3, device=device))
        with pytest.raises(RuntimeError, match="expected scalar type"):
            F.nll_loss(x, target, torch.ones(4, device=device, dtype=torch.float64))
        forward, backward = torch.ops.aten.nll_loss2d_forward, torch.ops.aten.nll_loss2d_backward
        one = torch.tensor(1.0, device=device)
        with pytest.raises(RuntimeError, match="either for all or no classes"):
            forward(images, labels, torch.ones(3, device=device), 1, -100)
        with pytest.raises(RuntimeError, match="only batches of spatial targets"):
            forward(images, labels[0], None, 1, -100)
        with pytest.raises(RuntimeError, match="size mismatch"):
            forward(images, labels[:, :2], None, 1, -100)
        with pytest.raises(RuntimeError, match="single element grad_output"):
            backward(torch.ones(2, 1, device=device), images, labels, None, 1, -100, one)
        with pytest.raises(RuntimeError, match="must have same dimension as target"):
            backward(torch.ones(2, 1, device=device), images, labels, None, 0, -100, one)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64], ids=str)
def test_scores_that_are_not_floating(dtype):
    for device in ("cpu", "ocl"):
        target, weight = torch.zeros(2, dtype=torch.long, device=device), torch.ones(3)
        for w in (None, weight.to(device)):
            with pytest.raises(NotImplementedError):
                F.nll_loss(torch.ones(2, 3, device=device).to(dtype), target, w)
