"""Networks for images, as torchvision builds them, with random weights."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torchvision import models

from tests.models.comparison import assert_close_in, assert_same_network

#: name -> size of the images
NETWORKS = {
    "resnet18": 64,
    "resnet50": 64,
    "vgg11_bn": 64,
    "densenet121": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "efficientnet_b0": 64,
    "convnext_tiny": 64,
    "regnet_y_400mf": 64,
    "shufflenet_v2_x1_0": 64,
    "squeezenet1_1": 64,
    "swin_t": 64,
    "vit": 64,
}


def make(name):
    """The network in training mode, but without what is random in training."""
    torch.manual_seed(0)
    if name == "vit":  # the published sizes have 88 million parameters
        network = models.VisionTransformer(64, 16, 4, 4, 192, 768, num_classes=10)
        nn.init.normal_(network.heads.head.weight, std=0.02)  # they are zeros
    else:
        network = getattr(models, name)(weights=None, num_classes=10)
    if name.startswith("vgg"):  # most of its 500 MB are not convolutions
        network.classifier = nn.Linear(25088, 10)
    for module in network.modules():
        if hasattr(module, "p"):  # dropout, stochastic depth
            module.p = 0.0
    return network


def images(size, count=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, size, size, generator=generator), torch.arange(count)


def classify(model, inputs):
    pictures, labels = inputs
    scores = model(pictures)
    return scores, functional.cross_entropy(
        scores.float() if scores.dtype.itemsize < 4 else scores, labels
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_network(name):
    assert_same_network(make(name), images(NETWORKS[name]), classify, steps=1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["resnet18", "convnext_tiny", "swin_t"])
def test_half_types(name, dtype):
    tolerance = {torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    assert_close_in(dtype, make(name), images(64, 4), classify, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x1_0"])
def test_channels_last(name):
    format = torch.channels_last
    assert_same_network(make(name), images(64), classify, steps=1, memory_format=format)


class Attention(nn.Module):
    """Self-attention over the positions of an image."""

    def __init__(self, channels, heads=4):
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(8, channels), heads
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, self.heads, c // self.heads, h * w).unbind(1)
        mixed = functional.scaled_dot_product_attention(q.mT, k.mT, v.mT)
        return x + self.out(mixed.mT.reshape(b, c, h, w))


class Block(nn.Module):
    def __init__(self, inputs, outputs, embedding):
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.GroupNorm(8, c), nn.SiLU(), nn.Conv2d(c, outputs, 3, padding=1))
            for c in (inputs, outputs)
        )
        self.time = nn.Linear(embedding, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        hidden = self.first(x) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.second(hidden)


class DiffusionUNet(nn.Module):
    """Predicts the noise in an image at a time step."""

    def __init__(self, channels=16, embedding=32):
        super().__init__()
        c, self.embedding = channels, embedding
        self.stem = nn.Conv2d(3, c, 3, padding=1)
        self.down1, self.down2 = Block(c, c, embedding), Block(c, 2 * c, embedding)
        self.shrink = nn.Conv2d(c, c, 3, stride=2, padding=1)
        self.attention = Attention(2 * c)
        self.middle = Block(2 * c, 2 * c, embedding)
        self.grow = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.up = Block(2 * c, c, embedding)
        self.out = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x, step):
        rates = torch.exp(torch.arange(self.embedding // 2, device=x.device) * -0.3)
        angles = step[:, None] * rates
        time = torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype)
        skip = self.down1(self.stem(x), time)
        deep = self.attention(self.down2(self.shrink(skip), time))
        return self.out(self.up(torch.cat([self.grow(self.middle(deep, time)), skip], 1), time))


class UNet(nn.Module):
    """Two levels with transposed convolutions, for masks of images."""

    def __init__(self, channels=16):
        super().__init__()
        c = channels
        self.encode = nn.ModuleList([self.block(3, c), self.block(c, 2 * c)])
        self.bottom = self.block(2 * c, 4 * c)
        self.grow = nn.ModuleList(
            [
                nn.ConvTranspose2d(4 * c, 2 * c, 2, stride=2),
                nn.ConvTranspose2d(2 * c, c, 2, stride=2),
            ]
        )
        self.decode = nn.ModuleList([self.block(4 * c, 2 * c), self.block(2 * c, c)])
        self.out = nn.Conv2d(c, 2, 1)

    @staticmethod
    def block(inputs, outputs):
        layers = []
        for c in (inputs, outputs):
            layers += [nn.Conv2d(c, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x):
        skips = []
        for encode in self.encode:
            skips.append(encode(x))
            x = functional.max_pool2d(skips[-1], 2)
        x = self.bottom(x)
        for grow, decode, skip in zip(self.grow, self.decode, reversed(skips), strict=True):
            x = decode(torch.cat([grow(x), skip], 1))
        return self.out(x)


def masks():
    return torch.randint(0, 2, (2, 32, 32), generator=torch.Generator().manual_seed(2))


def segment(model, inputs):
    pictures, wanted = inputs
    scores = model(pictures)
    return scores, functional.cross_entropy(scores, wanted)


def unet():
    torch.manual_seed(0)
    return UNet(), (images(32)[0], masks()), segment


def test_unet():
    assert_same_network(*unet())


def test_unet_channels_last():
    assert_same_network(*unet(), memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_unet_half_types(dtype):
    tolerance = {torch.float16: 1e-2, torch.bfloat16: 5e-2}[dtype]
    assert_close_in(dtype, *unet(), tolerance)


def denoise(model, inputs):
    pictures, noise, step = inputs
    predicted = model(pictures + noise, step)
    return predicted, functional.mse_loss(predicted, noise)


def diffusion():
    torch.manual_seed(0)
    pictures, noise = images(16, 2)[0], images(16, 2)[0].flip(0)
    return DiffusionUNet(), (pictures, noise, torch.tensor([3, 700])), denoise


def test_diffusion_unet():
    assert_same_network(*diffusion())
