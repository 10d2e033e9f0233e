"""torch_ocl::rnnt_loss, which torchaudio runs, against the sum over paths written out."""

import pytest
import torch
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu


def reference(logits, targets, lengths, counts, blank, fused):
    """The losses, of which autograd knows the gradient."""
    known = logits.log_softmax(-1) if fused else logits
    losses = []
    for b in range(len(logits)):
        sums = {}
        for t in range(lengths[b]):
            for u in range(counts[b] + 1):
                ways = [known.new_zeros(())] if t == u == 0 else []
                if t:
                    ways.append(sums[t - 1, u] + known[b, t - 1, u, blank])
                if u:
                    ways.append(sums[t, u - 1] + known[b, t, u - 1, targets[b, u - 1]])
                sums[t, u] = torch.stack(ways).logsumexp(0)
        t, u = int(lengths[b]) - 1, int(counts[b])
        losses.append(-sums[t, u] - known[b, t, u, blank])
    return torch.stack(losses)


CASES = {
    "usual": ([5, 3, 1], [2, 3, 0], 0),
    "one label": ([4, 4, 2], [1, 1, 1], 6),
    "no labels": ([4, 1, 2], [0, 0, 0], 2),
    "longer than a group": ([70, 20, 3], [66, 5, 40], 6),
}


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients(name, fused):
    lengths, counts, blank = CASES[name]
    g = torch.Generator().manual_seed(1)
    logits = torch.randn(3, max(lengths), max(counts) + 1, 7, generator=g)
    targets = torch.randint(0, 7, (3, max(counts)), generator=g).int()
    if not fused:
        logits = logits.log_softmax(-1)
    leaf = logits.double().requires_grad_()
    expected = reference(leaf, targets, lengths, counts, blank, fused)
    (wanted,) = torch.autograd.grad(expected.sum(), leaf)
    settings = [torch.tensor(x).int().to("ocl") for x in (lengths, counts)]
    run = torch.ops.torch_ocl.rnnt_loss
    losses, grad = run(logits.to("ocl"), targets.to("ocl"), *settings, blank, -1, fused)
    assert_close(losses.cpu().double(), expected.detach(), rtol=1e-4, atol=1e-4, check_dtype=False)
    assert_close(grad.cpu().double(), wanted, rtol=1e-3, atol=1e-4)
    _, clamped = run(logits.to("ocl"), targets.to("ocl"), *settings, blank, 0.1, fused)
    assert_close(clamped.cpu(), grad.cpu().clamp(-0.1, 0.1))
    halves, _ = run(logits.half().to("ocl"), targets.to("ocl"), *settings, blank, -1, fused)
    assert halves.dtype == torch.float16
    assert_close(halves.cpu().float(), losses.cpu(), rtol=1e-2, atol=1e-2)


def test_what_is_refused():
    logits, targets = torch.zeros(2, 3, 2, 5).to("ocl"), torch.zeros(2, 1).int().to("ocl")
    lengths, counts = torch.tensor([3, 3]).int().to("ocl"), torch.tensor([1, 1]).int().to("ocl")
    run = torch.ops.torch_ocl.rnnt_loss
    for bad, message in (
        ((logits.double(), targets, lengths, counts, 0, -1, True), "float32"),
        ((logits[0], targets, lengths, counts, 0, -1, True), "4-D"),
        ((logits, targets.long(), lengths, counts, 0, -1, True), "int32"),
        ((logits, targets, lengths, counts, 7, -1, True), "blank"),
        ((logits, targets, lengths - 1, counts, 0, -1, True), "input length"),
        ((logits[:1], targets, lengths, counts, 0, -1, True), "batch"),
    ):
        with pytest.raises(RuntimeError, match=message):
            run(*bad)


@pytest.mark.as_gpu
def test_kernels_for_gpus():
    """Diagonals that a group shares."""
    run_as_gpu(__file__, "-k", "losses")
