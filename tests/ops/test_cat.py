"""cat as one launch, against CPU torch: layouts, dtypes, numbers and sizes of parts."""

import os
import random
import subprocess
import sys

import pytest
import torch

from tests.as_gpu import run_as_gpu

REAL = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.uint8, torch.bool, torch.uint16,
]  # fmt: skip
DTYPES = [*REAL, torch.complex64, torch.complex128, torch.float8_e4m3fn]


def numbers(shape, dtype):
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.float64).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "channels last": lambda x: (
        x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    ),
    "with gaps": lambda x: torch.stack([x, x], -1)[..., 1],
    "expanded": lambda x: x[:1].expand(x.shape),
    "backed by more": lambda x: torch.stack([x, x, x])[1],
}


def launches(device, call):
    call()
    torch.ocl.reset_launch_count()
    call()
    return torch.ocl.launch_count()


def check(device, tensors, dim):
    want = torch.cat(tensors, dim)
    got = torch.cat([move(t, device) for t in tensors], dim)
    assert got.dtype == want.dtype and got.stride() == want.stride()
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0, equal_nan=True)


def move(x, device):
    """To the device with the same strides."""
    if x.numel() == 0:
        return x.to(device)
    reach = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    memory = torch.as_strided(x, (reach,), (1,)).to(device)
    return memory.as_strided(x.shape, x.stride())


@pytest.mark.parametrize("layout", [*LAYOUTS, "each its own"])
@pytest.mark.parametrize("dims", [1, 2, 3, 4, 6])
def test_layouts(device, dims, layout):
    draw = random.Random(dims)
    torch.manual_seed(dims)
    for dim in range(dims):
        shape = [draw.choice([1, 2, 3, 18] if dims < 4 else [2, 3]) for _ in range(dims)]
        tensors = []
        for _ in range(draw.choice([2, 5, 17])):
            shape[dim] = draw.choice([1, 2, 20, 0])
            name = draw.choice(list(LAYOUTS)) if layout == "each its own" else layout
            x = numbers(shape, torch.float32)
            tensors.append(LAYOUTS[name](x) if x.numel() else x)
        check(device, tensors, dim)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(device, dtype):
    check(device, [numbers((3, n, 5), dtype) for n in (2, 1, 40)], 1)


@pytest.mark.parametrize("dtype", REAL)
def test_mixed_dtypes_are_one_launch(device, dtype):
    tensors = [numbers((2, 30), other) for other in (dtype, *REAL)]
    for first, second in zip(tensors, tensors[1:], strict=False):
        if torch.uint16 not in (first.dtype, second.dtype):  # which torch promotes with few others
            check(device, [first, second, first], 0)
    pair = [tensors[0].to(device), numbers((2, 30), torch.float32).to(device)]
    if dtype != torch.uint16:
        assert launches(device, lambda: torch.cat(pair, 1)) == 1


def test_numbers_at_the_limits_of_their_dtypes(device):
    whole = torch.tensor([2**63 - 1, -(2**63), 2**24 + 1, 0])
    real = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    for to in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        check(device, [whole, real.to(to), whole.int(), whole > 0], 0)


def test_results_of_other_dtypes_and_layouts(device):
    parts = [numbers((3, n), torch.float32) for n in (4, 1, 6)]

    def call(*tensors, out):
        return torch.cat(tensors, 1, out=out.to(tensors[0].device))

    for out in (torch.empty(3, 11, dtype=torch.float64), torch.empty(11, 3).t()):
        got = call(*(p.to(device) for p in parts), out=out)
        assert torch.equal(got.cpu(), call(*parts, out=out))
    wide = torch.full((3, 22), 7.0, device=device)
    torch.cat([p.to(device) for p in parts], 1, out=wide[:, ::2])
    assert torch.equal(wide[:, ::2].cpu(), torch.cat(parts, 1)) and bool((wide[:, 1::2] == 7).all())


@pytest.mark.parametrize("count", [1, 2, 8, 16, 17, 40])
def test_launches(device, count):
    parts = [torch.full((3, 4), float(i), device=device) for i in range(count)]
    for dim in (0, 1):
        assert launches(device, lambda dim=dim: torch.cat(parts, dim)) == -(-count // 16)
    assert launches(device, lambda: torch.stack(parts, 1)) == -(-count // 16)
    nothing = [torch.empty(0, device=device), torch.empty(0, 4, device=device)]
    assert launches(device, lambda: torch.cat(nothing + parts)) == -(-count // 16)


@pytest.mark.parametrize("size", [1 << 17, 1 << 18, 1 << 20])
def test_large_parts(device, size):
    parts = [torch.arange(size + i, dtype=torch.int32) for i in range(3)]
    check(device, parts, 0)
    check(device, [p[:size].view(-1, 64) for p in parts], 1)


def test_more_buffers_than_a_kernel_takes(device):
    torch.ocl.empty_cache()
    parts = [torch.full((3 << 20,), i, dtype=torch.uint8, device=device) for i in range(12)]
    got = torch.cat([p[:100] for p in parts])
    assert torch.equal(got.cpu(), torch.arange(12).repeat_interleave(100).to(torch.uint8))


def test_buffers_instead_of_addresses(device):
    """Devices without system SVM give kernels buffers and offsets."""
    without = os.environ.get("TORCH_OCL_WITHOUT", "")
    if "system_svm" in without:
        return
    command = [sys.executable, "-m", "pytest", "-q", __file__, "-m", "not as_gpu"]
    features = ",".join(filter(None, [without, "system_svm"]))
    environment = {**os.environ, "TORCH_OCL_WITHOUT": features}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-1000:]


@pytest.mark.slow
@pytest.mark.as_gpu
def test_as_a_gpu():
    """Everything above with the kernels that GPUs get."""
    run_as_gpu(__file__)
