"""Margin losses, ctc_loss, rrelu and the masked softmax against CPU torch."""

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

FLOATS = [torch.float32, torch.float64]
HALVES = [torch.float16, torch.bfloat16]
REDUCTIONS = ["none", "mean", "sum"]


def made(shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def check_gradients(function, inputs, layouts=(lambda t: t,)):
    """The result and the gradients of the floating inputs; halves are compared with float's."""
    for layout in layouts:
        host = [x.detach().float() if x.dtype in HALVES else x.detach() for x in inputs]
        host = [x.requires_grad_(x.is_floating_point()) for x in host]
        mine = [layout(x.to("ocl")) for x in inputs]
        mine = [x.requires_grad_(x.is_floating_point()) for x in mine]
        wanted, got = function(*host), function(*mine)
        assert_close(got.cpu(), wanted.to(got.dtype), equal_nan=True)
        if wanted.numel() == 0:
            continue
        weights = made(wanted.shape, 9, wanted.dtype)
        leaves = [x for x in host if x.requires_grad]
        wanted_grads = torch.autograd.grad((wanted * weights).sum(), leaves)
        leaves = [x for x in mine if x.requires_grad]
        weights = weights.to(got.dtype).to("ocl")
        grads = torch.autograd.grad((got * weights).sum(), leaves)
        for a, e in zip(grads, wanted_grads, strict=True):
            assert_close(a.cpu(), e.to(a.dtype), equal_nan=True)


def strided(x):
    return torch.stack([x, x], -1)[..., 0] if x.dim() else x


LAYOUTS = [lambda t: t, strided]


# ---- Margin losses ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multi_margin(device, reduction, dtype):
    target = torch.randint(0, 13, (37,), generator=torch.Generator().manual_seed(1))
    x, weight = made((37, 13)).to(dtype), made((13,), 2).abs().to(dtype)
    for p in (1, 2):
        for margin in (1, 0.3, -0.5):
            loss = lambda x, t, p=p, m=margin: functional.multi_margin_loss(  # noqa: E731
                x, t, p=p, margin=m, reduction=reduction
            )
            check_gradients(loss, [x, target], LAYOUTS)
    weight_host = weight.float() if dtype in HALVES else weight

    def weighted(x, t):
        w = weight.to("ocl") if x.device.type == "ocl" else weight_host
        return functional.multi_margin_loss(x, t, weight=w, reduction=reduction)

    check_gradients(weighted, [x, target])
    check_gradients(
        lambda x, t: functional.multi_margin_loss(x, t, reduction=reduction), [x[3], target[3]]
    )


def test_multi_margin_nan_and_out(device):
    x = made((5, 4))
    x[1, 2], x[2, 3], x[3] = float("nan"), float("inf"), -float("inf")
    target = torch.tensor([0, 2, 3, 1, 3])
    check_gradients(lambda x, t: functional.multi_margin_loss(x, t, reduction="none"), [x, target])
    wanted = torch.ops.aten.multi_margin_loss(x, target, 1, 1, None, 0)
    out = torch.empty(0, device=device)
    torch.ops.aten.multi_margin_loss.out(x.to(device), target.to(device), 1, 1, None, 0, out=out)
    assert_close(out.cpu(), wanted, equal_nan=True)
    grad, host_grad = torch.empty(4, 5).t().to(device).t().contiguous().t(), torch.empty(5, 4)
    arguments = (torch.ones(5), x, target, 2, 1, None, 0)
    torch.ops.aten.multi_margin_loss_backward.grad_input(
        *(a.to(device) if isinstance(a, torch.Tensor) else a for a in arguments), grad_input=grad
    )
    torch.ops.aten.multi_margin_loss_backward.grad_input(*arguments, grad_input=host_grad)
    assert_close(grad.cpu(), host_grad, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin(device, reduction, dtype):
    g = torch.Generator().manual_seed(1)
    target = torch.stack([torch.randperm(11, generator=g) for _ in range(23)])
    target[torch.arange(23), torch.randint(0, 11, (23,), generator=g)] = -1
    target[0] = -1  # no target at all
    target[1] = torch.arange(11)  # nothing but targets
    target[2] = torch.tensor([4, 4, 7] + [-1] * 8)  # one of them twice
    loss = lambda x, t: functional.multilabel_margin_loss(x, t, reduction=reduction)  # noqa: E731
    x = made((23, 11)).to(dtype)
    check_gradients(loss, [x, target], LAYOUTS)
    for row in (0, 1, 2, 9):
        check_gradients(loss, [x[row], target[row]])
    check_gradients(loss, [torch.tensor(0.5, dtype=dtype), torch.tensor(0)])


def test_multilabel_margin_is_target(device):
    x, target = made((3, 4)), torch.tensor([[3, 0, -1, 2], [-1, 0, 1, 2], [1, 2, 3, 0]])
    wanted = torch.ops.aten.multilabel_margin_loss_forward(x, target, 1)
    got = torch.ops.aten.multilabel_margin_loss_forward(x.to(device), target.to(device), 1)
    assert_close([t.cpu() for t in got], list(wanted))


def expect_same_error(call, later=False):
    """CPU torch refuses, and so does the device, at once or at the next wait."""
    with pytest.raises(Exception) as on_cpu:
        call("cpu")
    with pytest.raises(type(on_cpu.value)):
        call("ocl")
        assert later
        torch.ocl.synchronize()


def test_bad_targets(device):
    x = made((3, 4))
    for target in ([0, 1, 4], [0, -1, 2]):
        expect_same_error(
            lambda d, t=target: functional.multi_margin_loss(x.to(d), torch.tensor(t).to(d)), True
        )
    for target in ([0, 1, -2, 2], [0, -1, 4, 2]):
        expect_same_error(
            lambda d, t=target: functional.multilabel_margin_loss(
                x.to(d), torch.tensor([t] * 3).to(d)
            ),
            True,
        )


def test_bad_arguments(device):
    x, t = made((3, 4)), torch.tensor([0, 1, 2])
    for call in (
        lambda d: functional.multi_margin_loss(x.to(d), t.to(d), p=3),
        lambda d: functional.multi_margin_loss(x.to(d), t[:2].to(d)),
        lambda d: functional.multi_margin_loss(x.to(d), t.int().to(d)),
        lambda d: functional.multi_margin_loss(x.to(d), t.to(d), weight=torch.ones(3).to(d)),
        lambda d: functional.multi_margin_loss(x.long().to(d), t.to(d)),
        lambda d: functional.multilabel_margin_loss(x.to(d), t.to(d)),
        lambda d: functional.multilabel_margin_loss(x.to(d), x.to(d)),
        lambda d: functional.rrelu(x.long().to(d), training=True),
        lambda d: torch.ops.aten.rrelu_with_noise(x.to(d), x[:2].to(d), 0.1, 0.2, True),
        lambda d: torch.ops.aten.rrelu_with_noise(x.to(d), x[:2].to(d), 0.1, 0.2, False),
        lambda d: torch.ops.aten.rrelu_with_noise(x.to(d), x.double().to(d), 0.1, 0.2, True),
        lambda d: torch.ops.aten.rrelu_with_noise(x.to(d), x.to(d), 0.3, 0.2, True),
    ):
        expect_same_error(call)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_no_rows(device, reduction):
    """The mean of nothing is NaN; CPU torch leaves memory unset here."""
    x, labels = torch.zeros(0, 4, device=device), torch.zeros(0, 4, dtype=torch.long, device=device)
    wanted = {"none": torch.zeros(0), "mean": torch.tensor(torch.nan), "sum": torch.tensor(0.0)}
    for loss in (
        functional.multi_margin_loss(x, labels[:, 0], reduction=reduction),
        functional.multilabel_margin_loss(x, labels, reduction=reduction),
    ):
        assert_close(loss.cpu(), wanted[reduction], equal_nan=True)


# ---- rrelu ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
def test_rrelu_training(device, dtype):
    x = made((60, 51)).to(dtype).to(device)
    x[0, :3] = torch.tensor([0.0, float("nan"), float("-inf")])
    for source in (x, x.t(), strided(x)):
        noise = torch.empty_like(source)
        y = torch.ops.aten.rrelu_with_noise(source, noise, 0.2, 0.4, True)
        host, slope, y = source.cpu(), noise.cpu().float(), y.cpu()
        negative = host <= 0
        assert ((slope[negative] >= 0.199) & (slope[negative] <= 0.401)).all()
        assert slope[negative].unique().numel() > 20 and (slope[~negative] == 1).all()
        assert_close(y, (host.float() * slope).to(dtype), equal_nan=True)
    assert abs(slope[negative].mean() - 0.3) < 0.01


def test_rrelu_repeats_and_in_place(device):
    x = made((60, 51)).to(device)
    results = []
    for inplace in (False, True):
        torch.manual_seed(3)
        results.append(functional.rrelu(x.clone(), 0.1, 0.9, training=True, inplace=inplace))
    assert torch.equal(results[0], results[1])
    y = x.clone()
    assert functional.rrelu(y, 0.1, 0.3, training=False, inplace=True) is y
    assert_close(y.cpu(), functional.rrelu(x.cpu(), 0.1, 0.3, training=False))
    assert functional.rrelu(x[:0], training=True).shape == (0, 51)


@pytest.mark.parametrize("inplace", [False, True])
def test_rrelu_backward(device, inplace):
    for training in (True, False):
        x = made((30, 7)).to(device).requires_grad_()
        y = functional.rrelu(x * 1, 0.1, 0.9, training=training, inplace=inplace)
        (grad,) = torch.autograd.grad(y.sum(), x)
        assert_close(grad, y / x)


# ---- CTC --------------------------------------------------------------------------------------


def ctc(batch=5, time=20, classes=7, longest=6, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    log_probs = made((time, batch, classes), seed, dtype).log_softmax(2)
    targets = torch.randint(1, classes, (batch, longest), generator=g)
    targets[0] = targets[0, 0]  # repeated labels need blanks in between
    lengths = torch.randint(0, longest + 1, (batch,), generator=g).tolist()
    lengths[0], lengths[-1] = longest, 0
    inputs = torch.randint(2 * longest + 1, time + 1, (batch,), generator=g).tolist()
    inputs[0] = time
    return log_probs, targets, inputs, lengths


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_ctc(device, reduction, dtype):
    log_probs, targets, inputs, lengths = ctc(dtype=dtype)
    flat = torch.cat([t[:n] for t, n in zip(targets, lengths, strict=True)])
    for labels in (targets, targets.int(), flat, targets.t().contiguous().t()):
        loss = lambda p, t: functional.ctc_loss(  # noqa: E731
            p.log_softmax(2), t, inputs, lengths, reduction=reduction
        )
        check_gradients(loss, [log_probs, labels], LAYOUTS)


def test_ctc_lengths_as_tensors(device):
    log_probs, targets, inputs, lengths = ctc()
    for place in ("cpu", "ocl"):
        check_gradients(
            lambda p, t, place=place: functional.ctc_loss(
                p,
                t,
                torch.tensor(inputs).to(place if p.device.type == "ocl" else "cpu"),
                torch.tensor(lengths).to(place if p.device.type == "ocl" else "cpu"),
            ),
            [log_probs, targets],
        )


def test_ctc_many_samples_and_blank(device):
    """More samples than a launch takes; a blank that is not 0."""
    log_probs, targets, inputs, lengths = ctc(batch=83, time=15, longest=5)
    for blank in (0, 3, 6):
        # Not the blank itself: CPU torch's gradient forgets a term there.
        labels = torch.where(targets == blank, (targets + 1) % 7, targets)
        check_gradients(
            lambda p, t, b=blank: functional.ctc_loss(p, t, inputs, lengths, blank=b),
            [log_probs, labels],
        )


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_impossible(device, zero_infinity):
    log_probs, targets, inputs, lengths = ctc(batch=4)
    targets[1] = 2
    inputs, lengths = [20, 5, 0, 0], [3, 6, 2, 0]
    check_gradients(
        lambda p, t: functional.ctc_loss(
            p, t, inputs, lengths, reduction="none", zero_infinity=zero_infinity
        ),
        [log_probs, targets],
    )


def test_ctc_one_sample(device):
    log_probs, targets, _, _ = ctc(batch=1)
    check_gradients(
        lambda p, t: functional.ctc_loss(p, t, torch.tensor(20), torch.tensor(6)),
        [log_probs[:, 0], targets[0]],
    )
    check_gradients(
        lambda p, t: functional.ctc_loss(p, t, [20], [0], reduction="sum"),
        [log_probs, torch.zeros(0, dtype=torch.long)],
    )


def test_ctc_long(device):
    """Longer than a work-group in time and labels."""
    log_probs, targets, inputs, lengths = ctc(batch=2, time=400, longest=150, dtype=torch.float64)
    inputs = [400, 333]
    check_gradients(
        lambda p, t: functional.ctc_loss(p, t, inputs, [150, 101], reduction="sum"),
        [log_probs, targets],
    )


def test_ctc_bad_arguments(device):
    p, t = ctc(batch=2, time=5, classes=4, longest=2)[:2]

    def call(*arguments):
        return lambda d: torch._ctc_loss(
            *(a.to(d) if isinstance(a, torch.Tensor) else a for a in arguments)
        )

    for arguments in (
        (p, t, [6, 5], [2, 2]),
        (p, t, [5, 5], [3, 2]),
        (p, t.float(), [5, 5], [2, 2]),
        (p, t.short(), [5, 5], [2, 2]),
        (p, t, [5], [2, 2]),
        (p, t, [5, 5], [2]),
        (p, t, [5, 5], [2, 2], 7),
        (p, t, [5, 5], [2, 2], -1),
        (p.half(), t, [5, 5], [2, 2]),
        (p, t.reshape(-1), [5, 5], [2, 1]),
        (p, t, [5, -1], [2, 1]),
        (p, t, [5, 5], [2, -1]),
        (p[:, 0], t, [5, 5], [2, 2]),
        (p[:, :0], t, [], []),
        (p, t[:1], [5, 5], [2, 2]),
        (p, t, torch.tensor([5.0, 5.0]), torch.tensor([2, 2])),
    ):
        expect_same_error(call(*arguments))
    # CPU torch reads past its memory here.
    t[1, 1] = 9
    with pytest.raises(IndexError, match="ctc_loss"):
        torch._ctc_loss(p.to(device), t.to(device), [5, 5], [2, 2])
        torch.ocl.synchronize()


# ---- Masked softmax ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
@pytest.mark.parametrize("mask_type", [0, 1, 2])
def test_masked_softmax(device, mask_type, dtype):
    x = made((2, 3, 9, 9)).to(dtype)
    shape = {0: (9, 9), 1: (2, 9), 2: (2, 3, 9, 9)}[mask_type]
    mask = made(shape, 4) > 0.3
    if mask_type != 1:
        mask[..., 2, :] = True
    for dim in (3, 1) if mask_type == 2 else (3,):
        wanted = torch._masked_softmax(x.float(), mask, dim, mask_type)
        got = torch._masked_softmax(x.to(device), mask.to(device), dim, mask_type)
        assert_close(got.cpu(), wanted.to(dtype), equal_nan=True)
    got = torch._masked_softmax(
        x.t_().to(device) if x.dim() == 2 else x.mT.to(device).mT, mask.to(device), 3, mask_type
    )
    assert_close(
        got.cpu(), torch._masked_softmax(x.float(), mask, 3, mask_type).to(dtype), equal_nan=True
    )


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_masked_softmax_backward(device, dim):
    x, mask, grad = made((5, 6, 7)), made((5, 6, 7), 1) > 0, made((5, 6, 7), 2)
    mask[2, 3, :] = True
    grad[mask] = float("inf")
    output = torch._masked_softmax(x, mask, dim, 2)
    wanted = torch.ops.aten._masked_softmax_backward(grad, output, mask, dim)
    got = torch.ops.aten._masked_softmax_backward(
        *(t.to(device) for t in (grad, output, mask)), dim
    )
    assert_close(got.cpu(), wanted, equal_nan=True)


def test_masked_softmax_bad_arguments(device):
    x, mask = made((2, 3, 4, 4)), torch.zeros(2, 3, 4, 4, dtype=torch.bool)
    for arguments in (
        (x, mask.float(), 3, 2),
        (x, mask[0], 3, 2),
        (x, mask[0, 0], 3),
        (x, mask[0, 0, :2], 3, 0),
        (x, mask[0, 0], 3, 1),
        (x.long(), mask, 3, 2),
    ):
        expect_same_error(
            lambda d, given=arguments: torch._masked_softmax(
                *(a.to(d) if isinstance(a, torch.Tensor) else a for a in given)
            )
        )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_linear_cross_entropy(dtype, reduction):
    """In parts, without the logits of a whole batch: half types are computed in float32."""
    options = pytest.importorskip("torch.nn.modules.linear_cross_entropy_options")
    chunked = options.LinearCrossEntropyOptions(batch_chunk_size=16)
    x, weight = made((64, 40), 1, dtype), made((96, 40), 2, dtype)
    target = torch.arange(64)

    def run(device):
        leaves = [t.to(device, copy=True).requires_grad_() for t in (x, weight)]
        loss = functional.linear_cross_entropy(
            *leaves, target.to(device), reduction=reduction, options=chunked
        )
        grads = torch.autograd.grad(loss.sum(), leaves)
        return [t.detach().cpu() for t in (loss, *grads)]

    tolerance = {torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert_close(run("ocl"), run("cpu"), rtol=tolerance, atol=tolerance)
