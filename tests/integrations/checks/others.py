"""Science, graphs, probability, explanation, export."""

import io
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import torch
from torch.nn import functional

from tests.integrations import small
from tests.integrations.checklist import check


@check("einops", "rearrange, reduce, einsum and layers")
def _(device):
    import einops
    from einops.layers.torch import Rearrange, Reduce

    x = small.images().to(device)
    mixed = einops.einsum(x, torch.eye(3, device=device) * 2, "b c h w, c d -> b d h w")
    layers = torch.nn.Sequential(Rearrange("b c h w -> b (h w) c"), Reduce("b n c -> b c", "max"))
    packed, shape = einops.pack([x, x[:, :1]], "b * h w")
    return (
        einops.rearrange(x, "b c (h i) (w j) -> b (c i j) h w", i=2, j=2),
        einops.reduce(x, "b c h w -> b c", "mean"),
        mixed,
        layers(x),
        einops.unpack(packed, shape, "b * h w"),
    )


@check("captum", "attributions")
def _(device):
    from captum.attr import (
        DeepLift,
        IntegratedGradients,
        LayerGradCam,
        Occlusion,
        Saliency,
    )

    model, x = small.convolutions().eval().to(device), small.images(2, 16).to(device)
    x.requires_grad_()
    return (
        IntegratedGradients(model).attribute(x, target=1, n_steps=8),
        Saliency(model).attribute(x, target=1),
        DeepLift(model).attribute(x, target=1),
        LayerGradCam(model, model[0]).attribute(x, target=1),
        Occlusion(model).attribute(x, (3, 8, 8), strides=(3, 8, 8), target=1),
    )


@check("gpytorch", "exact Gaussian processes", tolerance=5e-3)
def _(device):
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 24, device=device)
    y = (x * 6).sin()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
    model = Model(x, y, likelihood).to(device).train()
    likelihood.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    found = small.fit(model, lambda m: -objective(m(x), y), optimizer)
    model.eval(), likelihood.eval()
    with torch.no_grad():
        predicted = likelihood(model(x + 0.01))
    return found, predicted.mean, predicted.variance


@check("botorch", "a step of Bayesian optimisation", tolerance=5e-3)
def _(device):
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    x = torch.rand(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = -(x - 0.4).square().sum(1, keepdim=True)
    model = SingleTaskGP(x.to(device), y.to(device)).eval()
    wanted = LogExpectedImprovement(model, best_f=y.max().to(device))
    return wanted(torch.full((3, 1, 2), 0.3, dtype=torch.float64, device=device))


@check("pyro-ppl", "variational inference", tolerance=2e-2)
def _(device):
    import pyro
    from pyro import distributions as dist
    from pyro.infer import SVI, Trace_ELBO

    pyro.clear_param_store()
    seen = torch.tensor([1.0, 1.5, 2.0], device=device)

    def model():
        mean = pyro.sample("mean", dist.Normal(torch.zeros((), device=device), 2.0))
        with pyro.plate("data", 3):
            pyro.sample("seen", dist.Normal(mean, 1.0), obs=seen)

    def guide():
        place = pyro.param("place", torch.tensor(0.5, device=device))
        pyro.sample("mean", dist.Delta(place))

    steps = SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
    return [steps.step() for _ in range(5)], pyro.param("place")


@check("pyro-ppl", "Hamiltonian Monte Carlo")
def _():
    import pyro
    from pyro import distributions as dist
    from pyro.infer import MCMC, NUTS

    def model():
        pyro.sample("x", dist.Normal(torch.tensor(2.0, device="ocl"), 0.5))

    sampler = MCMC(NUTS(model, max_tree_depth=3), 30, warmup_steps=20, disable_progbar=True)
    sampler.run()
    assert abs(sampler.get_samples()["x"].mean().item() - 2) < 0.5


@check("torch-geometric", "graph convolutions and attention", tolerance=5e-3)
def _(device):
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(0, 12, (2, 40), generator=generator).to(device)
    x = torch.randn(12, 8, generator=generator).to(device)
    groups = (torch.arange(12) // 6).to(device)
    found = []
    for kind in (GCNConv, SAGEConv, GATConv):
        torch.manual_seed(1)
        layer = kind(8, 4).to(device)
        result = global_mean_pool(layer(x, edges), groups)
        result.sum().backward()
        found.append((result, [p.grad for p in layer.parameters()]))
    return found


@check("torch-geometric", "products with sparse adjacency (EdgeIndex)")
def _(device):
    from torch_geometric import EdgeIndex

    edges = EdgeIndex(
        torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]], device=device),
        sparse_size=(3, 3),
        sort_order="row",
    )
    return edges @ torch.eye(3, device=device)


@check("tensordict", "TensorDict and its modules")
def _(device):
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule

    data = TensorDict({"x": small.points()[0]}, batch_size=[48]).to(device)
    module = TensorDictModule(small.perceptron().to(device), in_keys=["x"], out_keys=["y"])
    found = module(data)
    return found["y"], torch.stack([found, found])[0]["x"], found.reshape(6, 8)["y"].mean(1)


@check("torchrl", "a replay buffer and a loss")
def _(device):
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ReplayBuffer

    buffer = ReplayBuffer(storage=LazyTensorStorage(48, device=device), batch_size=48)
    buffer.extend(TensorDict({"x": small.points()[0]}, batch_size=[48]).to(device))
    return buffer.storage.get(range(48))["x"].square().mean()


@check("torchaudio", "rnnt_loss")
def _():
    """Beside the sum over paths, written out."""
    from torchaudio.functional import rnnt_loss

    g = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 5, 4, 7, generator=g, requires_grad=True)
    targets = torch.randint(0, 6, (2, 3), generator=g).int()
    lengths, counts = torch.tensor([5, 3]).int(), torch.tensor([2, 3]).int()
    known, losses = logits.log_softmax(-1), []
    for b in range(2):
        sums = {(0, 0): known.new_zeros(())}
        for t in range(lengths[b]):
            for u in range(counts[b] + 1):
                ways = [sums[t, u]] if (t, u) in sums else []
                if t:
                    ways.append(sums[t - 1, u] + known[b, t - 1, u, -1])
                if u:
                    ways.append(sums[t, u - 1] + known[b, t, u - 1, targets[b, u - 1]])
                sums[t, u] = torch.stack(ways).logsumexp(0)
        end = lengths[b] - 1, counts[b]
        losses.append(-sums[int(end[0]), int(end[1])] - known[b, end[0], end[1], -1])
    expected = torch.stack(losses)
    (wanted,) = torch.autograd.grad(expected.sum(), logits)
    on_device = logits.detach().to("ocl").requires_grad_()
    settings = [t.to("ocl") for t in (targets, lengths, counts)]
    found = rnnt_loss(on_device, *settings, reduction="none")
    found.sum().backward()
    torch.testing.assert_close(found.cpu(), expected.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(on_device.grad.cpu(), wanted, rtol=1e-4, atol=1e-4)


@check("torchaudio", "filters and effects", tolerance=5e-3)
def _(device):
    from torchaudio import functional as audio

    wave = torch.linspace(0, 400, 2000).sin()[None].to(device)
    spectrum = audio.spectrogram(
        wave, 0, torch.hann_window(128, device=device), 128, 64, 128, 2, False
    )
    return (
        spectrum,
        audio.amplitude_to_DB(spectrum + 1, 10.0, 1e-10, 0.0),
        audio.mu_law_encoding(wave, 256),
        audio.compute_deltas(spectrum),
        audio.fftconvolve(wave, wave[:, :64]),
    )


@check("torchaudio", "spectrograms", tolerance=5e-3)
def _(device):
    from torchaudio import transforms

    wave = torch.linspace(0, 400, 4000).sin()[None].to(device)
    mel = transforms.MelSpectrogram(8000, n_fft=256, n_mels=16).to(device)
    return (
        mel(wave),
        transforms.MFCC(8000, 8, melkwargs={"n_fft": 256, "n_mels": 16}).to(device)(wave),
        transforms.Resample(8000, 4000).to(device)(wave),
    )


@check("openai-whisper", "a model of two layers decodes", tolerance=5e-3)
def _(device):
    from whisper.model import ModelDimensions, Whisper

    torch.manual_seed(1)
    size = ModelDimensions(80, 30, 32, 2, 2, 60, 16, 32, 2, 2)
    model = Whisper(size).eval()
    # Upstream leaves it as the memory was.
    torch.nn.init.normal_(model.decoder.positional_embedding)
    model = model.to(device)
    assert model.device.type == device
    sound = torch.randn(1, 80, 60, generator=torch.Generator().manual_seed(2)).to(device)
    with torch.no_grad():
        return model(sound, torch.arange(5, device=device)[None])


@check("openai-whisper", "load_model of a file, by itself, where cuda means ocl", launches=False)
def _():
    """In a process of its own, since cuda_to_ocl() can't be undone."""
    code = """
    import dataclasses, sys, torch, torch_ocl
    torch_ocl.cuda_to_ocl()
    import whisper
    from whisper.model import ModelDimensions, Whisper
    torch.manual_seed(1)
    size = ModelDimensions(80, 1500, 32, 2, 1, 51865, 32, 32, 2, 1)
    model = Whisper(size)
    torch.nn.init.normal_(model.decoder.positional_embedding)
    state = {"dims": dataclasses.asdict(size), "model_state_dict": model.state_dict()}
    torch.save(state, sys.argv[1])
    for in_memory in (False, True):
        model = whisper.load_model(sys.argv[1], in_memory=in_memory)
        assert model.device == torch.device("ocl", 0), model.device
    found = model.transcribe(torch.randn(16000), language="en", sample_len=4, temperature=0.0)
    assert found["language"] == "en" and found["segments"]
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", textwrap.dedent(code), str(Path(folder, "tiny.pt"))]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@check("torchdiffeq", "an ODE and its adjoint")
def _(device):
    from torchdiffeq import odeint, odeint_adjoint

    model = small.perceptron(2, 2).to(device)

    class Flow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, time, x):
            return self.model(x)

    x, times = torch.ones(3, 2, device=device), torch.linspace(0, 1, 4, device=device)
    found = odeint(Flow(), x, times, method="rk4")
    odeint_adjoint(Flow(), x, times, method="rk4").sum().backward()
    return found, [p.grad for p in model.parameters()]


@check("x-transformers", "a decoder", tolerance=5e-3)
def _(device):
    from x_transformers import Decoder, TransformerWrapper

    torch.manual_seed(1)
    layers = Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True)
    model = TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=layers).eval().to(device)
    return model(torch.arange(16, device=device)[None])


@check("e3nn", "spherical harmonics and tensor products")
def _(device):
    from e3nn import o3

    torch.manual_seed(1)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(2)).to(device)
    harmonics = o3.spherical_harmonics([0, 1, 2], x, normalize=True)
    product = o3.FullyConnectedTensorProduct("0e+1o", "0e+1o", "0e+1o").to(device)
    pair = torch.cat([x[:, :1], x], 1)
    return harmonics, product(pair, pair)


@check("pytorch-optimizer", "optimizers", tolerance=5e-3)
def _(device):
    from pytorch_optimizer import AdaBelief, Lion, Ranger21

    x, labels = (t.to(device) for t in small.points())
    found = []
    for make in (AdaBelief, Lion, lambda p, lr: Ranger21(p, num_iterations=8, lr=lr)):
        model = small.perceptron().to(device)
        optimizer = make(model.parameters(), lr=1e-2)
        found.append(small.fit(model, lambda m: functional.cross_entropy(m(x), labels), optimizer))
    return found


# ---- Parts of PyTorch that stand above ops ----


@check("torch", "torch.export")
def _(device):
    model, x = small.convolutions().eval().to(device), small.images().to(device)
    return torch.export.export(model, (x,)).module()(x)


@check("torch", "torch.jit.trace and script")
def _(device):
    model, x = small.convolutions().eval().to(device), small.images().to(device)
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.trace(model, x), buffer)
    buffer.seek(0)
    return torch.jit.script(model)(x), torch.jit.load(buffer, map_location=device)(x)


@check("torch", "flex_attention, with a mask and backward")
def _(device):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    generator = torch.Generator().manual_seed(1)
    parts = [torch.randn(1, 2, 128, 16, generator=generator).to(device) for _ in range(3)]
    trained = device != "cpu"  # where upstream has no backward
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 128, 128, device=device)
    found = flex_attention(*[p.requires_grad_(trained) for p in parts], block_mask=mask)
    expected = functional.scaled_dot_product_attention(*parts, is_causal=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    if trained:
        wanted = torch.autograd.grad(expected.square().sum(), parts)
        given = torch.autograd.grad(found.square().sum(), parts)
        torch.testing.assert_close(given, wanted, rtol=1e-3, atol=1e-4)
    return found


@check("onnx", "export of a model on a device")
def _():
    import onnx

    buffer = io.BytesIO()
    model, x = small.convolutions().eval().to("ocl"), small.images().to("ocl")
    torch.onnx.export(model, (x,), buffer, dynamo=False)
    onnx.checker.check_model(onnx.load_from_string(buffer.getvalue()))
