"""Cases of networks: convolutions, pooling, normalisation, recurrent cells, and whole models."""

import torch
from torch import nn
from torch.nn import functional

from benchmarks.cases.models import Decoder, Residual, resnet18
from benchmarks.harness.case import add, tensors, wrapped

LOOSE = {"rtol": 1e-3, "atol": 1e-2}  # long sums in another order


def formatted(tensor, last):
    return tensor.contiguous(memory_format=torch.channels_last) if last else tensor


def flops_of(x, weight, out):
    """The operations of a convolution or a transposed one: each weight meets each position of the
    smaller image."""
    positions = min(x[-1] * x[-2], out[-1] * out[-2])
    return 2.0 * x[0] * positions * torch.Size(weight).numel()


def convolution(name, x_shape, weight_shape, function=functional.conv2d, **arguments):
    out_shape = function(
        torch.empty(x_shape, device="meta"), torch.empty(weight_shape, device="meta"), **arguments
    ).shape
    moved = 4 * sum(torch.Size(s).numel() for s in (x_shape, weight_shape, out_shape))
    flops = flops_of(x_shape, weight_shape, out_shape)

    for last in (False, True):

        def operands(device, last=last):
            x, weight, cotangent = tensors(device, x_shape, weight_shape, out_shape)
            return [formatted(t, last) for t in (x, weight, cotangent)]

        def forward(device, operands=operands):
            x, weight, _ = operands(device)
            return lambda: function(x, weight, **arguments)

        def backward(device, operands=operands):
            x, weight, cotangent = operands(device)
            leaves = [t.requires_grad_() for t in (x, weight)]
            out = function(*leaves, **arguments)
            return lambda: torch.autograd.grad(out, leaves, cotangent, retain_graph=True)

        suffix = " channels last" if last else ""
        add(f"{name}{suffix}", "convolution", forward, flops=flops, bytes=moved, tolerance=LOOSE)
        add(
            f"{name} backward{suffix}",
            "convolution",
            backward,
            flops=2 * flops,
            bytes=2 * moved,
            tolerance={"rtol": 1e-3, "atol": 1e-1},
        )


convolution("conv 3x3 16x64x56x56", (16, 64, 56, 56), (64, 64, 3, 3), padding=1)
convolution("conv 1x1 16x256x28x28 to 64", (16, 256, 28, 28), (64, 256, 1, 1))
convolution("depthwise 3x3 16x128x28x28", (16, 128, 28, 28), (128, 1, 3, 3), padding=1, groups=128)
convolution("conv 7x7 stride 2 8x3x224x224", (8, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)
convolution(
    "transposed 2x2 8x128x28x28 to 64",
    (8, 128, 28, 28),
    (128, 64, 2, 2),
    functional.conv_transpose2d,
    stride=2,
)


def step_of(make_model, x_shape, classes=None, optimiser=torch.optim.SGD, last=False):
    """A training step of a network; without `classes` the loss is the mean square."""

    def make(device):
        torch.manual_seed(0)
        model = make_model().to(device)
        (x,) = tensors(device, x_shape)
        if last:
            model, x = model.to(memory_format=torch.channels_last), formatted(x, last)
        labels = None if classes is None else (torch.arange(x_shape[0]) % classes).to(device)
        steps = optimiser(model.parameters(), lr=1e-4)
        run = wrapped(model)

        def call():
            steps.zero_grad()
            out = run(x)
            out = out[0] if isinstance(out, tuple) else out
            loss = out.square().mean() if labels is None else functional.cross_entropy(out, labels)
            loss.backward()
            steps.step()
            return loss.detach()

        return call

    return make


def inference_of(make_model, x_shape):
    def make(device):
        torch.manual_seed(0)
        model = wrapped(make_model().to(device).eval())
        (x,) = tensors(device, x_shape)

        @torch.inference_mode()
        def call():
            return model(x)

        return call

    return make


def decoding(device):
    """One token after 128, with a cache."""
    torch.manual_seed(0)
    model = Decoder().to(device).eval()
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(0, 50257, (1, 128), generator=generator).to(device)
    with torch.inference_mode():
        cache = model.new_cache(1, device)
        model(words, cache, 0)

    run = wrapped(model)

    @torch.inference_mode()
    def call():
        return run(words[:, -1:], cache, 128)

    return call


def transformer():
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4)


STEP = {"tolerance": {"rtol": 1e-2, "atol": 1e-2}}
add(
    "max pool 3x3 stride 2 16x64x112x112",
    "networks",
    inference_of(lambda: nn.MaxPool2d(3, 2, 1), (16, 64, 112, 112)),
    bytes=4 * 16 * 64 * (112**2 + 56**2),
)
add(
    "batch norm 16x64x56x56 training step",
    "networks",
    step_of(lambda: nn.BatchNorm2d(64), (16, 64, 56, 56)),
    bytes=4 * 7 * 16 * 64 * 56**2,
    **STEP,
)
add(
    "residual block 64 batch 8x56x56",
    "networks",
    step_of(lambda: Residual(64, 64), (8, 64, 56, 56)),
    flops=6.0 * 2 * 8 * 56**2 * 64 * 64 * 9,
    **STEP,
)
for last in (False, True):
    add(
        f"ResNet-18 batch 8 at 64x64{' channels last' if last else ''}",
        "networks",
        step_of(resnet18, (8, 3, 64, 64), classes=10, last=last),
        flops=6.0 * 8 * 0.148e9,
        **STEP,
    )
add(
    "ResNet-18 inference batch 1 at 224x224",
    "networks",
    inference_of(resnet18, (1, 3, 224, 224)),
    flops=2 * 1.82e9,
    target=1.2,
    tolerance=LOOSE,
)
add(
    "LSTM 128-256 16x32",
    "networks",
    step_of(lambda: nn.LSTM(128, 256), (32, 16, 128)),
    flops=6.0 * 32 * 16 * 4 * 256 * (128 + 256),
    **STEP,
)
add(
    "transformer 4 layers d=256 4x128 AdamW",
    "networks",
    step_of(transformer, (4, 128, 256), optimiser=torch.optim.AdamW),
    flops=6.0 * 512 * 4 * (4 * 256**2 + 2 * 256 * 1024),
    **STEP,
)
add(
    "GPT-2 small, a token after 128",
    "networks",
    decoding,
    bytes=4 * 124e6,
    target=1.2,
    tolerance=LOOSE,
)
