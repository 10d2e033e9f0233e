"""Torchvision's ops on the device, beside the same ops written with PyTorch's on the CPU."""

import contextlib
import os
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close
from torchvision import ops

from tests.as_gpu import run_as_gpu
from tests.ops import vision_reference as reference

FLOATS = (torch.float32, torch.float64, torch.float16)
TOLERANCE = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
    torch.float64: {"rtol": 1e-9, "atol": 1e-9},
    torch.float16: {"rtol": 2e-2, "atol": 2e-2},
}


@pytest.fixture(autouse=True)
def _nothing_runs_on_the_host():
    torch.ocl.reset_fallback_counts()
    torch.ocl.reset_host_staged_counts()
    yield
    assert not torch.ocl.fallback_counts() and not torch.ocl.host_staged_counts()


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_boxes(count, size=100.0, seed=0):
    corner = torch.rand(count, 2, generator=generator(seed)) * size
    return torch.cat([corner, corner + torch.rand(count, 2, generator=generator(seed + 1)) * 20], 1)


# ---- nms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 64, 100, 1000])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
def test_nms(count, threshold):
    boxes, scores = random_boxes(count), torch.rand(count, generator=generator(5))
    keep = ops.nms(boxes.ocl(), scores.ocl(), threshold)
    assert keep.dtype == torch.int64 and keep.device.type == "ocl"
    assert keep.untyped_storage().nbytes() == 8 * len(keep)
    assert keep.tolist() == reference.nms(boxes, scores, threshold).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_nms_dtypes(dtype):
    boxes, scores = random_boxes(200).to(dtype), torch.rand(200, generator=generator(5)).to(dtype)
    # Half types are computed in float, as with CUDA.
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    wanted = reference.nms(boxes.to(wide), scores.to(wide), 0.25)
    assert ops.nms(boxes.ocl(), scores.ocl(), 0.25).tolist() == wanted.tolist()


def test_nms_at_the_threshold():
    """Overlaps are floats and the threshold is a double: just above, equal, just below."""
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 7], [0, 0, 10, 4]])
    scores = torch.tensor([0.9, 0.8, 0.7])
    overlap = float(torch.tensor(70.0) / torch.tensor(100.0))
    for threshold in (overlap, 0.7, overlap - 1e-12, overlap + 1e-12, 0.4, 0.5714285714):
        wanted = reference.nms(boxes, scores, threshold)
        assert ops.nms(boxes.ocl(), scores.ocl(), threshold).tolist() == wanted.tolist()


def test_nms_of_equal_scores():
    boxes = random_boxes(300, 30.0)
    scores = torch.randint(0, 4, (300,), generator=generator(7)).float()
    wanted = reference.nms(boxes, scores, 0.4)
    assert ops.nms(boxes.ocl(), scores.ocl(), 0.4).tolist() == wanted.tolist()


def test_nms_of_nan_and_infinite_boxes():
    boxes = random_boxes(60, 20.0)
    for i, value in ((3, "nan"), (17, "inf"), (29, "-inf"), (44, "nan")):
        boxes[i, i % 4] = float(value)
    boxes[50:52] = float("nan")
    scores = torch.rand(60, generator=generator(5))
    scores[9] = float("nan")
    wanted = reference.nms(boxes, scores, 0.3)
    assert ops.nms(boxes.ocl(), scores.ocl(), 0.3).tolist() == wanted.tolist()


def test_nms_of_boxes_without_area():
    boxes = torch.tensor([[5.0, 5, 5, 5], [5, 5, 5, 5], [8, 8, 2, 2], [0, 0, 9, 9]])
    scores = torch.tensor([0.1, 0.2, 0.3, 0.4])
    wanted = reference.nms(boxes, scores, 0.5)
    assert ops.nms(boxes.ocl(), scores.ocl(), 0.5).tolist() == wanted.tolist()


def test_nms_of_nothing():
    keep = ops.nms(torch.empty(0, 4, device="ocl"), torch.empty(0, device="ocl"), 0.5)
    assert keep.shape == (0,) and keep.dtype == torch.int64 and keep.device.type == "ocl"


def test_nms_of_views():
    both = torch.cat([random_boxes(90), torch.rand(90, 3, generator=generator(5))], 1)
    on_device = both.ocl()
    wanted = reference.nms(both[5::2, :4], both[5::2, 5], 0.2)
    assert ops.nms(on_device[5::2, :4], on_device[5::2, 5], 0.2).tolist() == wanted.tolist()


def test_nms_of_many_boxes():
    boxes, scores = random_boxes(10_000, 1000.0), torch.rand(10_000, generator=generator(5))
    launches = torch.ocl.launch_count()
    keep = ops.nms(boxes.ocl(), scores.ocl(), 0.3)
    assert torch.ocl.launch_count() - launches < 40
    assert keep.tolist() == reference.nms(boxes, scores, 0.3).tolist()


@pytest.mark.slow
def test_nms_in_parts():
    """The matrix of 40,000 boxes has 200 MB, and is made in parts."""
    boxes, scores = random_boxes(40_000, 3000.0), torch.rand(40_000, generator=generator(5))
    keep = ops.nms(boxes.ocl(), scores.ocl(), 0.1)
    assert keep.tolist() == reference.nms(boxes, scores, 0.1).tolist()


def test_batched_nms():
    boxes, scores = random_boxes(500), torch.rand(500, generator=generator(5))
    classes = torch.randint(0, 5, (500,), generator=generator(9))
    keep = ops.batched_nms(boxes.ocl(), scores.ocl(), classes.ocl(), 0.3).cpu()
    wanted = torch.cat(
        [
            p[reference.nms(boxes[p], scores[p], 0.3)]
            for p in map(lambda c: (classes == c).nonzero()[:, 0], range(5))
        ]
    )
    assert keep.tolist() == wanted[scores[wanted].argsort(descending=True)].tolist()


def test_nms_errors():
    boxes, scores = random_boxes(4).ocl(), torch.rand(4).ocl()
    with pytest.raises(RuntimeError, match="boxes should be a 2d tensor, got 1D"):
        ops.nms(boxes[0], scores, 0.5)
    with pytest.raises(RuntimeError, match="4 elements in dimension 1, got 3"):
        ops.nms(boxes[:, :3], scores, 0.5)
    with pytest.raises(RuntimeError, match="scores should be a 1d tensor, got 2D"):
        ops.nms(boxes, boxes, 0.5)
    with pytest.raises(RuntimeError, match="same number of elements in dimension 0, got 4 and 3"):
        ops.nms(boxes, scores[:3], 0.5)
    with pytest.raises(RuntimeError, match="dets should have the same type as scores"):
        ops.nms(boxes, scores.double(), 0.5)
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        ops.nms(boxes.int(), scores.int(), 0.5)


# ---- Poolings of boxes --------------------------------------------------------------------------

BOXES = torch.tensor(
    [
        [0, 0, 0, 8, 6],
        [1, 2.3, 1.7, 5.1, 9.9],
        [0, -3.1, -4.2, 4, 3],  # partly outside
        [1, 6, 5, 30, 40],
        [0, 4, 4, 4, 4],  # a point
        [1, 7, 6, 3, 2],  # corners swapped
        [0, 50, 50, 60, 60],  # outside
        [1, 0.5, 0.5, 11.5, 9.5],
    ]
)
POOLED = (3, 2)

#: name -> (torchvision's function, the reference, channels)
CASES = {
    "roi_align": (
        lambda x, b, s: ops.roi_align(x, b, POOLED, s),
        lambda x, b, s: reference.roi_align(x, b, s, POOLED),
        5,
    ),
    "roi_align, aligned": (
        lambda x, b, s: ops.roi_align(x, b, POOLED, s, aligned=True),
        lambda x, b, s: reference.roi_align(x, b, s, POOLED, aligned=True),
        8,
    ),
    "roi_align, 2 samples": (
        lambda x, b, s: ops.roi_align(x, b, POOLED, s, 2),
        lambda x, b, s: reference.roi_align(x, b, s, POOLED, 2),
        4,
    ),
    "roi_align, 3 samples, aligned": (
        lambda x, b, s: ops.roi_align(x, b, POOLED, s, 3, True),
        lambda x, b, s: reference.roi_align(x, b, s, POOLED, 3, True),
        6,
    ),
    "roi_pool": (
        lambda x, b, s: ops.roi_pool(x, b, POOLED, s),
        lambda x, b, s: reference.roi_pool(x, b, s, POOLED),
        5,
    ),
    "ps_roi_align": (
        lambda x, b, s: ops.ps_roi_align(x, b, POOLED, s),
        lambda x, b, s: reference.ps_roi_align(x, b, s, POOLED),
        12,
    ),
    "ps_roi_align, 2 samples": (
        lambda x, b, s: ops.ps_roi_align(x, b, POOLED, s, 2),
        lambda x, b, s: reference.ps_roi_align(x, b, s, POOLED, 2),
        18,
    ),
    "ps_roi_pool": (
        lambda x, b, s: ops.ps_roi_pool(x, b, POOLED, s),
        lambda x, b, s: reference.ps_roi_pool(x, b, s, POOLED),
        12,
    ),
}


def images(channels, height=10, width=12, count=2):
    return torch.randn(count, channels, height, width, generator=generator(3))


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.37])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CASES)
def test_pooling(name, dtype, scale):
    function, expected, channels = CASES[name]
    x, boxes = images(channels).to(dtype), BOXES.to(dtype)
    wanted = expected(x.double(), boxes.double(), scale).to(dtype)
    got = function(x.ocl(), boxes.ocl(), scale)
    assert got.dtype == dtype
    assert_close(got.cpu(), wanted, equal_nan=True, **TOLERANCE[dtype])


def gradients(name, dtype, x, boxes, scale):
    """Gradients of the device and of the reference. Upstream's ps_roi_pool takes windows for
    gradients that it does not take for results: its reference stands in
    test_gradient_of_ps_roi_pool."""
    function, expected, _ = CASES[name]
    on_device = x.ocl().requires_grad_()
    out = function(on_device, boxes.ocl(), scale)
    weight = torch.randn(out.shape, generator=generator(8))
    out.backward(weight.to(dtype).ocl())
    wide = x.double().requires_grad_()
    expected(wide, boxes.double(), scale).backward(weight.to(dtype).double())
    return on_device.grad.cpu(), wide.grad.to(dtype)


DIFFERENTIABLE = [name for name in CASES if name != "ps_roi_pool"]
#: Boxes without a point, whose gradient would be 0 / 0.
PROPER = BOXES[[0, 1, 2, 3, 6, 7]]


@pytest.mark.parametrize("fixed_order", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_of_pooling(name, dtype, fixed_order):
    x = images(CASES[name][2]).to(dtype)
    with deterministic() if fixed_order else contextlib.nullcontext():
        got, wanted = gradients(name, dtype, x, PROPER.to(dtype), 0.5)
    assert_close(got, wanted, **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradient_of_ps_roi_pool(dtype):
    x, boxes = images(12).to(dtype), PROPER.to(dtype)
    on_device = x.ocl().requires_grad_()
    out = ops.ps_roi_pool(on_device, boxes.ocl(), POOLED, 0.5)
    weight = torch.randn(out.shape, generator=generator(8)).to(dtype)
    out.backward(weight.ocl())
    wanted = torch.zeros(2, 2, *POOLED, 10, 12, dtype=torch.float64)
    for n, box in enumerate(boxes):
        ys, xs = reference.windows(box, 0.5, POOLED, 0, (10, 12))
        for i, (a, b) in enumerate(ys):
            for j, (c, d) in enumerate(xs):
                if b > a and d > c:
                    each = weight[n, :, i, j].double() / ((b - a) * (d - c))
                    wanted[int(box[0]), :, i, j, a:b, c:d] += each[:, None, None]
    assert_close(on_device.grad.cpu(), wanted.flatten(1, 3).to(dtype), **TOLERANCE[dtype])


@pytest.mark.parametrize("name", CASES)
def test_pooling_of_nothing(name):
    function, _, channels = CASES[name]
    x = images(channels).ocl().requires_grad_()
    out = function(x, torch.empty(0, 5, device="ocl"), 1.0)
    assert out.shape[0] == 0 and out.shape[2:] == POOLED
    out.sum().backward()
    assert not x.grad.any()
    no_images = torch.empty(0, channels, 10, 12, device="ocl")
    assert function(no_images, torch.empty(0, 5, device="ocl"), 1.0).shape == out.shape


@pytest.mark.parametrize("name", CASES)
def test_pooling_of_views(name):
    function, expected, channels = CASES[name]
    x = images(channels * 2, 12, 12).contiguous(memory_format=torch.channels_last)
    part, boxes = (slice(None), slice(channels, None), slice(1, 11)), BOXES[1:]
    got = function(x.ocl()[part], BOXES.ocl().mT.contiguous().mT[1:], 0.5)
    wanted = expected(x[part].double(), boxes.double(), 0.5).float()
    assert_close(got.cpu(), wanted, equal_nan=True, **TOLERANCE[torch.float32])


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_of_views(name):
    function, expected, channels = CASES[name]
    on_device, wide = images(channels).ocl().requires_grad_(), images(channels).double()
    wide.requires_grad_()
    out = function(on_device, PROPER.ocl(), 0.5)
    weight = torch.randn(out.mT.shape, generator=generator(8))
    out.backward(weight.ocl().mT)
    expected(wide, PROPER.double(), 0.5).backward(weight.double().mT)
    assert_close(on_device.grad.cpu(), wide.grad.float(), **TOLERANCE[torch.float32])


@pytest.mark.parametrize("name", CASES)
def test_nan_boxes(name):
    """They lie outside of every image."""
    function, expected, channels = CASES[name]
    boxes = BOXES[:1].repeat(5, 1)
    boxes[range(4), range(1, 5)] = float("nan")
    boxes[4, 1:] = float("nan")
    got = function(images(channels).ocl(), boxes.ocl(), 1.0).cpu()
    wanted = expected(images(channels).double(), boxes.double(), 1.0).float()
    assert_close(got, wanted, equal_nan=True, **TOLERANCE[torch.float32])


def test_huge_boxes():
    """The samples outside of an image are not gone through."""
    boxes = torch.tensor([[0.0, -1e9, -1e9, 1e9, 1e9], [0, -300, -200, 400, 300]])
    boxes = torch.cat([boxes, torch.tensor([[0.0, 1, 1, float("inf"), 5]])])
    x = images(4)
    out = ops.roi_align(x.ocl(), boxes.ocl(), 2, 1.0).cpu()
    wanted = reference.roi_align(x.double(), boxes[1:2].double(), 1.0, (2, 2))
    assert_close(out[1:2], wanted.float(), rtol=1e-3, atol=1e-6)
    assert out[2].abs().max() == 0


@pytest.mark.parametrize("name", CASES)
def test_a_box_of_no_image(name):
    function, _, channels = CASES[name]
    for number in (2.0, -1.0, float("nan")):
        boxes = torch.tensor([[number, 0, 0, 4, 4]]).ocl()
        function(images(channels).ocl(), boxes, 1.0)
        with pytest.raises(IndexError, match=name.split(",")[0]):
            torch.ocl.synchronize()


@pytest.mark.parametrize("name", CASES)
def test_pooling_errors(name):
    function, _, channels = CASES[name]
    x, boxes = images(channels).ocl(), BOXES.ocl()
    with pytest.raises(RuntimeError, match="to have the same type"):
        function(x, boxes.double(), 1.0)
    with pytest.raises(NotImplementedError, match="not implemented for 'BFloat16'"):
        function(x.bfloat16(), boxes.bfloat16(), 1.0)
    if name.startswith("ps_"):
        with pytest.raises(RuntimeError, match="must be a multiple of pooling height"):
            function(x[:, 1:], boxes, 1.0)


def test_positions_of_maxima():
    x = images(3)
    out, where = torch.ops.torchvision.roi_pool(x.ocl(), BOXES.ocl(), 1.0, *POOLED)
    assert where.dtype == torch.int32
    wanted, where = reference.roi_pool(x, BOXES, 1.0, POOLED), where.cpu().long()
    planes = x.flatten(2)[BOXES[:, 0].long()]
    got = planes.gather(2, where.clamp(min=0).flatten(2)).view_as(wanted)
    assert_close(torch.where(where < 0, 0, got), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["ps_roi_align", "ps_roi_pool"])
def test_channel_mapping(name):
    arguments = (2,) if name == "ps_roi_align" else ()
    op = getattr(torch.ops.torchvision, name)
    _, mapping = op(images(12).ocl(), BOXES.ocl(), 1.0, *POOLED, *arguments)
    wanted = torch.arange(12, dtype=torch.int32).view(1, 2, *POOLED).expand(len(BOXES), -1, -1, -1)
    assert mapping.cpu().equal(wanted.contiguous())


@pytest.mark.parametrize("name", CASES)
def test_autocast_of_pooling(name):
    function, expected, channels = CASES[name]
    x = images(channels).half()
    with torch.autocast("ocl", torch.float16):
        out = function(x.ocl().requires_grad_(), BOXES.ocl(), 0.5)
    assert out.dtype == torch.float16
    wanted = expected(x.double(), BOXES.double(), 0.5).half()
    assert_close(out.detach().cpu(), wanted, equal_nan=True, **TOLERANCE[torch.float16])


# ---- Deformable convolutions --------------------------------------------------------------------

#: input, output channels, kernel, stride, padding, dilation, groups, groups of offsets, with a mask
CONVOLUTIONS = {
    "plain": ((2, 6, 8, 9), 4, (3, 3), (1, 1), (1, 1), (1, 1), 1, 1, False),
    "mask": ((2, 6, 8, 9), 4, (3, 3), (1, 1), (1, 1), (1, 1), 1, 1, True),
    "groups": ((3, 6, 7, 5), 4, (3, 2), (2, 1), (2, 0), (1, 2), 2, 3, True),
    "one tap": ((1, 4, 5, 5), 3, (1, 1), (1, 1), (0, 0), (1, 1), 1, 2, False),
    "strides": ((2, 12, 9, 9), 6, (2, 3), (3, 2), (1, 2), (2, 1), 3, 1, True),
}


def convolution(name, dtype, device):
    """torchvision's arguments, of leaves."""
    shape, channels, kernel, stride, padding, dilation, groups, sets, masked = CONVOLUTIONS[name]
    out = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, p, d, k, s in zip(shape[2:], padding, dilation, kernel, stride, strict=True)
    ]
    taps, rng = sets * kernel[0] * kernel[1], generator(11)

    def leaf(*sizes, scale=1.0):
        values = torch.randn(sizes, generator=rng) * scale
        return values.to(dtype).to(device).requires_grad_()

    leaves = {
        "input": leaf(*shape),
        "offset": leaf(shape[0], 2 * taps, *out, scale=2.0),
        "weight": leaf(channels, shape[1] // groups, *kernel, scale=0.3),
        "bias": leaf(channels),
    }
    if masked:
        leaves["mask"] = leaf(shape[0], taps, *out)
    return leaves, {"stride": stride, "padding": padding, "dilation": dilation}


def run_reference(name, dtype):
    leaves, sizes = convolution(name, dtype, "cpu")
    leaves = {key: leaf.detach().double().requires_grad_() for key, leaf in leaves.items()}
    return leaves, reference.deform_conv2d(**{"mask": None} | leaves, **sizes)


@pytest.mark.parametrize("fixed_order", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_deform_conv2d(name, dtype, fixed_order):
    leaves, sizes = convolution(name, dtype, "ocl")
    wide, wanted = run_reference(name, dtype)
    tolerance = {"rtol": 5e-2, "atol": 5e-2} if dtype == torch.float16 else TOLERANCE[dtype]
    with deterministic() if fixed_order else contextlib.nullcontext():
        out = ops.deform_conv2d(**leaves, **sizes)
        weight = torch.randn(out.shape, generator=generator(8)).to(dtype)
        out.backward(weight.ocl())
    wanted.backward(weight.double())
    assert_close(out.detach().cpu(), wanted.detach().to(dtype), **tolerance)
    for key, leaf in leaves.items():
        wanted = wide[key].grad.to(dtype)
        assert_close(leaf.grad.cpu(), wanted, msg=lambda text, k=key: k + text, **tolerance)


def test_deform_conv2d_of_views():
    leaves, sizes = convolution("mask", torch.float32, "ocl")
    views = {
        key: leaf.detach().mT.contiguous().mT if leaf.dim() == 4 else leaf
        for key, leaf in leaves.items()
    }
    wanted = run_reference("mask", torch.float32)[1].detach().float()
    assert_close(ops.deform_conv2d(**views, **sizes).detach().cpu(), wanted, rtol=1e-4, atol=1e-4)


def test_deform_conv2d_of_nothing():
    leaves, sizes = convolution("plain", torch.float32, "ocl")
    leaves["input"], leaves["offset"] = leaves["input"][:0], leaves["offset"][:0]
    out = ops.deform_conv2d(**leaves, **sizes)
    assert out.shape == (0, 4, 8, 9)
    out.sum().backward()


def test_deform_conv2d_with_nan_offsets():
    leaves, sizes = convolution("plain", torch.float32, "ocl")
    with torch.no_grad():
        leaves["offset"].fill_(float("nan"))
    out = ops.deform_conv2d(**leaves, **sizes).detach().cpu()
    assert_close(out, leaves["bias"].detach().cpu()[:, None, None].expand_as(out))


def test_deform_conv2d_errors():
    leaves, sizes = convolution("mask", torch.float32, "ocl")
    with pytest.raises(RuntimeError, match="mask.shape.1. is not valid: got: 8 expected: 9"):
        ops.deform_conv2d(**leaves | {"mask": leaves["mask"][:, 1:]}, **sizes)
    with pytest.raises(RuntimeError, match=r"offset output dims: \(8, 9\) - computed"):
        ops.deform_conv2d(**leaves, **sizes | {"padding": (0, 1)})
    with pytest.raises(RuntimeError, match="expected scalar type"):
        ops.deform_conv2d(**leaves | {"weight": leaves["weight"].double()}, **sizes)


def test_autocast_of_deform_conv2d():
    leaves, sizes = convolution("mask", torch.float16, "ocl")
    with torch.autocast("ocl", torch.float16):
        out = ops.deform_conv2d(**leaves, **sizes)
    assert out.dtype == torch.float16
    wanted = run_reference("mask", torch.float16)[1].detach().half()
    assert_close(out.detach().cpu(), wanted, **TOLERANCE[torch.float16])


# ---- Registration -------------------------------------------------------------------------------


def test_fake_tensors_and_compile():
    compiled = torch.compile(lambda x, b: ops.roi_align(x, b, 2) + 1, backend="eager")
    x = images(3).ocl()
    assert_close(compiled(x, BOXES.ocl()).cpu(), ops.roi_align(x, BOXES.ocl(), 2).cpu() + 1)


def test_import_starts_nothing():
    """Nor does `import torch` import torchvision."""
    code = (
        "import sys, torch; assert 'torchvision' not in sys.modules; import torchvision; "
        "assert not torch.ocl.is_initialized(); "
        "print(torch._C._dispatch_has_kernel_for_dispatch_key('torchvision::nms', 'PrivateUse1'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def test_torchvision_was_there_first():
    """As in a process that has torchvision's library, and gets torch_ocl late."""
    code = """
import sys, types, torch
from torch.library import Library
extension = types.ModuleType("torchvision.extension")
extension._has_ops = lambda: False
sys.modules["torchvision"] = types.ModuleType("torchvision")
sys.modules["torchvision.extension"] = extension
import torch_ocl
assert extension._has_ops()
x = torch.tensor([[0.0, 0, 1, 1]], device="ocl")
print(torch.ops.torchvision.nms(x, x[:, 0], 0.5).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert done.stdout.strip() == "[0]", done.stderr


@pytest.mark.slow
@pytest.mark.as_gpu
def test_as_a_gpu():
    """Everything above with the kernels that GPUs get."""
    run_as_gpu(__file__)
