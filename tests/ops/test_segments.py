"""segment_reduce, hash_tensor, weight norm, the split of attention's projections."""

import math

import pytest
import torch
from torch.testing import assert_close

FLOATS = [torch.float32, torch.float64]
HALVES = [torch.float16, torch.bfloat16]
REDUCTIONS = ["max", "mean", "min", "sum", "prod"]


def made(shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# ---- segment_reduce ---------------------------------------------------------------------------


def check_segments(data, reduce, **options):
    results = []
    for place in ("ocl", "cpu"):
        wide = data.dtype in HALVES and place == "cpu"
        x = (data.float() if wide else data).to(place).requires_grad_()
        moved = {k: v.to(place) if hasattr(v, "to") else v for k, v in options.items()}
        y = torch.segment_reduce(x, reduce, **moved)
        grad = made(y.shape, 3).to(y.dtype).to(place)
        results.append([y.detach(), torch.autograd.grad(y, x, grad)[0]])
    for a, e in zip(*results, strict=True):
        assert_close(a.cpu(), e.to(a.dtype), equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segment_reduce(device, reduce, dtype):
    lengths = torch.tensor([3, 0, 5, 1, 8])
    for shape in ((17,), (17, 3), (17, 2, 3)):
        data = made(shape, 1, dtype)
        if len(shape) == 1:  # with more dimensions CPU torch gives each of equal extremes it all
            data[4] = data[3]
        data[10] = 0
        for index in (torch.int64, torch.int32):
            for initial in (None, 1, -2.5):
                options = {"initial": initial, "unsafe": True}
                check_segments(data, reduce, lengths=lengths.to(index), **options)
        offsets = torch.tensor([0, 3, 3, 8, 9, 17])
        check_segments(data, reduce, offsets=offsets, unsafe=True, initial=2)


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segment_reduce_rows(device, reduce, dtype):
    for inner in (15, 16, 17, 40, 300):
        data = made((6, inner), 2, dtype)
        data[1, 3], data[4, inner - 1] = float("nan"), float("inf")
        for initial in (None, 2):
            lengths = torch.tensor([2, 0, 1, 3])
            check_segments(data, reduce, lengths=lengths, initial=initial, unsafe=True)
    data = made((2, 6, 20), 2, dtype)
    check_segments(data, reduce, lengths=torch.tensor([[1, 5], [0, 6]]), axis=1)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segment_reduce_inner_axis(device, reduce):
    data = made((4, 9, 3))
    data[2, 3, 1] = float("nan")
    lengths = torch.tensor([[2, 3, 4], [9, 0, 0], [0, 5, 4], [3, 3, 3]])
    check_segments(data, reduce, lengths=lengths, axis=1)
    offsets = torch.tensor([[0, 2, 5, 9], [0, 9, 9, 9], [0, 0, 5, 9], [0, 3, 6, 9]])
    check_segments(
        data.transpose(0, 2).contiguous().transpose(0, 2), reduce, offsets=offsets, axis=1
    )


def test_segment_reduce_bad_arguments(device):
    data = made((6, 2))
    for lengths in ([3, 4], [7, -1], [1, 2]):
        for place in ("cpu", "ocl"):
            with pytest.raises(RuntimeError):
                torch.segment_reduce(data.to(place), "sum", lengths=torch.tensor(lengths).to(place))
    with pytest.raises(NotImplementedError):
        torch.segment_reduce(data.long().to(device), "sum", lengths=torch.tensor([6]).to(device))
    assert torch.segment_reduce(
        data[:0].to(device), "sum", lengths=torch.zeros(3, dtype=torch.long).to(device)
    ).shape == (3, 2)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("offsets", [[0, 3, 2, 6], [3, 0], [0, 6, 6, 4]], ids=str)
def test_segments_of_negative_length(offsets, reduce):
    for place in ("cpu", "ocl"):
        for shape in ((6,), (6, 2)):
            with pytest.raises(RuntimeError, match="Expected segment_length >= 0"):
                where = torch.tensor(offsets, device=place)
                torch.segment_reduce(made(shape).to(place), reduce, offsets=where, unsafe=True)
                torch.ocl.synchronize()


# ---- hash_tensor ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [*FLOATS, *HALVES, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool],
    ids=str,
)
def test_hash_tensor(device, dtype):
    x = (made((37, 53)) * 20).to(dtype)
    for source in (x, x.t(), x[:, ::3], x[3:4]):
        for dim in ([], 0, 1):
            for keepdim in (False, True):
                wanted = torch.hash_tensor(source, dim, keepdim=keepdim)
                got = torch.hash_tensor(source.to(device), dim, keepdim=keepdim)
                assert got.dtype == torch.uint64
                assert torch.equal(got.cpu().view(torch.int64), wanted.view(torch.int64))


def test_hash_tensor_values(device):
    values = [0.0, -0.0, math.inf, -math.inf, 1e-45, -1e-40, 3e38, 1.1754942e-38]
    for dtype in FLOATS:
        for value in values:
            x = torch.tensor([value], dtype=dtype)
            assert torch.hash_tensor(x.to(device)).item() == torch.hash_tensor(x).item()
    out = torch.empty(5, dtype=torch.uint64, device=device)
    x = made((4, 5))
    torch.hash_tensor(x.to(device), 0, out=out)
    assert out.tolist() == torch.hash_tensor(x, 0).tolist()
    for bad in (torch.ones(0), torch.ones(3, dtype=torch.complex64)):
        with pytest.raises(Exception) as on_cpu:
            torch.hash_tensor(bad)
        with pytest.raises(type(on_cpu.value)):
            torch.hash_tensor(bad.to(device))


# ---- Weight norm ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm(device, dim, dtype):
    v, grad = made((5, 4, 7), 1).to(dtype), made((5, 4, 7), 2).to(dtype)
    shape = [1, 1, 1]
    shape[dim] = v.shape[dim]
    g = made(shape, 3).to(dtype)
    wide = [t.double() for t in (v, g, grad)]
    w, norms = torch._weight_norm_interface(v.to(device), g.to(device), dim)
    wanted, wanted_norms = torch._weight_norm_interface(*wide[:2], dim)
    assert_close(w.cpu(), wanted.to(dtype))
    assert_close(norms.cpu(), wanted_norms.to(norms.dtype))
    backward = torch.ops.aten._weight_norm_interface_backward
    got = backward(grad.to(device), v.to(device), g.to(device), norms, dim)
    wanted = backward(wide[2], *wide[:2], wanted_norms, dim)
    for a, e in zip(got, wanted, strict=True):
        assert_close(a.cpu(), e.to(dtype))
    with pytest.raises(RuntimeError):
        torch._weight_norm_interface(v.to(device), g.to(device), 1)


def test_weight_norm_module(device):
    grads = []
    for place in ("cpu", "ocl"):
        torch.manual_seed(0)
        linear = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(5, 3)).to(place)
        linear(made((4, 5)).to(place)).pow(2).sum().backward()
        grads.append([p.grad.cpu() for p in linear.parameters()])
    assert_close(grads[1], grads[0])


# ---- Attention's projections ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
def test_transform_bias_rescale_qkv(device, dtype):
    qkv, bias = made((2, 5, 48)).to(dtype), made((48,), 1).to(dtype)
    function = torch.ops.aten._transform_bias_rescale_qkv
    for heads in (1, 2, 8):
        wanted = function(qkv.float(), bias.float(), heads)
        for source in (qkv, qkv.transpose(0, 1).contiguous().transpose(0, 1)):
            got = function(source.to(device), bias.to(device), heads)
            for a, e in zip(got, wanted, strict=True):
                assert a.stride() == e.stride()
                tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype in HALVES else {}
                assert_close(a.cpu(), e.to(dtype), **tolerance)
    with pytest.raises(RuntimeError):
        function(qkv.to(device), bias.to(device), 5)
