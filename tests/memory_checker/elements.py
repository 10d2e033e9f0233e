"""Families over elements and positions: pointwise, reductions, indices, sorting, random numbers."""

import torch
from family import family, operands
from torch.nn import functional


@family
def pointwise():
    """Contiguous, row and strided access, mixed dtypes, host scalars, conversions."""
    x, y = operands()
    keep = [x + x, x * y, x.t() + x.t(), x[:, ::3] * 2, x + x.half(), torch.where(x > 0, x, y)]
    keep += [x.exp(), x.bfloat16() + 1, x.to(torch.int8), (x > 0) & (x < 1), x.clamp(-1, 1)]
    return keep


@family
def complex_and_integers():
    """Complex numbers, integer division (which checks divisors), losses of probabilities."""
    x, y = operands()
    c = torch.randn(7, 37, dtype=torch.complex64).to("ocl")
    keep = [(c * c.conj()).real, c.abs(), torch.view_as_real(c.exp() + c.t().mT / x), (c * 2).imag]
    keep += [x.long() // (y.long() + 9), x.int().t() % 3, 17 % (x.long() + 9)]
    keep.append(functional.binary_cross_entropy(x.sigmoid(), y.sigmoid().expand(7, 37)))
    return keep


@family
def reductions():
    """Rows, columns, everything, arguments, moments."""
    x, _ = operands()
    keep = [x.sum(), x.sum(0), x.sum(1), x.mean(), x.max(), x.argmax(1), x.var(0), x.norm()]
    keep += [(x > 0).any(), x.prod(1), x.max(0)[1], torch.randn(5000).to("ocl").sum()]
    keep += [x.softmax(1), x.log_softmax(0), x.logsumexp(1), x.logsumexp(0)]
    pairs = torch.randn(9, 96).bfloat16().to("ocl").requires_grad_()
    keep += [pairs.softmax(1), torch.nn.functional.layer_norm(pairs, (96,))]
    keep += torch.autograd.grad(keep[-1].sum(), pairs)
    keep += torch.autograd.grad(pairs.softmax(1)[:, 0].sum(), pairs)
    whole = torch.randn(9, 48).to("ocl").requires_grad_()
    weight = torch.randn(48).to("ocl").requires_grad_()
    norm = functional.layer_norm(whole, (48,), weight, weight)
    keep += torch.autograd.grad(norm[:, 0].sum(), (whole, weight))
    keep += torch.autograd.grad(whole.log_softmax(1)[:, 0].sum(), whole)
    odd = torch.randn(3, 77).to("ocl").requires_grad_()
    keep += torch.autograd.grad(odd.log_softmax(1)[:, 0].sum() + odd.softmax(1)[0, 0], odd)
    leaf = x.clone().requires_grad_()
    keep += torch.autograd.grad(leaf.softmax(0)[0].sum(), leaf)
    return keep


@family
def indices():
    """Index, shape, factories; duplicate indices, and positions."""
    x, y = operands()
    index = torch.tensor([0, 3, 6, 3]).to("ocl")
    keep = [
        x.index_select(0, index),
        torch.cat([x, x], 1),
        x.tril(),
        torch.arange(10, device="ocl"),
    ]
    keep += [torch.eye(5, device="ocl"), torch.linspace(0, 1, 11, device="ocl")]
    weight = torch.randn(7, 9).to("ocl").requires_grad_()
    functional.embedding(index, weight).sum().backward()
    keep.append(weight.grad)
    # Duplicate indices, and positions.
    twice = torch.tensor([[1, 1, 0, 1, 5], [2, 2, 2, 2, 2]]).to("ocl")
    filled = x.clone().scatter_add_(0, twice, torch.ones(2, 5, device="ocl"))
    keep += [filled, filled.scatter(1, twice, 3.0), (x > 0).nonzero(), x[x > 1]]
    keep.append(torch.embedding_renorm_(weight.detach().clone(), index, 1.0, 2.0))
    keep += [
        filled.index_put((index, index), y[:4], accumulate=True),
        filled.index_put((index,), y, accumulate=False),
        x.scatter_reduce(1, twice, x[:2, :5], "amax"),
        x.long().index_add(0, index, x[:4].long()),
        # More of them are sorted on GPUs.
        x.index_add(1, torch.arange(80).to("ocl") % 37, torch.ones(7, 80, device="ocl")),
        x.scatter_add(0, torch.arange(7 * 37).view(7, 37).to("ocl") % 7, x),
    ]
    return keep


@family
def sorts():
    """In local memory, in tiles, by rows; what is read off sorted rows."""
    x, _ = operands()
    index = torch.tensor([0, 3, 6, 3]).to("ocl")
    long_row = torch.randn(2, 4500).to("ocl")
    keep = [x.sort(0)[0], x.long().sort(1)[1], long_row.sort()[0], long_row.double().sort()[1]]
    keep += [
        x.topk(3)[0],
        x.median(1)[0],
        x.round().mode(1)[0],
        x.long().unique(return_counts=True)[1],
    ]
    keep += [x.long()[:, :2].unique(dim=0), torch.isin(index, index[:2])]
    return keep


@family
def random():
    """Random numbers."""
    x, _ = operands()
    weights = torch.rand(3, 7).to("ocl")
    keep = [torch.multinomial(weights, 5), torch.multinomial(weights, 9, True)]
    keep += [torch.bernoulli(weights.half()), torch.randperm(21, device="ocl")]
    keep += [x.bernoulli_(0.3), torch.randperm(1100, device="ocl")]
    keep += [torch.rand(33, device="ocl"), torch.randn(33, device="ocl"), functional.dropout(x)]
    shapes = torch.rand(5, 7).to("ocl") * 20
    gamma = torch._standard_gamma(shapes)
    keep += [gamma, torch._standard_gamma_grad(shapes, gamma), torch._sample_dirichlet(shapes)]
    keep += [torch.poisson(shapes), torch.binomial(shapes.round(), shapes / 21)]
    keep += [torch.randint(0, 9, (17,), device="ocl"), torch.empty(9, device="ocl").exponential_()]
    return keep
