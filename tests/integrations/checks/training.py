"""Libraries that train: Lightning, fastai, Ignite, skorch, Stable-Baselines3, and optimizers."""

import tempfile
import warnings

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tests.integrations import small
from tests.integrations.checklist import check


def loader(batch_size=16):
    return DataLoader(TensorDataset(*small.points()), batch_size=batch_size)


# ---- Lightning ----


def lightning_module(package):
    class Module(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = small.perceptron()
            self.seen = []

        def training_step(self, batch, index):
            x, labels = batch
            self.seen.append(self.device.type)
            loss = functional.cross_entropy(self.model(x), labels)
            self.log("loss", loss)
            self.found.append(loss.item())
            return loss

        def validation_step(self, batch, index):
            self.log("accuracy", (self.model(batch[0]).argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.5)

    module = Module()
    module.found = []
    return module


def lightning_losses(accelerator, **arguments):
    import lightning

    module = lightning_module(lightning.pytorch)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.pytorch.Trainer(
            accelerator=accelerator,
            max_epochs=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            gradient_clip_val=1.0,
            **arguments,
        )
        trainer.fit(module, loader(), loader())
        trainer.save_checkpoint(f"{folder}/last.ckpt")
        accuracy = trainer.validate(module, loader(), verbose=False)[0]["accuracy"]
    return module.found, accuracy, set(module.seen)


def near(found, expected):
    assert len(found) == len(expected) > 0
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


@check("lightning", "Trainer(accelerator='ocl')", integration="lightning")
def _(device):
    found, accuracy, devices = lightning_losses(device, devices=1)
    assert devices == {device}
    return found, accuracy


@check("lightning", "mixed precision", integration="lightning")
def _():
    expected, _, _ = lightning_losses("cpu")
    for precision in ("16-mixed", "bf16-mixed"):
        found, _, devices = lightning_losses("ocl", precision=precision)
        assert devices == {"ocl"}
        near(found, expected)


@check("lightning", "accelerator='auto'", integration="lightning", mode="always")
def _():
    assert lightning_losses("auto")[2] == {"ocl"}


@check("lightning", "Fabric", integration="lightning")
def _(device):
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator=device, devices=1)
    model = small.perceptron()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.5))
    found = []
    for x, labels in fabric.setup_dataloaders(loader()):
        assert x.device.type == device
        loss = functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        found.append(loss.item())
    return found


@check("lightning", "Fabric in float16", integration="lightning")
def _():
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="ocl", precision="16-mixed")
    model = small.perceptron()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.5))
    x, labels = next(iter(fabric.setup_dataloaders(loader())))
    before = functional.cross_entropy(model(x), labels)
    fabric.backward(before)
    optimizer.step()
    assert functional.cross_entropy(model(x), labels) < before


# ---- fastai ----


def learner(device):
    import fastai.callback.fp16
    import fastai.callback.progress  # noqa: F401
    from fastai.basics import CrossEntropyLossFlat, DataLoaders, Learner, accuracy

    x, labels = small.points()
    pairs = list(zip(x, labels, strict=True))
    loaders = DataLoaders.from_dsets(pairs, pairs, bs=16, device=device, shuffle=False)
    made = Learner(loaders, small.perceptron(), loss_func=CrossEntropyLossFlat(), metrics=accuracy)
    made.remove_cbs([c for c in made.cbs if type(c).__name__ == "ProgressCallback"])
    made.create_opt()
    return made


def fastai_losses(made):
    with made.no_bar(), made.no_logging():
        made.fit(2, lr=0.02)
    return [float(value) for value in made.recorder.losses]


@check("fastai", "Learner.fit", tolerance=5e-3)
def _(device):
    return fastai_losses(learner(torch.device(device)))


@check("fastai", "to_fp16", integration="fastai")
def _():
    made = learner(torch.device("ocl"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fastai_losses(made.to_fp16())
    near(found, fastai_losses(learner(torch.device("cpu"))))
    assert made.model[0].weight.device.type == "ocl"


@check("fastai", "the default device", integration="fastai", mode="always", launches=False)
def _():
    from fastai.torch_core import default_device

    assert default_device() == torch.device("ocl", 0)
    assert default_device(False).type == "cpu"
    assert default_device(None).type == "ocl"


# ---- Ignite, skorch ----


@check("pytorch-ignite", "a trainer and metrics")
def _(device):
    from ignite.engine import create_supervised_evaluator, create_supervised_trainer
    from ignite.metrics import Accuracy, Loss

    model = small.perceptron().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    trainer = create_supervised_trainer(model, optimizer, functional.cross_entropy, device=device)
    trainer.run(loader(), max_epochs=2)
    measured = {"accuracy": Accuracy(device=device), "loss": Loss(functional.cross_entropy)}
    evaluator = create_supervised_evaluator(model, metrics=measured, device=device)
    evaluator.run(loader())
    return dict(evaluator.state.metrics)


@check("pytorch-ignite", "idist.device()", integration="ignite", mode="always", launches=False)
def _():
    import ignite.distributed as idist

    assert idist.device().type == "ocl"


@check("skorch", "a classifier")
def _(device):
    from skorch import NeuralNetClassifier

    x, labels = small.points()
    net = NeuralNetClassifier(
        small.perceptron(),
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=3,
        lr=0.5,
        train_split=None,
        iterator_train__shuffle=False,
        device=device,
        verbose=0,
    )
    net.fit(x, labels)
    return torch.from_numpy(net.predict_proba(x)), [row["train_loss"] for row in net.history]


# ---- Stable-Baselines3 ----


@check("stable-baselines3", "PPO")
def _():
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=16, seed=0, device="ocl")
    model.learn(64)
    assert model.policy.device.type == "ocl"
    assert model.predict(model.observation_space.sample())[0] in (0, 1)


@check("stable-baselines3", "DQN and its saved policy")
def _():
    from stable_baselines3 import DQN

    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=8, batch_size=8, seed=0, device="ocl")
    model.learn(32)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/dqn")
        again = DQN.load(f"{folder}/dqn", device="ocl")
    for ours, theirs in zip(model.policy.parameters(), again.policy.parameters(), strict=True):
        assert ours.device.type == theirs.device.type == "ocl" and ours.equal(theirs)


@check(
    "stable-baselines3",
    "device='auto'",
    integration="stable_baselines3",
    mode="always",
    launches=False,
)
def _():
    from stable_baselines3 import PPO
    from stable_baselines3.common.utils import get_device

    assert get_device().type == "ocl" and get_device("cpu").type == "cpu"
    assert PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8).policy.device.type == "ocl"


# ---- Metrics, optimizers ----


@check("torchmetrics", "classification and regression")
def _(device):
    from torchmetrics import (
        AUROC,
        Accuracy,
        ConfusionMatrix,
        F1Score,
        MeanSquaredError,
        MetricCollection,
        PearsonCorrCoef,
    )

    x, labels = (t.to(device) for t in small.points())
    scores = x[:, :3].softmax(1)
    task = {"task": "multiclass", "num_classes": 3}
    made = MetricCollection(
        [Accuracy(**task), F1Score(**task, average="macro"), ConfusionMatrix(**task), AUROC(**task)]
    ).to(device)
    for part, wanted in zip(scores.split(16), labels.split(16), strict=True):
        made.update(part, wanted)
    error, correlation = MeanSquaredError().to(device), PearsonCorrCoef().to(device)
    return made.compute(), error(x[:, 0], x[:, 1]), correlation(x[:, 0], x[:, 1])


@check("torchmetrics", "images and text")
def _(device):
    from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure
    from torchmetrics.text import Perplexity

    a, b = small.images(4).to(device).split(2)
    scores = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(1)).to(device)
    return (
        PeakSignalNoiseRatio(data_range=1.0).to(device)(a, b),
        StructuralSimilarityIndexMeasure(data_range=1.0).to(device)(a, b),
        Perplexity().to(device)(scores, scores.argmax(2)),
    )


@check("timm", "optimizers", tolerance=5e-3)
def _(device):
    import timm.optim

    x, labels = (t.to(device) for t in small.points())
    found = {}
    for name in ("sgd", "adamw", "lamb", "lion", "adan", "nadamw", "adafactor", "muon", "madgrad"):
        model = small.perceptron().to(device)
        optimizer = timm.optim.create_optimizer_v2(model, name, lr=1e-2, weight_decay=0.01)
        found[name] = small.fit(model, lambda m: functional.cross_entropy(m(x), labels), optimizer)
    return found


@check("torch-ema", "an average of parameters")
def _(device):
    from torch_ema import ExponentialMovingAverage

    model = small.perceptron().to(device)
    average = ExponentialMovingAverage(model.parameters(), 0.9)
    x, labels = (t.to(device) for t in small.points())
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    small.fit(model, lambda m: functional.cross_entropy(m(x), labels), optimizer)
    average.update()
    with average.average_parameters():
        return model(x)


@check("opacus", "differentially private training", tolerance=5e-3)
def _(device):
    from opacus import GradSampleModule

    x, labels = (t.to(device) for t in small.points())
    model = GradSampleModule(small.perceptron().to(device))
    functional.cross_entropy(model(x), labels).backward()
    return [p.grad_sample.flatten(1).norm(dim=1) for p in model.parameters()]


@check("pytorch-metric-learning", "losses and a miner")
def _(device):
    from pytorch_metric_learning import losses, miners

    x, labels = (t.to(device) for t in small.points())
    pairs = miners.MultiSimilarityMiner()(x, labels)
    return losses.TripletMarginLoss()(x, labels, pairs), losses.NTXentLoss()(x, labels)
