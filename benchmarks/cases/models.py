"""Networks of a few lines, whose steps the cases time and the studies look into."""

import contextlib

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x):
        hidden = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(hidden)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two of 1x1, beside a shortcut."""

    def __init__(self, inputs, width, stride=1):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x):
        hidden = functional.relu(self.norm1(self.conv1(x)))
        hidden = functional.relu(self.norm2(self.conv2(hidden)))
        return functional.relu(self.norm3(self.conv3(hidden)) + self.shortcut(x))


def resnet50(classes=1000):
    """He et al., Deep Residual Learning, 2015: the 50-layer network."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, count in enumerate(RESNETS["ResNet-50"][0]):
        width = 64 << stage
        for block in range(count):
            layers.append(Bottleneck(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes))


def resnet18(classes=10):
    """He et al., Deep Residual Learning, 2015: the 18-layer network."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    width = 64
    for outputs in (64, 128, 256, 512):
        layers += [Residual(width, outputs, outputs // width), Residual(outputs, outputs)]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class DecoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cache, position):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).unbind(2)
        end = position + length
        cache[0][:, :, position:end], cache[1][:, :, position:end] = (
            k.transpose(1, 2),
            v.transpose(1, 2),
        )
        keys, values = cache[0][:, :, :end], cache[1][:, :, :end]
        mixed = functional.scaled_dot_product_attention(
            q.transpose(1, 2), keys, values, is_causal=length > 1
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Decoder(nn.Module):
    """A language model of GPT-2's shape (Radford et al., 2019) with a cache of keys and values."""

    def __init__(self, words=50257, width=768, layers=12, heads=12, positions=1024):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.layers = nn.ModuleList([DecoderLayer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.shape = (heads, positions, width // heads)

    def new_cache(self, batch, device):
        return [[torch.zeros(batch, *self.shape, device=device) for _ in "kv"] for _ in self.layers]

    def forward(self, index, cache, position):
        """The scores of the word after the last of `index`, whose words stand at `position` on."""
        places = torch.arange(position, position + index.shape[1], device=index.device)
        x = self.words(index) + self.positions(places)
        for layer, kept in zip(self.layers, cache, strict=True):
            x = layer(x, kept, position)
        return self.norm(x[:, -1]) @ self.words.weight.T


class LanguageModel(nn.Module):
    """GPT-2's shape without a cache, for training: the scores of each next word."""

    WORDS = 50257

    def __init__(self, width=768, layers=12, heads=12, positions=1024):
        super().__init__()
        self.words, self.positions = nn.Embedding(self.WORDS, width), nn.Embedding(positions, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, index):
        length = index.shape[1]
        x = self.words(index) + self.positions(torch.arange(length, device=index.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, index.device)
        return self.norm(self.layers(x, mask=mask, is_causal=True)) @ self.words.weight.T


#: name -> (blocks of each stage, whether they are bottlenecks)
RESNETS = {"ResNet-18": ((2, 2, 2, 2), False), "ResNet-50": ((3, 4, 6, 3), True)}


def parameter_shapes(name):
    """The parameters' shapes of one of RESNETS (He et al., 2015): 62 and 161 of them."""
    blocks, bottleneck = RESNETS[name]
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        outputs = 4 * width if bottleneck else width
        for block in range(count):
            if bottleneck:
                kernels = [(width, inputs, 1), (width, width, 3), (outputs, width, 1)]
            else:
                kernels = [(width, inputs, 3), (width, width, 3)]
            if block == 0 and inputs != outputs:
                kernels.append((outputs, inputs, 1))
            for to, of, size in kernels:
                shapes += [(to, of, size, size), (to,), (to,)]
            inputs = outputs
    return [*shapes, (1000, inputs), (1000,)]


def images(batch):
    return torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))


def texts(batch):
    words = torch.randint(0, LanguageModel.WORDS, (batch, 257))
    return words[:, :-1], words[:, 1:].flatten()


#: name -> (the network, an input and its classes)
PROFILED = {
    "ResNet-18": (lambda: resnet18(1000), images),
    "ResNet-50": (resnet50, images),
    "GPT-2": (LanguageModel, texts),
}


def training_step(name, batch, dtype, channels_last, wrap=lambda model: model):
    """A call that trains a network for a step on device 0. `wrap(model)` is what it calls."""
    torch.manual_seed(0)
    make, samples = PROFILED[name]
    model, (x, classes) = make().to("ocl"), (t.to("ocl") for t in samples(batch))
    if channels_last and x.dim() == 4:
        model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    call = wrap(model)

    def step():
        optimiser.zero_grad()
        autocast = torch.autocast("ocl", dtype) if dtype else contextlib.nullcontext()
        with autocast:
            scores = call(x)
            loss = functional.cross_entropy(scores.flatten(0, -2), classes)
        loss.backward()
        optimiser.step()

    return step
