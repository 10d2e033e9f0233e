"""Random small networks: blocks of images, of tokens and of features, one after the other."""

import torch
from torch import nn

#: These have a gradient everywhere. A difference that rounding makes stays small.
SMOOTH = (nn.SiLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Mish, lambda: nn.GELU("tanh"))
#: Here rounding may choose another side, or another maximum. CPU torch's gradient of Hardsigmoid is
#: left out: it has a sixth in single precision.
KINKED = (nn.ReLU, nn.Hardswish, nn.LeakyReLU, nn.ELU, nn.ReLU6)


class Call(nn.Module):
    """A function as a module; `text` says which."""

    def __init__(self, function, text):
        super().__init__()
        self.function, self.text = function, text

    def extra_repr(self):
        return self.text

    def forward(self, x):
        return self.function(x)


class Residual(nn.Module):
    """x and what blocks of its shape make of it: their sum, or their product."""

    def __init__(self, blocks, product):
        super().__init__()
        self.blocks, self.product = blocks, product

    def forward(self, x):
        return x * self.blocks(x) if self.product else x + self.blocks(x)


class First(nn.Module):
    """The first result of a module that has several."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)[0]


class Attention(nn.Module):
    """Heads attend, with the causal mask or without; several may share a key and value."""

    def __init__(self, width, heads, shared, causal):
        super().__init__()
        self.heads, self.shared, self.causal = heads, shared, causal
        self.qkv = nn.Linear(width, width + 2 * width // shared)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        rows, length, width = x.shape
        each = width // self.heads
        sizes = [width, width // self.shared, width // self.shared]
        q, k, v = (
            part.view(rows, length, -1, each).transpose(1, 2)
            for part in self.qkv(x).split(sizes, -1)
        )
        y = nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, enable_gqa=self.shared > 1
        )
        return self.out(y.transpose(1, 2).reshape(rows, length, width))


class Maker:
    """Draws networks.

    Args:
        choose: Gives one of some values.
        kinks: Whether functions without a gradient somewhere may come.
    """

    def __init__(self, choose, kinks):
        self.choose, self.kinks = choose, kinks

    def network(self):
        """A module, and the shape of its input."""
        shape = self.choose(
            ((2, 3, 16, 16), (1, 4, 9, 13), (4, 8, 8, 8), (2, 7, 24), (1, 33, 32), (5, 20), (64, 9))
        )
        blocks, now = [], shape
        for _ in range(self.choose((2, 3, 4, 5, 6))):
            block, now = self.block(now)
            blocks.append(block)
        return nn.Sequential(*blocks), shape

    def block(self, shape):
        """A module that takes that shape, and the shape that it gives."""
        kinds = {4: self.of_images, 3: self.of_tokens, 2: self.of_features}
        if self.choose((True, False, False)):
            return self.activation(), shape
        if self.choose((True, False, False, False)):
            return self.residual(shape), shape
        return kinds[len(shape)](*shape)

    def activation(self):
        return self.choose(SMOOTH + (KINKED if self.kinks else ()))()

    def residual(self, shape):
        blocks = []
        for _ in range(self.choose((1, 2))):
            block, now = self.block(shape)
            if now == shape:
                blocks.append(block)
        return Residual(nn.Sequential(*blocks, self.activation()), self.choose((True, False)))

    def of_images(self, n, c, h, w):
        kind = self.choose(
            ("conv", "conv", "conv", "norm", "norm", "pool", "up", "turned", "gate", "tokens")
        )
        if kind == "conv":
            return self.convolution(n, c, h, w)
        if kind == "norm":
            groups = self.choose([g for g in (1, 2, 4, c) if c % g == 0])
            norm = self.choose((nn.BatchNorm2d, nn.InstanceNorm2d, None))
            return nn.GroupNorm(groups, c) if norm is None else norm(c), (n, c, h, w)
        if kind == "pool" and min(h, w) >= 2:
            pools = (nn.AvgPool2d, nn.MaxPool2d) if self.kinks else (nn.AvgPool2d,)
            return self.choose(pools)(2), (n, c, h // 2, w // 2)
        if kind == "up" and h * w <= 400:
            mode = self.choose(("nearest", "bilinear", "bicubic"))
            return nn.Upsample(scale_factor=2, mode=mode), (n, c, 2 * h, 2 * w)
        if kind == "turned" and h * w <= 400:
            out = self.choose((3, 8, 12))
            return nn.ConvTranspose2d(c, out, 2, 2), (n, out, 2 * h, 2 * w)
        if kind == "gate":
            inner = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c, 1), nn.Sigmoid())
            return Residual(inner, True), (n, c, h, w)
        if kind == "tokens" and h * w <= 600:
            return Call(lambda x: x.flatten(2).transpose(1, 2), "to tokens"), (n, h * w, c)
        return Call(lambda x: x.mean((2, 3)), "to features"), (n, c)

    def convolution(self, n, c, h, w):
        size = self.choose((1, 3, 3, 5))
        stride = self.choose((1, 1, 2)) if min(h, w) >= 4 else 1
        groups = self.choose((1, 1, c))
        out = c * self.choose((1, 2)) if groups > 1 else self.choose((4, 8, 13, 16))
        bias = self.choose((True, False))
        block = nn.Conv2d(c, out, size, stride, size // 2, groups=groups, bias=bias)
        if self.choose((True, False, False)):
            block = block.to(memory_format=torch.channels_last)
        return block, (n, out, (h - 1) // stride + 1, (w - 1) // stride + 1)

    def of_tokens(self, n, length, width):
        shape = (n, length, width)
        kind = self.choose(
            ("linear", "linear", "norm", "norm", "attention", "rnn", "conv", "gate", "features")
        )
        if kind == "linear":
            out = self.choose((width, 16, 24, 48))
            return nn.Linear(width, out, bias=self.choose((True, False))), (n, length, out)
        if kind == "norm":
            return self.choose((nn.LayerNorm, nn.RMSNorm))(width), shape
        if kind == "attention" and width % 8 == 0:
            heads = self.choose([h for h in (1, 2, 4) if width % (8 * h) == 0])
            shared = self.choose([s for s in (1, 2) if heads % s == 0])
            return Attention(width, heads, shared, self.choose((True, False))), shape
        if kind == "rnn":
            out = self.choose((8, 20))
            cell = self.choose((nn.LSTM, nn.GRU))
            return First(cell(width, out, batch_first=True)), (n, length, out)
        if kind == "conv":
            block = nn.Conv1d(width, width, 3, padding=1, groups=self.choose((1, width)))
            turn = [Call(lambda x: x.transpose(1, 2), "turned") for _ in range(2)]
            return nn.Sequential(turn[0], block, turn[1]), shape
        if kind == "gate" and width % 2 == 0:
            return nn.GLU(), (n, length, width // 2)
        reduce = self.choose(("mean", "logsumexp", "std"))
        if reduce == "std" and length < 2:
            reduce = "mean"
        return Call(lambda x: getattr(x, reduce)(1), reduce), (n, width)

    def of_features(self, n, width):
        kind = self.choose(("linear", "linear", "norm", "softmax", "sum", "turn"))
        if kind == "linear":
            out = self.choose((width, 10, 32, 65))
            return nn.Linear(width, out, bias=self.choose((True, False))), (n, out)
        if kind == "norm":
            norms = (nn.LayerNorm, nn.RMSNorm) + ((nn.BatchNorm1d,) if n > 2 else ())
            return self.choose(norms)(width), (n, width)
        if kind == "softmax":
            return self.choose((nn.Softmax, nn.LogSoftmax))(self.choose((0, 1))), (n, width)
        if kind == "sum":
            axis = self.choose((0, 1))
            return Call(lambda x: x.cumsum(axis), f"cumsum {axis}"), (n, width)
        return Call(lambda x: x.unsqueeze(1), "to tokens"), (n, 1, width)
