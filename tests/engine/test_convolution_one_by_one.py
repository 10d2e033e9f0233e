"""Convolutions with windows of one element in planes by AVX-512 (kernels/conv/one_by_one.cl), where
the processor has it; by the next of the list elsewhere."""

import pytest
import torch
from torch.nn import functional

import torch_ocl
from tests.as_gpu import takes_gpu_kernels

# Images, channels of the input, of the result, and the plane.
SHAPES = [
    (1, 16, 24, (8, 8)),
    (2, 33, 13, (7, 7)),
    (1, 5, 12, (1, 32)),
    (3, 96, 50, (13, 5)),
    (1, 1100, 40, (6, 6)),
    (2, 16, 12, (33, 1)),
    (1, 1, 30, (40, 40)),
    (1, 12, 12, (2, 3, 11)),
]
FUNCTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def has_avx512():
    return torch.ocl.get_device_properties(0).has_avx512 and not takes_gpu_kernels()


def operands(images, inputs, outputs, plane):
    torch.manual_seed(0)
    ones = (1,) * len(plane)
    shapes = (images, inputs, *plane), (outputs, inputs, *ones), (outputs,)
    return [torch.randn(shape) for shape in shapes]


def check(got, expected, of_cpu):
    """The error against double precision is CPU torch's or little more."""
    error, usual = ((x.double() - expected).abs().max().item() for x in (got.cpu(), of_cpu))
    assert error <= 2 * usual + 1e-6


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_and_gradients(shape, with_bias):
    x, weight, bias = operands(*shape)
    function = FUNCTIONS[len(shape[-1])]
    bias = bias if with_bias else None

    def run(device, dtype=torch.float32):
        leaf = x.to(device, dtype).requires_grad_()
        out = function(leaf, weight.to(device, dtype), None if bias is None else bias.to(out_of))
        return out, torch.autograd.grad(out, leaf, out.detach())[0]

    results = []
    for device, dtype in (("ocl", torch.float32), ("cpu", torch.float64), ("cpu", torch.float32)):
        out_of = torch.empty(0, device=device, dtype=dtype)
        with torch_ocl.testing.dispatches() as lines:
            results.append(run(device, dtype))
        if device == "ocl":
            assert ("one_by_one runs" in "\n".join(lines)) == has_avx512()
    for got, expected, of_cpu in zip(*results, strict=True):
        check(got.detach(), expected.detach(), of_cpu.detach())


def test_operands_that_lie_otherwise():
    """Parts of channels and of images, a transposed weight, and NaN and infinities."""
    x, weight, _ = operands(4, 40, 24, (9, 9))
    weight = weight.flatten(1).t().contiguous().t()[..., None, None]
    x[0, 3, 2, 2], x[2, 5, 1, 1] = float("nan"), float("inf")
    parts = {
        "channels": lambda x, w: (x[:, 8:28], w[:, 8:28]),
        "images": lambda x, w: (x[::2], w),
        "rows": lambda x, w: (x, w[3:20]),
        "lines apart": lambda x, w: (x[:, :, :, 1:], w),
        "transposed": lambda x, w: (x.transpose(2, 3), w),
        "expanded": lambda x, w: (x[:1].expand(3, -1, -1, -1), w),
    }
    for part in parts.values():
        got = functional.conv2d(*part(x.to("ocl"), weight.to("ocl")))
        expected = functional.conv2d(*part(x, weight))
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_what_is_refused():
    """Other windows, layouts, dtypes and sizes go to the next of the list."""
    image = torch.randn(1, 16, 8, 8, device="ocl")
    weight = torch.randn(16, 16, 1, 1, device="ocl")
    cases = {
        "a stride": lambda: functional.conv2d(image, weight, stride=2),
        "padding": lambda: functional.conv2d(image, weight, padding=1),
        "groups": lambda: functional.conv2d(image, weight[:, :8].contiguous(), groups=2),
        "channels last": lambda: functional.conv2d(
            image.contiguous(memory_format=torch.channels_last), weight
        ),
        "small planes": lambda: functional.conv2d(image[..., :3, :3].contiguous(), weight),
        "few channels": lambda: functional.conv2d(image, weight[:8].contiguous()),
        "double": lambda: functional.conv2d(image.double(), weight.double()),
    }
    for name, case in cases.items():
        with torch_ocl.testing.dispatches() as lines:
            case()
        assert "one_by_one runs" not in "\n".join(lines), name


@pytest.mark.parametrize("shape", [(1, 24, 30, (7, 7)), (2, 300, 12, (5, 8))], ids=str)
def test_epilogues(shape):
    """Compiled, what follows is applied once where tiles reach back to others' positions."""
    x, weight, bias = (t.to("ocl") for t in operands(*shape))
    other = torch.randn(shape[0], shape[2], *shape[3], device="ocl")

    def function(x, weight, bias, other):
        out = functional.conv2d(x, weight, bias)
        return torch.nn.functional.silu(out) + other, out.relu_()

    expected = function(x, weight, bias, other)
    with torch.no_grad():
        got = torch.compile(function, fullgraph=True)(x, weight, bias, other)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    other += 1
    relu = torch.compile(lambda x, w, b: functional.conv2d(x, w, b).clamp(0, 6) * 2 - 1)
    expected = functional.conv2d(x, weight, bias).clamp(0, 6) * 2 - 1
    torch.testing.assert_close(relu(x, weight, bias), expected, rtol=1e-5, atol=1e-5)
