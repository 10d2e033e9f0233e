"""The work of `python -m torch_ocl cache warm`: small networks and ops that most programs use."""

import torch
from torch import nn
from torch.nn import functional


def _train(model: nn.Module, inputs: torch.Tensor, classes: int) -> None:
    """A few steps with each of the common optimizers, and inference."""
    target = torch.arange(len(inputs), device=inputs.device) % classes
    makers = (
        lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=1e-4),
        lambda p: torch.optim.AdamW(p, lr=1e-3),
        lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    )
    for make in makers:
        optimizer = make(model.parameters())
        for _ in range(2):  # the first step makes the state
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs).float(), target).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    model.eval()
    with torch.no_grad():
        model(inputs).argmax(dim=-1).cpu()


def _linear(device: torch.device, dtype: torch.dtype) -> None:
    model = nn.Sequential(
        nn.Linear(300, 256),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(256, 128),
        nn.Tanh(),
        nn.Linear(128, 10),
    ).to(device, dtype)
    for batch in (4, 128):
        _train(model.train(), torch.randn(batch, 300, device=device, dtype=dtype), 10)


class _Residual(nn.Module):
    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 2 * channels, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(2 * channels) for _ in range(3))
        self.short = nn.Conv2d(channels, 2 * channels, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + self.norms[2](self.short(x))).relu()


def _convolutions(device: torch.device, dtype: torch.dtype) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 7, 2, 3, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        _Residual(32, 1),
        _Residual(64, 2),
        nn.Conv2d(128, 128, 3, 1, 1, groups=128),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    ).to(device, dtype)
    images = torch.randn(8, 3, 64, 64, device=device, dtype=dtype)
    _train(model, images, 10)
    model.to(memory_format=torch.channels_last).train()
    _train(model, images.to(memory_format=torch.channels_last), 10)
    for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):  # kernels go by sizes
        layer = nn.Conv2d(channels, channels, 3, 1, 1, bias=False).to(device, dtype)
        layer(torch.randn(4, channels, size, size, device=device, dtype=dtype)).sum().backward()
    if torch.ocl.get_device_properties(device).type != "cpu":
        _images_of_full_size(device, dtype)


class _Bottleneck(nn.Module):
    """He et al., Deep Residual Learning, 2015."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = ((inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.body, self.short = nn.Sequential(), nn.Sequential()
        for of, to, size, step in sizes:
            self.body.append(nn.Conv2d(of, to, size, step, size // 2, bias=False))
            self.body.append(nn.BatchNorm2d(to))
            self.body.append(nn.ReLU(inplace=True))
        del self.body[-1]
        if stride > 1 or inputs != 4 * width:
            self.short.append(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False))
            self.short.append(nn.BatchNorm2d(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.body(x) + self.short(x)).relu_()


def _images_of_full_size(device: torch.device, dtype: torch.dtype) -> None:
    """A ResNet with a block or two of each of ResNet-50's sizes: GPUs choose kernels by sizes."""
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    )
    inputs = 64
    for width, stride in ((64, 1), (64, 1), (128, 2), (256, 2), (512, 2), (512, 1)):
        model.append(_Bottleneck(inputs, width, stride))
        inputs = 4 * width
    model.append(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)))
    model.to(device, dtype)
    # A training step takes 100 MB for an image; a quarter of the memory is left to it.
    batch = min(64, max(1, torch.ocl.mem_get_info(device)[1] // (4 * 100 * 10**6)))
    images = torch.randn(batch, 3, 224, 224, device=device, dtype=dtype)
    for layout in (torch.contiguous_format, torch.channels_last):
        model.to(memory_format=layout).train()
        laid_out = images.to(memory_format=layout)
        _train(model, laid_out, 1000)
        if dtype == torch.float32:
            for half in (torch.float16, torch.bfloat16):
                with torch.autocast("ocl", half):
                    _train(model.train(), laid_out, 1000)


class _Language(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, width), nn.Embedding(64, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        length = words.shape[1]
        x = self.words(words) + self.places(torch.arange(length, device=words.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, words.device, x.dtype)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))[:, -1]


def _attention(device: torch.device, dtype: torch.dtype) -> None:
    model = _Language(256).to(device, dtype)
    _train(model, torch.randint(100, (4, 64), device=device), 100)
    query, key, value = torch.randn(3, 2, 4, 64, 64, device=device, dtype=dtype).requires_grad_()
    for dropout in (0.0, 0.1):
        out = functional.scaled_dot_product_attention(query, key, value, None, dropout, True)
        out.sum().backward()
    with torch.no_grad():  # a token after others
        functional.scaled_dot_product_attention(query[:, :, :1], key, value)
    functional.rms_norm(value, (64,)).sum().backward()


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layer, self.head = kind(64, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


def _recurrent(device: torch.device, dtype: torch.dtype) -> None:
    for kind in (nn.LSTM, nn.GRU):
        model = _Recurrent(kind).to(device, dtype)
        _train(model, torch.randn(8, 5, 64, device=device, dtype=dtype), 10)


def _elementwise(device: torch.device, dtype: torch.dtype) -> None:
    a = torch.rand(64, 100, device=device, dtype=dtype) + 0.5
    b = torch.rand(64, 100, device=device, dtype=dtype) + 0.5
    row, mask = b[0], b > 1
    for x, y in ((a, b), (a, row), (a.T, b.T), (a, 2.0)):
        x + y, x - y, x * y, x / y, x**2, x > y, x == y, x < y
    for name in ("exp", "log", "sqrt", "rsqrt", "sigmoid", "tanh", "abs", "neg", "sin", "cos"):
        getattr(a, name)()
    for function in (functional.gelu, functional.silu, functional.softplus, functional.leaky_relu):
        function(a)
    torch.where(mask, a, b), a.clamp(0, 1), a.masked_fill(mask, 0.0), a.maximum(b)
    for other in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
        a.to(other).to(dtype)


def _rearranging(device: torch.device, dtype: torch.dtype) -> None:
    a = torch.rand(64, 100, device=device, dtype=dtype)
    indices = torch.arange(0, 64, 3, device=device)
    for dimension in (None, 0, 1):
        dimensions = {} if dimension is None else {"dim": dimension}
        a.sum(**dimensions), a.mean(**dimensions), a.amax(**dimensions), a.argmax(**dimensions)
        (a > 0.5).any(**dimensions), a.std(**dimensions)
    a.norm(), a.cumsum(1), a.sort(dim=1), a.topk(5, dim=1), a.softmax(1), a.log_softmax(1)
    torch.cat([a, a]), torch.stack([a, a]), a.T.contiguous(), a.flip(0), a.triu()
    a[indices], a[a > 0.5], a.index_select(0, indices), a.gather(1, a.argsort(dim=1))
    torch.zeros_like(a).index_add_(0, indices, a[indices])
    torch.zeros_like(a).scatter_add_(1, a.argsort(dim=1), a)
    torch.randn_like(a), torch.rand_like(a), torch.randint(9, (9,), device=device)
    torch.randperm(9, device=device), torch.eye(3, device=device), torch.ones_like(a).zero_()
    a.isfinite().all().item()


WORK = {
    "elementwise ops": _elementwise,
    "reductions, indices, random numbers": _rearranging,
    "linear layers, losses, optimizers": _linear,
    "convolutions, batch norm, pooling": _convolutions,
    "attention, embeddings, layer norm": _attention,
    "recurrent layers": _recurrent,
}
