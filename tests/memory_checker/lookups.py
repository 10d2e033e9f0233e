"""Families of positions: bins, runs of equal elements, selections, scans, lines, flips."""

import os

import torch
from family import family, operands
from torch.nn import functional


@family
def binning():
    """Counts of few and many bins, edges of bins, places in sorted rows, a check on the device."""
    x, y = operands()
    edges = torch.linspace(-2, 2, 9, device="ocl")
    keep = [torch.bincount(x.long().abs().view(-1)), torch.histc(x, 7, -2, 2)]
    keep += [torch.bincount(x.long().abs().view(-1), minlength=4100)]
    keep += [torch.histogram(y, edges)[0], torch.histogram(y, 5)[0]]
    keep += [torch.searchsorted(edges, x), torch.bucketize(y.long(), edges.long(), right=True)]
    torch._assert_async(keep[0][0] >= 0)
    return keep


@family
def selections():
    """Rows whose first few are wanted, runs of equal elements, rows too long for a work-item."""
    x, _ = operands()
    long_row = torch.arange(70, 0, -1).repeat(2, 5).to("ocl")
    keep = [x[:, :21].sort()[0], x.topk(2)[1], long_row.topk(40)[0], long_row.half().topk(1)[1]]
    keep += [*x.long().unique_consecutive(return_inverse=True, return_counts=True)]
    keep += [(x > 0).unique_consecutive(dim=1).float()]
    keep += [(torch.arange(16400).to("ocl") % 7 - 3).to(torch.int8).sort()[1]]
    return keep


@family
def scans():
    """Along rows and across them, with positions."""
    x, _ = operands()
    keep = [x.cumsum(1), x.cumsum(0), x.half().cumprod(1), x.logcumsumexp(0)]
    keep += [*x.cummax(1), *x.cummin(0), x.long().cumsum(0), x.cumsum(0, dtype=torch.float64)]
    return keep


@family
def lines():
    """Rows and columns picked, set, copied and added to by whole vectors."""
    table, index = torch.randn(9, 33).to("ocl"), torch.tensor([3, 0, 8, 3, 5]).to("ocl")
    rows = torch.randn(5, 33).to("ocl")
    once = index[:3]
    along = torch.randint(0, 9, (5, 33)).to("ocl")
    keep = [table.gather(0, along), table[:, ::2].gather(1, along[:, :6]), table[index, 1:]]
    keep += [table[index][:, ::3], table.index_select(1, index), table[:, index, None]]
    keep += [table.index_copy(0, once, rows[:3]), table.index_fill(0, once, 2.0)]
    keep += [table.index_copy(1, once, table[:, :3]), table.scatter(0, along[:1], rows[:1])]
    keep += [table.index_add(0, index, rows), table.index_add(1, index, table[:, :5])]
    keep += [table.bfloat16().index_add(0, index, rows.bfloat16()), table.take(along)]
    keep += [table.half().index_add(0, index, rows.half())]
    keep += [torch.cat([table, rows]), torch.stack([rows, rows], 1), table.repeat(2, 2)]
    keep += [table.roll(3, 1), table.put(once * 7, rows[0, :3])]
    keep += [rows.repeat_interleave(index % 3, 0)]
    return keep


@family
def shapes():
    """Flips, triangles, overlapping windows, sequences."""
    x, _ = operands()
    keep = [x.flip(0), x.flip(1), x.t().flip(0, 1), x.half().flip(1), x[:, :3].flip(1)]
    keep += [x.triu(1), x.t().tril(-1), x.expand(2, 7, 37).triu(), x[:, ::2].tril(2)]
    keep += [torch.tril_indices(5, 7, device="ocl"), torch.triu_indices(5, 7, 1, device="ocl")]
    keep += [torch.nn.utils.rnn.pad_sequence([x[0], x[1, :30]]), torch.logspace(0, 1, 7).to("ocl")]
    leaf = x.clone().requires_grad_()
    keep += torch.autograd.grad(leaf.unfold(1, 5, 2).square().sum(), leaf)
    return keep


@family
def special_functions():
    """Those that take vectors and those that take one element at a time."""
    x, y = operands()
    special = torch.special
    keep = [torch.lgamma(x * 4), torch.erfinv(x / 4), torch.i0(x), special.i1e(x)]
    keep += [special.bessel_j0(x), special.bessel_y1(x.abs()), torch.digamma(x)]
    keep += [torch.igamma(x.abs(), y.abs()), torch.nextafter(x, y), torch.fmod(x, y)]
    keep += [special.zeta(x.abs() + 1, y.abs() + 1), special.ndtri(x.sigmoid()), special.erfcx(x)]
    keep += [torch.polygamma(2, x.abs()), special.airy_ai(y), torch.gcd(x.long(), y.long() + 3)]
    return [t.nan_to_num(0, 0, 0) for t in keep]


@family
def fallbacks():
    """The matrix product that takes whatever the others refuse; the choice is made once."""
    os.environ["TORCH_OCL_GEMM"] = "direct"
    a, b = torch.randn(2, 5, 13).to("ocl"), torch.randn(13, 9).to("ocl")
    bias = torch.randn(9).to("ocl")
    return [a @ b, functional.linear(a[0], b.t(), bias), (a[0] * 9).long() @ (b * 9).long()]
