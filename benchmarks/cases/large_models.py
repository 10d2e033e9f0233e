"""Whole networks as people train and run them on GPUs. Weights are random, images and words too."""

import contextlib
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A transformer layer, norms first."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Words(nn.Module):
    """Embeddings, transformer layers, and a product with the embeddings, of the sizes of GPT-2
    (Radford et al., 2019) and BERT-base (Devlin et al., 2018)."""

    def __init__(self, vocabulary, causal):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, 768), nn.Embedding(1024, 768)
        self.blocks = nn.Sequential(*(Block(768, 12, causal) for _ in range(12)))
        self.norm = nn.LayerNorm(768)

    def forward(self, words):
        places = torch.arange(words.shape[1], device=words.device)
        x = self.blocks(self.words(words) + self.places(places))
        return functional.linear(self.norm(x), self.words.weight)


class Decoder(nn.Module):
    """A token through layers of Llama-1B's sizes (2048 wide, 32 heads, 8 of keys), after `past`."""

    WIDTH, HEADS, GROUPS, SIZE, LAYERS = 2048, 32, 8, 64, 16

    def __init__(self, past):
        super().__init__()
        kv = 2 * self.GROUPS * self.SIZE
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.RMSNorm(self.WIDTH),
                    "qkv": nn.Linear(self.WIDTH, self.WIDTH + kv, bias=False),
                    "out": nn.Linear(self.WIDTH, self.WIDTH, bias=False),
                    "norm2": nn.RMSNorm(self.WIDTH),
                    "gate": nn.Linear(self.WIDTH, 8192, bias=False),
                    "up": nn.Linear(self.WIDTH, 8192, bias=False),
                    "down": nn.Linear(8192, self.WIDTH, bias=False),
                }
            )
            for _ in range(self.LAYERS)
        )
        self.head = nn.Linear(self.WIDTH, 32000, bias=False)
        shape = (self.LAYERS, 2, 1, self.GROUPS, past + 1, self.SIZE)
        self.register_buffer("cache", torch.randn(shape))

    def forward(self, x):
        for layer, cache in zip(self.layers, self.cache, strict=True):
            qkv = layer["qkv"](layer["norm1"](x)).view(1, 1, -1, self.SIZE).transpose(1, 2)
            q, k, v = qkv.split([self.HEADS, self.GROUPS, self.GROUPS], 1)
            cache[0, :, :, -1:].copy_(k)
            cache[1, :, :, -1:].copy_(v)
            mixed = functional.scaled_dot_product_attention(q, *cache, enable_gqa=True)
            x = x + layer["out"](mixed.transpose(1, 2).reshape(1, 1, -1))
            y = layer["norm2"](x)
            x = x + layer["down"](functional.silu(layer["gate"](y)) * layer["up"](y))
        return self.head(x)


def vision(name, **options):
    from torchvision import models

    return getattr(models, name)(**options)


@dataclass
class Network:
    """A network and its step. `autocast`: the dtype of a training step; `dtype`: of inference;
    `random`: whether a step draws numbers."""

    make: object
    inputs: object
    classes: int = 1000
    training: bool = True
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    channels_last: bool = False
    tf32: bool = False
    random: bool = False


def images(count):
    return lambda: torch.randn(count, 3, 224, 224)


def words(count, length, vocabulary):
    return lambda: torch.randint(vocabulary, (count, length))


def mlp():
    return nn.Sequential(
        nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)
    )


HALF, BRAIN = torch.float16, torch.bfloat16
RESNET = lambda: vision("resnet50")  # noqa: E731
GPT = lambda: Words(50257, True)  # noqa: E731
DECODER = lambda: Decoder(1024)  # noqa: E731
TOKEN = lambda: torch.randn(1, 1, 2048)  # noqa: E731
NETWORKS = {
    "ResNet-50 b128 bf16 NHWC": Network(RESNET, images(128), autocast=BRAIN, channels_last=True),
    "ResNet-50 b64 f32": Network(RESNET, images(64)),
    "ResNet-50 b64 TF32": Network(RESNET, images(64), tf32=True),
    "ResNet-50 b64 TF32 NHWC": Network(RESNET, images(64), tf32=True, channels_last=True),
    "ResNet-50 inference b64 f16": Network(RESNET, images(64), training=False, dtype=HALF),
    "ResNet-50 inference b64 f16 NHWC": Network(
        RESNET, images(64), training=False, dtype=HALF, channels_last=True
    ),
    "ViT-B/16 b64 bf16": Network(lambda: vision("vit_b_16"), images(64), autocast=BRAIN),
    "ConvNeXt-T b64 bf16": Network(
        lambda: vision("convnext_tiny"), images(64), autocast=BRAIN, random=True
    ),
    "EfficientNet-B0 b64 f32": Network(lambda: vision("efficientnet_b0"), images(64), random=True),
    "GPT-2 small 8x1024 bf16": Network(GPT, words(8, 1024, 50257), 50257, autocast=BRAIN),
    "GPT-2 small 4x1024 f32": Network(GPT, words(4, 1024, 50257), 50257),
    "BERT-base 16x512 bf16": Network(
        lambda: Words(30522, False), words(16, 512, 30522), 30522, autocast=BRAIN
    ),
    "Llama-1B token bf16": Network(DECODER, TOKEN, training=False, dtype=BRAIN),
    "Llama-1B token f16": Network(DECODER, TOKEN, training=False, dtype=HALF),
    "MLP 4096 b1024 f32": Network(mlp, lambda: torch.randn(1024, 4096)),
}


@contextlib.contextmanager
def rounded_to_tf32(device):
    """Products and convolutions in float32 may use TF32 within."""
    if device == "ocl":
        with torch.backends.flags(fp32_precision="tf32"):
            yield
        return
    torch.set_float32_matmul_precision("high")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
        yield
    torch.set_float32_matmul_precision("highest")


def step_of(network, device, wrap=lambda model: model):
    """The call to time, prepared on the device. `wrap(model)` is what it calls. It returns the loss
    or, of inference, the result."""
    torch.manual_seed(0)
    model, x = network.make().to(device), network.inputs().to(device)
    if network.channels_last:
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    if network.training:
        step = _training(network, wrap(model), model.parameters(), x)
    else:
        model, x = model.to(network.dtype).eval(), x.to(network.dtype)
        step = _inference(wrap(model), x)
    if not network.tf32:
        return step

    def in_tf32():
        with rounded_to_tf32(device):
            return step()

    return in_tf32


def _inference(call, x):
    @torch.inference_mode()
    def infer():
        return call(x)

    return infer


def _training(network, call, parameters, x):
    places = x.shape if network.classes > 1000 else x.shape[:1]
    targets = torch.randint(network.classes, tuple(places)).to(x.device).flatten()
    optimiser = torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)

    def train():
        optimiser.zero_grad()
        with torch.autocast(x.device.type, network.autocast, enabled=bool(network.autocast)):
            loss = functional.cross_entropy(call(x).flatten(0, -2), targets)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return train
