"""Workloads for a device that isn't there, so that its programs and launches are captured.

    python -m tests.silicon.workloads samples networks

Nothing is computed, and memory reads as zeros. So an error is no failure: what the data decides
goes wrong. What raises is counted, since a whole workload that raises captures nothing.
"""

import collections
import contextlib
import pathlib
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "ocl"
HALF_TYPES = (torch.float16, torch.bfloat16)
TYPES = (torch.float32, *HALF_TYPES)
WORKLOADS = {}
raised = collections.Counter()
parts = 0


def workload(function):
    """Registers a workload by its name."""
    WORKLOADS[function.__name__] = function
    return function


@contextlib.contextmanager
def attempt(name):
    """A part of a workload: counts it, and what it raises."""
    global parts
    parts += 1
    try:
        yield
    except Exception as error:
        text = str(error).splitlines()[0][:100] if str(error) else ""
        raised[f"{name}: {type(error).__name__}: {text}"] += 1


def tensor(*sizes, dtype=torch.float32, grad=False):
    return torch.empty(*sizes, dtype=dtype, device=DEVICE).requires_grad_(grad)


def train(model, *inputs):
    """A step of training."""
    loss = output_of(model(*inputs)).float().square().mean()
    loss.backward()
    torch.optim.AdamW(model.parameters()).step()


def output_of(result):
    """The tensor that a model's result is about."""
    return result if isinstance(result, torch.Tensor) else result.logits


@workload
def samples():
    """The memory checker's, which launch every kernel file that can be."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "memory_checker"))
    import sample

    for name, function in sample.FAMILIES.items():
        torch.manual_seed(0)
        with attempt(name):
            function()


@workload
def products():
    """Matrix products of the sizes of networks."""
    sizes = ((1, 4096, 4096), (8, 4096, 1024), (64, 64, 64), (1024, 1024, 1024))
    sizes += ((4096, 4096, 4096), (2048, 33, 2048), (1024, 1024, 20000), (17, 19, 23))
    for dtype in TYPES:
        for m, n, k in sizes:
            a, b, bias = (
                tensor(m, k, dtype=dtype),
                tensor(n, k, dtype=dtype),
                tensor(n, dtype=dtype),
            )
            with attempt("product"):
                a @ b.t()
            with attempt("product"):
                a @ b.t().contiguous()
            with attempt("product"):
                a.t().contiguous().t() @ b.t()
            inputs = [x.requires_grad_() for x in (a, b, bias)]
            with attempt("linear"):
                F.linear(*inputs).sum().backward()
        with attempt("batched"):
            tensor(32, 128, 64, dtype=dtype) @ tensor(32, 64, 128, dtype=dtype)


@workload
def attention():
    """Scaled dot product attention, forward and backward."""
    for dtype in TYPES:
        for depth in (32, 64, 80, 128, 256):
            for queries, causal in ((1, False), (77, False), (1024, True)):
                keys = 1024 if queries == 1 else queries
                q = tensor(2, 8, queries, depth, dtype=dtype, grad=True)
                k, v = (tensor(2, 8, keys, depth, dtype=dtype, grad=True) for _ in range(2))
                with attempt("attention"):
                    F.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward()


@workload
def convolutions():
    """Convolutions of the sizes of networks, forward and backward."""
    sizes = ((3, 64, 224, 7, 2, 1), (64, 64, 56, 3, 1, 1), (512, 512, 7, 3, 1, 1))
    sizes += ((64, 256, 56, 1, 1, 1), (96, 96, 56, 7, 1, 96), (32, 32, 112, 3, 2, 32))
    for dtype in TYPES:
        for channels, outputs, size, window, stride, groups in sizes:
            for layout in (torch.contiguous_format, torch.channels_last):
                x = tensor(8, channels, size, size, dtype=dtype)
                x = x.contiguous(memory_format=layout).requires_grad_()
                w = tensor(outputs, channels // groups, window, window, dtype=dtype, grad=True)
                with attempt("convolution"):
                    F.conv2d(x, w, None, stride, window // 2, 1, groups).sum().backward()


@workload
def rows():
    """Softmax, norms, reductions, scans and sorts along rows."""
    for dtype in TYPES:
        for length in (64, 768, 4096, 32000, 128256):
            for count in (1, 1024):
                x = tensor(count, length, dtype=dtype, grad=True)
                w = tensor(length, dtype=dtype, grad=True)
                with attempt("softmax"):
                    x.softmax(-1).sum().backward()
                targets = torch.zeros(count, dtype=torch.long, device=DEVICE)
                with attempt("entropy"):
                    F.cross_entropy(x, targets).backward()
                with attempt("layer norm"):
                    F.layer_norm(x, (length,), w, w).sum().backward()
                with attempt("RMS norm"):
                    F.rms_norm(x, (length,), w).sum().backward()
                for name in ("sum", "mean", "var", "std", "argmax", "amax", "prod", "logsumexp"):
                    with attempt(name):
                        getattr(x.detach(), name)(-1)
                for name in ("sum", "var", "amax", "cumsum"):
                    with attempt(name):
                        getattr(x.detach(), name)(0)
                for name in ("cumsum", "cumprod", "logcumsumexp", "sort", "median"):
                    with attempt(name):
                        getattr(x.detach(), name)(-1)
                with attempt("topk"):
                    x.detach().topk(50)


def vision_model(name):
    def build(dtype):
        import torchvision

        with torch.device(DEVICE):
            return getattr(torchvision.models, name)().to(dtype)

    return build


def language_model(name, **settings):
    """A model of transformers with few layers: the others are like them."""

    def build(dtype):
        import transformers

        config = getattr(transformers, name + "Config")(**settings)
        kind = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
        with torch.device(DEVICE):
            return getattr(transformers, name + kind)(config).to(dtype)

    return build


class UNet(nn.Module):
    """Convolutions down and up again, with attention in the middle, as image models have them."""

    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, c) for c in (width, 2 * width, width))
        self.down = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.up = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.last = nn.Conv2d(2 * width, 4, 3, padding=1)

    def forward(self, x):
        top = F.silu(self.norms[0](self.first(x)))
        low = F.silu(self.norms[1](self.down(top)))
        rows = low.flatten(2).transpose(1, 2)
        rows = rows + self.attention(rows, rows, rows, need_weights=False)[0]
        low = rows.transpose(1, 2).unflatten(2, low.shape[2:])
        high = F.silu(self.norms[2](self.up(low)))
        return self.last(torch.cat([top, F.interpolate(high, scale_factor=1.0)], 1))


def unet(dtype):
    with torch.device(DEVICE):
        return UNet().to(dtype)


#: Models by name: what makes one, and its input's sizes; one size is a sequence of tokens.
MODELS = {
    "ResNet-50": (vision_model("resnet50"), (8, 3, 224, 224)),
    "MobileNetV2": (vision_model("mobilenet_v2"), (8, 3, 224, 224)),
    "ViT": (vision_model("vit_b_16"), (8, 3, 224, 224)),
    "UNet": (unet, (2, 4, 64, 64)),
    "GPT-2": (language_model("GPT2", n_layer=2), (4, 256)),
    "Llama": (
        language_model(
            "Llama",
            num_hidden_layers=2,
            hidden_size=2048,
            intermediate_size=5632,
            num_attention_heads=32,
            num_key_value_heads=8,
        ),
        (2, 256),
    ),
}


def example(sizes, dtype):
    """A model's input."""
    if len(sizes) == 2:
        return torch.zeros(sizes, dtype=torch.long, device=DEVICE)
    return tensor(*sizes, dtype=dtype)


def decode(model, tokens):
    """Prompt and a token more, with a cache of keys and values."""
    with torch.no_grad():
        first = model(tokens, use_cache=True)
        model(tokens[:, -1:], past_key_values=first.past_key_values, use_cache=True)


@workload
def networks():
    """Training steps, and inference, of networks in three dtypes."""
    for name, (build, sizes) in MODELS.items():
        for dtype in TYPES:
            with attempt(f"{name} training"):
                train(build(dtype), example(sizes, dtype))
            if len(sizes) == 2:
                with attempt(f"{name} decoding"):
                    decode(build(dtype).eval(), example(sizes, dtype))
            else:
                with attempt(f"{name} inference"), torch.inference_mode():
                    build(dtype).eval()(example(sizes, dtype))


@workload
def compiled():
    """torch.compile of networks and of pieces."""
    for name in ("UNet", "GPT-2", "Llama"):
        build, sizes = MODELS[name]
        with attempt(f"{name} compiled"):
            train(torch.compile(build(torch.float32)), example(sizes, torch.float32))

    def elements(a, b):
        return torch.erf(a) * b.sigmoid() + torch.lgamma(b.abs()), torch.where(a > b, a.exp(), b)

    def reductions(a):
        return a.sum(0), a.var(1), a.amax(), a.argmax(1), a.softmax(0), a.cumsum(1)

    for dtype in TYPES:
        pair = tensor(1000, 37, dtype=dtype), tensor(1000, 37, dtype=dtype)
        with attempt("elements compiled"):
            torch.compile(elements)(*pair)
        with attempt("reductions compiled"):
            torch.compile(reductions)(tensor(513, 700, dtype=dtype))


@workload
def algebra():
    """Sparse products, factorisations and Fourier transforms."""
    for size in (16, 64, 512):
        for name in ("inv", "cholesky", "qr", "svd", "eigh", "lu_factor", "det"):
            with attempt(name):
                getattr(torch.linalg, name)(tensor(4, size, size))
    for length in (8, 60, 97, 1024, 5000, 1 << 17):
        with attempt("fft"):
            torch.fft.fft(tensor(32, length, dtype=torch.complex64))
        with attempt("rfft"):
            torch.fft.irfft(torch.fft.rfft(tensor(32, length)))
    indices = torch.zeros(2, 5000, dtype=torch.long, device=DEVICE)
    for dtype in TYPES:
        sparse = torch.sparse_coo_tensor(
            indices, tensor(5000, dtype=dtype), (1000, 1000), check_invariants=False
        )
        with attempt("sparse product"):
            torch.sparse.mm(sparse, tensor(1000, 64, dtype=dtype))


def main():
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or WORKLOADS:
        WORKLOADS[name]()
    print(f"{parts} parts, {sum(raised.values())} raised")
    for text, count in raised.most_common():
        print(f"  {count} {text}")


if __name__ == "__main__":
    main()
