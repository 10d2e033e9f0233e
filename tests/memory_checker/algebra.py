"""Families of products, linear algebra and Fourier transforms."""

import torch
from family import family, operands
from torch import nn
from torch.nn import functional


@family
def sparse():
    """Products of compressed matrices, their indices, and the check of these."""
    matrix = (torch.arange(35 * 13).view(13, 35) % 3 == 0) * torch.randn(13, 35)
    coo = matrix.to("ocl").to_sparse()
    csr = coo.to_sparse_csr()
    keep = []
    for columns in (1, 3, 16, 37):
        other = torch.randn(35, columns).to("ocl").requires_grad_()
        keep += [coo @ other, torch.sparse.mm(csr, other, "mean")]
        keep += [torch.sparse.mm(csr, other, "amax"), csr.half() @ other.detach().half()]
    keep.append(torch.sparse.mm(coo, coo.t()).to_dense())
    left, right = matrix[:, :5].to("ocl"), matrix[:5].to("ocl")
    keep += [torch.sparse.sampled_addmm(csr, left, right).values()]
    keep += [csr.to_sparse_csc().values(), csr.to_sparse().values()]
    # A transducer's loss, and states of 8 bits.
    lengths, labels = torch.tensor([3, 2]).int().to("ocl"), torch.tensor([2, 1]).int().to("ocl")
    logits, targets = torch.randn(2, 3, 3, 5).to("ocl"), torch.zeros(2, 2).int().to("ocl")
    keep += [*torch.ops.torch_ocl.rnnt_loss(logits, targets, lengths, labels, 0, -1, True)]
    p, bits = torch.zeros(300).to("ocl"), torch.zeros(300, dtype=torch.uint8).to("ocl")
    table, most = torch.linspace(-1, 1, 256).to("ocl"), torch.ones(2).to("ocl")
    torch.ops.torch_ocl.optimizer_8bit_(
        *("adam", p, p, bits, bits.clone(), 0.9, 0.99, 1e-8, 1, 0.1),
        *(table, table, most, most.clone(), 0.0, 1.0),
    )
    torch.sparse_csr_tensor(
        csr.crow_indices(), csr.col_indices(), csr.values(), csr.shape, check_invariants=True
    )
    return keep


@family
def products():
    """Matrix products, quantised weights, float8."""
    x, _ = operands()
    a, b = torch.randn(13, 21).to("ocl"), torch.randn(21, 35).to("ocl")
    keep = [
        a @ b,
        b.t() @ a.t(),
        a @ b[:, 0],
        a[0] @ b,
        torch.randn(3, 5, 7).to("ocl") @ b[:7],
        a.half() @ b.half(),
        torch.addmm(b[0].double(), a.double(), b.double()),
        torch.randn(36, 40).to("ocl") @ torch.randn(44, 40).to("ocl").t(),
        torch.randn(40, 36).to("ocl").t() @ torch.randn(40, 44).to("ocl"),
        torch.randn(2100, 13).to("ocl").t() @ torch.randn(2100, 16).to("ocl"),
        torch.dot(torch.randn(70000).to("ocl"), torch.randn(70000).to("ocl")),
    ]
    wide, norm = torch.randn(2, 200).to("ocl"), torch.rand(200).to("ocl")
    layers = [torch.randn(n, 200).to("ocl") for n in (9, 5, 3)]
    keep.append(torch.ops.ocl.linear_pieces(wide, layers))
    keep.append(torch.ops.ocl.linear_pieces(wide, layers, epsilon=1e-5, norm=norm))
    keep.append(torch.ocl.pack_weights(nn.Linear(37, 35).to("ocl"))(x.detach()))
    # Quantised weights, float8.
    rows = torch.randn(11, 64).to("ocl")
    bits = torch.randint(0, 16, (16, 64), dtype=torch.int32).to("ocl")
    packed = torch._convert_weight_to_int4pack_for_cpu(bits, 1)
    scales = torch.rand(2, 16, 2).to("ocl")
    for count in (1, 3, 11):
        keep.append(torch._weight_int4pack_mm_for_cpu(rows[:count], packed, 32, scales))
    parts = [packed, packed[:8].clone()], [scales, scales[:, :8].clone()]
    for count in (1, 3):
        keep.append(torch.ops.ocl.linear_pieces(rows[:count], *parts, epsilon=1e-5, norm=rows[0]))
    keep.append(torch._weight_int8pack_mm(rows[:2], bits.char(), scales[0, :, 0].contiguous()))
    keep.append(torch._weight_int8pack_mm(rows, bits.char(), scales[0, :, 0].contiguous()))
    keep += integers(rows, bits, scales) + blocks_of_bits(rows) + blocks_of_files(rows)
    keep += [x.to(torch.float8_e4m3fn).float(), x.t().to(torch.float8_e5m2).eq(1)]
    return keep


def integers(x, bits, scales):
    """Matrices of 4 bits have scales of another dtype, columns in another order, a bias."""
    ops, keep = torch.ops.torch_ocl, []
    order, bias = torch.arange(63, -1, -1, dtype=torch.int32).to("ocl"), x[0, :16].clone()
    for rows in (bits, bits[:5]):
        packed, in_lanes = ops.int4_pack(rows.byte())
        n = len(rows)
        weight = packed, scales[:, :n].half().contiguous(), order, in_lanes
        for count in (1, 3, 11):
            keep.append(ops.int4_linear(x[:count], *weight, bias[:n].clone()))
        keep.append(ops.int4_linear_gradient(x[:, :n], *weight))
    return keep


def blocks_of_bits(x):
    """bitsandbytes' ops: whole blocks, one that isn't, scales that are quantised, too."""
    ops, code = torch.ops.torch_ocl, torch.linspace(-1, 1, 256).to("ocl")
    part, keep = x.flatten()[:203], []
    bits, largest = ops.quantize_4bit(x, 64, "nf4", torch.uint8)
    eight, outer = ops.quantize_blockwise(largest, code, 256)
    nested = (None, eight, code, largest[:1])
    for count in (1, 3, 9):
        keep.append(ops.gemm_4bit(x[:count], bits, [11, 64], largest, 64, "nf4", x[0, :11].clone()))
        keep.append(ops.gemm_4bit(x[:count], bits, [11, 64], outer, 64, "nf4", *nested))
    bits, largest = ops.quantize_4bit(part.half(), 32, "fp4", torch.uint8)
    keep.append(ops.dequantize_4bit(bits, largest, 32, "fp4", [203], torch.half))
    eight, largest = ops.quantize_blockwise(part, code, 50)
    keep.append(ops.dequantize_blockwise(eight, largest, code, 50, torch.float32))
    rows, scales, _ = ops.int8_vectorwise_quant(x[:, :37], 1.0)
    sums = ops.int8_linear_matmul(rows, rows)
    return [*keep, ops.int8_mm_dequant(sums, scales, scales, torch.half, scales)]


def blocks_of_files(x):
    """GGUF's formats: products of few rows and of more, rows by indices."""
    from torch_ocl.utils.gguf import BLOCKS

    ops, keep = torch.ops.torch_ocl, []
    for name, (elements, size) in BLOCKS.items():
        bits = torch.randint(0, 60, (11, size), dtype=torch.uint8).to("ocl")
        rows = torch.randn(11, elements).to("ocl")
        for count in (1, 3, 11):
            keep.append(ops.gguf_linear(rows[:count], bits, name, x[0, :11].clone()))
        keep.append(ops.gguf_embedding(bits, torch.tensor([10, 0]).to("ocl"), name, torch.half))
    return keep


@family
def linear_algebra():
    """Blocks, panels and what the recursion does around them."""
    x, _ = operands()
    square = torch.randn(2, 37, 37)
    square = (square @ square.mT + 37 * torch.eye(37)).to("ocl")
    lower, lu = torch.linalg.cholesky(square), torch.linalg.lu_factor(square[:, :, :19])
    keep = [lower, lu[0], torch.linalg.lu(square)[0], torch.linalg.qr(square[:, :, :19])[0]]
    keep += [torch.linalg.solve(square, x.mT), torch.linalg.inv(square[:, :3, :3].cfloat()).real]
    keep += [torch.cdist(x, x), torch.pdist(x, 1), torch.linalg.cross(x[:, :3], x[:, 3:6])]
    keep += [torch.matrix_exp(square[:, :3, :3] / 99), x.renorm(2, 0, 1)]
    keep.append(torch._compute_linear_combination(square[0, :5], torch.randn(2, 5).to("ocl")))
    # Distances between more rows than a vector has lanes, and their gradients.
    leaf = torch.randn(18, 5).to("ocl").requires_grad_()
    for p in (0, 1, 2, torch.inf, 3):
        distances = torch.cdist(leaf, leaf.detach() + 1, p, "donot_use_mm_for_euclid_dist")
        keep += [distances.detach(), functional.pdist(leaf, p).detach()]
    keep += torch.autograd.grad(distances.sum(), leaf)
    # Eigenvalues, singular values, blocks of one and two rows of LDL factors.
    small = square[:, :19, :19].clone()
    small.diagonal(0, 1, 2).zero_()
    keep += [*torch.linalg.eigh(small), *map(abs, torch.linalg.svd(small[:, :, :17].cfloat()))]
    keep.append(torch.linalg.ldl_solve(*torch.linalg.ldl_factor(small), small))
    return keep


@family
def fourier():
    """Radices of their own and others, several steps, Bluestein's; along lines and across them, of
    complex numbers, reals and half spectra."""
    x, _ = operands()
    c = torch.randn(7, 37, dtype=torch.complex64).to("ocl")
    keep = [torch.fft.fft(c).real, torch.fft.ifft(c, 30, 0).imag, torch.fft.fft(c, 67).abs()]
    keep += [torch.fft.rfft(x, 30).real, torch.fft.rfft(x, 15, 0).imag, torch.fft.fft(x, 30).real]
    keep += [torch.fft.fft(c, 64).real, torch.fft.fft(c, 210, 0).real, torch.fft.irfft(c, 1018)]
    keep += [torch.fft.irfft(c, 60), torch.fft.irfft(c, 7, 0), torch.fft.irfft2(c)]
    keep.append(torch.fft.rfft(torch.randn(2, 4200).to("ocl")).real)
    keep.append(torch.fft.irfft(torch.randn(2101, dtype=torch.complex64).to("ocl"), 4200))
    return keep


@family
def fourier_in_registers():
    """Lines that a GPU's work-items hold, which exchange them through local memory."""
    c = torch.randn(5, 64, dtype=torch.complex64).to("ocl")
    keep = [torch.fft.fft(c).real, torch.fft.ifft(c, 60, 0).imag, torch.fft.rfft(c.real).abs()]
    keep += [torch.fft.irfft(c, 126), torch.fft.fft(c[:2, :37], 37).real]
    return keep
