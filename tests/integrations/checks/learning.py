"""More of what trains, samples and optimises."""

import tempfile

import torch
from torch.nn import functional

from tests.integrations import small
from tests.integrations.checklist import check
from tests.integrations.small import noise, seeded


def cross_entropy(device):
    x, labels = (t.to(device) for t in small.points())
    return lambda m: functional.cross_entropy(m(x), labels)


@check("accelerate", "save_state and load_state")
def _(device):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=device == "cpu")
    if device != "cpu":
        accelerator.state.device = torch.device(device)
    model = small.perceptron().to(device)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-2))
    small.fit(model, cross_entropy(device), optimizer)
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        before = small.fit(model, cross_entropy(device), optimizer)
        accelerator.load_state(folder)
        after = small.fit(model, cross_entropy(device), optimizer)
    assert next(model.parameters()).device.type == device
    torch.testing.assert_close(before, after)
    return after


@check("peft", "DoRA and AdaLoRA", tolerance=5e-3)
def _(device):
    from peft import AdaLoraConfig, LoraConfig, get_peft_model

    found = []
    for config in (
        LoraConfig(r=4, target_modules=["q_proj"], use_dora=True),
        AdaLoraConfig(init_r=4, target_r=2, target_modules=["q_proj"], total_step=10),
    ):
        model = seeded(get_peft_model, small.llama(), config).to(device)
        x = torch.arange(3, 15, device=device)[None]
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), 0.1)
        found.append(small.fit(model, lambda m, x=x: m(input_ids=x, labels=x).loss, optimizer, 2))
    return found


@check("sentence-transformers", "a loss and its gradients", tolerance=5e-3)
def _(device):
    from sentence_transformers import losses

    model = seeded(torch.nn.Linear, 16, 8).to(device)

    class Embedding(torch.nn.Module):
        def forward(self, features):
            return {"sentence_embedding": model(features["x"])}

    pairs = [{"x": noise(4, 16, seed=s).to(device)} for s in (1, 2)]
    loss = losses.MultipleNegativesRankingLoss(Embedding())(pairs, None)
    loss.backward()
    return loss, model.weight.grad


@check("torchao", "groups of 4 bits in float, and training aware of quantisation")
def _(device):
    from torchao.quantization.qat import FakeQuantizeConfigBase  # noqa: F401 - it is there
    from torchao.quantization.quant_primitives import (
        MappingType,
        choose_qparams_affine,
        dequantize_affine,
        quantize_affine,
    )

    x = noise(8, 64).to(device)
    block = (1, 32)
    scale, zero = choose_qparams_affine(x, MappingType.SYMMETRIC, block, torch.int8)
    bits = quantize_affine(x, block, scale, zero, torch.int8)
    return dequantize_affine(bits, block, scale, zero, torch.int8), scale


@check("lightning", "a saved and continued fit", integration="lightning")
def _():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = small.perceptron()

        def training_step(self, batch, _):
            return functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*small.points()), 16)
    quiet = dict(enable_progress_bar=False, enable_model_summary=False, logger=False)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/last.ckpt"
        trainer = lightning.Trainer(
            accelerator="ocl", devices=1, max_epochs=1, enable_checkpointing=False, **quiet
        )
        trainer.fit(Module(), data)
        trainer.save_checkpoint(path)
        trainer = lightning.Trainer(
            accelerator="ocl", devices=1, max_epochs=2, enable_checkpointing=False, **quiet
        )
        module = Module()
        trainer.fit(module, data, ckpt_path=path)
    assert trainer.current_epoch == 2
    assert trainer.strategy.root_device.type == "ocl"


@check("stable-baselines3", "A2C and SAC")
def _():
    from stable_baselines3 import A2C, SAC

    for kind, world in ((A2C, "CartPole-v1"), (SAC, "Pendulum-v1")):
        extra = {"learning_starts": 10} if kind is SAC else {}
        model = kind("MlpPolicy", world, device="ocl", seed=1, **extra)
        model.learn(30)
        assert model.policy.device.type == "ocl"


@check("skorch", "a regressor, saved and loaded")
def _(device):
    from skorch import NeuralNetRegressor

    x, labels = small.points()
    y = labels.float()[:, None].numpy()
    net = NeuralNetRegressor(
        small.perceptron(outputs=1),
        max_epochs=2,
        lr=0.05,
        device=device,
        verbose=0,
        train_split=None,
        iterator_train__shuffle=False,
    )
    net.fit(x.numpy(), y)
    with tempfile.TemporaryDirectory() as folder:
        net.save_params(f_params=f"{folder}/p.pt")
        net.load_params(f_params=f"{folder}/p.pt")
    return net.predict(x.numpy()).tolist()


@check("torchmetrics", "detection, retrieval and signals", tolerance=5e-3)
def _(device):
    from torchmetrics import retrieval
    from torchmetrics.functional import audio, pairwise_cosine_similarity
    from torchmetrics.functional.image import multiscale_structural_similarity_index_measure

    x, y = noise(8, 32).to(device), noise(8, 32, seed=2).to(device)
    ranks = torch.arange(32, device=device) // 8
    precise = retrieval.RetrievalMAP().to(device)
    images = small.images(1, 180).to(device)
    return (
        audio.signal_noise_ratio(x, y),
        audio.scale_invariant_signal_distortion_ratio(x, y),
        pairwise_cosine_similarity(x, y),
        precise(x[0], (y[0] > 0).long(), indexes=ranks),
        multiscale_structural_similarity_index_measure(images, images.flip(-1), data_range=1.0),
    )


@check("gpytorch", "variational and multitask processes", tolerance=1e-2)
def _(device):
    import gpytorch

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, points):
            distribution = gpytorch.variational.CholeskyVariationalDistribution(points.size(0))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 24, device=device)[:, None]
    y = (x[:, 0] * 6).sin()
    model = Model(x[::4].clone()).to(device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, 24)
    # Away from the start that upstream draws.
    model.variational_strategy.variational_params_initialized.fill_(1)
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], 0.05)
    return small.fit(model, lambda m: -objective(m(x), y), optimizer)


@check("botorch", "candidates from an optimised acquisition", tolerance=2e-2)
def _(device):
    from botorch.acquisition import UpperConfidenceBound
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf

    x = torch.rand(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = -(x - 0.4).square().sum(1, keepdim=True)
    model = SingleTaskGP(x.to(device), y.to(device)).eval()
    bounds = torch.tensor([[0.0, 0], [1, 1]], dtype=torch.float64, device=device)
    start = torch.full((2, 1, 2), 0.3, dtype=torch.float64, device=device)
    point, value = optimize_acqf(
        UpperConfidenceBound(model, beta=0.5),
        bounds,
        1,
        num_restarts=2,
        batch_initial_conditions=start,
    )
    assert point.device.type == device
    return point, value


@check("torchrl", "losses of PPO and DQN, and advantages", tolerance=5e-3)
def _(device):
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.modules import QValueActor, ValueOperator
    from torchrl.objectives import DQNLoss
    from torchrl.objectives.value import GAE

    value = ValueOperator(seeded(torch.nn.Linear, 4, 1), in_keys=["observation"]).to(device)
    data = TensorDict(
        {
            "observation": noise(3, 6, 4),
            "next": {
                "observation": noise(3, 6, 4, seed=2),
                "reward": noise(3, 6, 1, seed=3),
                "done": torch.zeros(3, 6, 1, dtype=torch.bool),
                "terminated": torch.zeros(3, 6, 1, dtype=torch.bool),
            },
        },
        [3, 6],
    ).to(device)
    advantage = GAE(gamma=0.9, lmbda=0.9, value_network=value)(data.clone())["advantage"]
    actor = QValueActor(
        seeded(torch.nn.Linear, 4, 2), in_keys=["observation"], action_space="one-hot"
    )
    loss = DQNLoss(actor.to(device), action_space="one-hot")
    flat = data.reshape(-1)
    flat["action"] = functional.one_hot(torch.arange(18, device=device) % 2, 2)
    found = loss(flat)["loss"]
    found.backward()
    assert isinstance(actor, TensorDictModule)
    return advantage, found


@check("openai-whisper", "greedy decoding, and beams", tolerance=5e-3)
def _(device):
    from whisper import DecodingOptions, decode
    from whisper.model import ModelDimensions, Whisper

    size = ModelDimensions(80, 1500, 32, 2, 1, 51865, 32, 32, 2, 1)
    model = seeded(Whisper, size).eval()
    # Upstream leaves it as the memory was.
    torch.nn.init.normal_(model.decoder.positional_embedding)
    model = model.to(device)
    sound = noise(80, 3000).to(device)
    settings = {"language": "en", "sample_len": 4, "fp16": False}
    found = [
        decode(model, sound, DecodingOptions(**settings, **more)) for more in ({}, {"beam_size": 2})
    ]
    return [f.tokens for f in found], [f.avg_logprob for f in found]


@check("x-transformers", "an encoder and decoder in training", tolerance=5e-3)
def _(device):
    from x_transformers import XTransformer

    model = seeded(
        XTransformer,
        dim=32,
        enc_num_tokens=20,
        enc_depth=1,
        enc_heads=2,
        enc_max_seq_len=16,
        dec_num_tokens=20,
        dec_depth=1,
        dec_heads=2,
        dec_max_seq_len=16,
    ).to(device)
    source, target = torch.arange(16).view(1, 16) % 20, torch.arange(16).flip(0).view(1, 16) % 20
    source, target = source.to(device), target.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    return small.fit(model, lambda m: m(source, target), optimizer)


@check("pyro-ppl", "a mixture with hidden classes", tolerance=2e-2)
def _(device):
    import pyro
    from pyro import distributions as dist
    from pyro.infer import SVI, TraceEnum_ELBO, config_enumerate

    pyro.clear_param_store()
    seen = torch.tensor([0.0, 0.3, 4.0, 4.2], device=device)

    def model():
        places = pyro.param("places", torch.tensor([0.5, 3.0], device=device))
        with pyro.plate("data", 4):
            kind = pyro.sample("kind", dist.Categorical(torch.ones(2, device=device) / 2))
            pyro.sample("seen", dist.Normal(places[kind], 1.0), obs=seen)

    loss = TraceEnum_ELBO(max_plate_nesting=1)
    steps = SVI(config_enumerate(model), lambda: None, pyro.optim.Adam({"lr": 0.1}), loss)
    return [steps.step() for _ in range(5)], pyro.param("places")


@check("opacus", "a layer of attention with gradients for each sample", tolerance=5e-3)
def _(device):
    from opacus import GradSampleModule
    from opacus.layers import DPMultiheadAttention

    layer = GradSampleModule(seeded(DPMultiheadAttention, 16, 2)).to(device)
    x = noise(3, 4, 16).to(device)
    layer(x, x, x)[0].square().sum().backward()
    return [p.grad_sample for p in layer.parameters()]


@check("onnx", "weights of a device in an exported model")
def _():
    import io

    import onnx
    from onnx import numpy_helper

    model, buffer = small.perceptron().to("ocl"), io.BytesIO()
    torch.onnx.export(model, (small.points()[0].to("ocl"),), buffer, dynamo=False)
    found = onnx.load_from_string(buffer.getvalue()).graph.initializer
    names = {
        weight.name: torch.from_numpy(numpy_helper.to_array(weight).copy()) for weight in found
    }
    torch.testing.assert_close(names["0.weight"], model[0].weight.detach().cpu())


@check("torch", "torch.func: vmap of gradients, and a Jacobian")
def _(device):
    from torch import func

    model = small.perceptron().to(device)
    parameters = dict(model.named_parameters())
    x, labels = (t.to(device) for t in small.points(6))

    def loss(p, one, label):
        return functional.cross_entropy(func.functional_call(model, p, (one[None],)), label[None])

    each = func.vmap(func.grad(loss), (None, 0, 0))(parameters, x, labels)
    return each, func.jacrev(lambda v: model(v).sin())(x[0])


@check("torch", "attention of jagged nested tensors")
def _():
    made = [noise(n, 32, seed=n) for n in (3, 7, 5)]
    nested = torch.nested.nested_tensor(made, layout=torch.jagged, device="ocl")
    heads = nested.detach().requires_grad_().unflatten(-1, (2, 16)).transpose(1, 2)
    found = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    for row, one in zip(found.transpose(1, 2).unbind(), made, strict=True):
        alone = one.unflatten(-1, (2, 16)).transpose(0, 1)
        expected = functional.scaled_dot_product_attention(alone, alone, alone, is_causal=True)
        torch.testing.assert_close(row.cpu(), expected.transpose(0, 1), rtol=1e-4, atol=1e-4)
