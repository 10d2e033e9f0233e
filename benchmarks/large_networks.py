"""Whole networks as people train and run them on GPUs, on `ocl` beside torch on another device.

python -m benchmarks.large_networks [--against cuda] [--compile] [--network NAME] [--list]

Each side has a process of its own, since PyTorch knows one accelerator in a process. The sides take
turns: a block is ten steps without a wait between them, and the least block counts. --compile adds
both by torch.compile, and the ratio is that of these. Weights are random, images and words too."""

import argparse
import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

STEPS, ROUNDS = 10, 4


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


def vision(name):
    from torchvision import models

    return getattr(models, name)()


@dataclass
class Network:
    """A network and its step. `autocast`: the dtype of a training step; `dtype`: of inference."""

    make: object
    inputs: object
    classes: int = 1000
    training: bool = True
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    channels_last: bool = False
    tf32: bool = False


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
    "ConvNeXt-T b64 bf16": Network(lambda: vision("convnext_tiny"), images(64), autocast=BRAIN),
    "EfficientNet-B0 b64 f32": Network(lambda: vision("efficientnet_b0"), images(64)),
    "GPT-2 small 8x1024 bf16": Network(GPT, words(8, 1024, 50257), 50257, autocast=BRAIN),
    "GPT-2 small 4x1024 f32": Network(GPT, words(4, 1024, 50257), 50257),
    "BERT-base 16x512 bf16": Network(
        lambda: Words(30522, False), words(16, 512, 30522), 30522, autocast=BRAIN
    ),
    "Llama-1B token bf16": Network(DECODER, TOKEN, training=False, dtype=BRAIN),
    "Llama-1B token f16": Network(DECODER, TOKEN, training=False, dtype=HALF),
    "MLP 4096 b1024 f32": Network(mlp, lambda: torch.randn(1024, 4096)),
}


def step_of(network, device, wrap):
    """The call to time, prepared on the device. `wrap(model)` is what it calls."""
    torch.manual_seed(0)
    if network.tf32:
        torch.set_float32_matmul_precision("high")
        if device == "ocl":
            torch.backends.fp32_precision = "tf32"
    elif device == "cuda":
        torch.backends.cudnn.allow_tf32 = False
    model, x = network.make().to(device), network.inputs().to(device)
    if network.channels_last:
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    if not network.training:
        model = model.to(network.dtype).eval()
        x = x.to(network.dtype)
        call = wrap(model)

        @torch.inference_mode()
        def infer():
            call(x)

        return infer
    places = x.shape if network.classes > 1000 else x.shape[:1]
    targets = torch.randint(network.classes, tuple(places)).to(device).flatten()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    call = wrap(model)

    def train():
        optimiser.zero_grad()
        with torch.autocast(device, network.autocast, enabled=network.autocast is not None):
            loss = functional.cross_entropy(call(x).flatten(0, -2), targets)
        loss.backward()
        optimiser.step()

    return train


def serve(name, device, compiled):
    """A side: the first step's seconds on a line of its own, then for each line read a block's."""
    if device == "ocl":
        import torch_ocl  # noqa: F401 - where CUDA is there, it isn't loaded by itself
    synchronize = getattr(torch, device).synchronize
    start = time.perf_counter()
    step = step_of(NETWORKS[name], device, torch.compile if compiled else lambda model: model)
    synchronize()
    made = time.perf_counter()
    step()
    synchronize()
    print(time.perf_counter() - made, made - start, flush=True)
    step()
    for _ in sys.stdin:
        synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        synchronize()
        print((time.perf_counter() - start) / STEPS, flush=True)


class Side:
    """A process that answers serve()'s lines."""

    def __init__(self, name, device, compiled=False):
        autoload = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if device != "ocl" else {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.large_networks", "--serve", name, device]
            + ["--compile"] * compiled,
            env={**os.environ, **autoload},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.best = math.inf

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a side ended with {self._process.wait()}")
        return float(line.split()[0])

    def wait(self):
        """Until it is ready. Returns the seconds of its first step."""
        return self._answer()

    def block(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.best = min(self.best, self._answer())

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def compare(name, kinds):
    """Milliseconds of a step of each (device, compiled), and the seconds of the first one's first
    step."""
    sides = []
    try:
        for side in kinds:
            sides.append(Side(name, *side))
        first, *_ = [side.wait() for side in sides]
        for _ in range(ROUNDS):
            for side in sides:
                side.block()
        return [side.best * 1e3 for side in sides], first
    finally:
        for side in sides:
            side.close()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--against", choices=("cuda", "cpu"), help="torch on this; none: ocl alone")
    parser.add_argument("--compile", action="store_true", help="compiled, too")
    parser.add_argument("--network", default="", help="only those whose name contains this")
    parser.add_argument("--list", action="store_true", help="their names, nothing is timed")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.serve:
        return serve(*chosen.serve, chosen.compile)
    names = [name for name in NETWORKS if chosen.network in name]
    if chosen.list or not names:
        return print("\n".join(NETWORKS))
    devices = ["ocl", chosen.against] if chosen.against else ["ocl"]
    kinds = [(d, compiled) for compiled in (False, True)[: 1 + chosen.compile] for d in devices]
    heads = [f"{device}{' compiled' * compiled}" for device, compiled in kinds]
    print("| step | first | " + " | ".join(f"{head}, ms" for head in heads) + " | ratio |")
    print("| --- |" + " --- |" * (len(heads) + 2))
    ratios = []
    for name in names:
        try:
            times, first = compare(name, kinds)
        except RuntimeError as error:
            print(f"| {name} | failed: {error} |", flush=True)
            continue
        cells = [f"{t:.2f}" for t in times]
        if chosen.against:
            ratios.append(times[-2] / times[-1])
            cells.append(f"{ratios[-1]:.2f}")
        print(f"| {name} | {first:.2f} s | " + " | ".join(cells) + " |", flush=True)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean of {len(ratios)} ratios: {mean:.3f}")
    return None


if __name__ == "__main__":
    main()
