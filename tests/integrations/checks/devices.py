"""Libraries that find or know devices by their names, and caches that ask for CUDA's streams."""

import torch
from torch.nn import functional

from tests.integrations import small
from tests.integrations.checklist import check
from tests.integrations.small import noise, seeded
from torch_ocl.integrations import _choice


@check("lm_eval", "likelihoods of continuations, by --device", integration="lm_eval")
def _(device):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=str(small.llama_folder()), device=device, batch_size=2)
    assert model.device.type == model.model.device.type == device
    pairs = [("a the cat", " dog"), ("she sees", " the tree"), ("he", " likes a small bird")]
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    return model.loglikelihood(asked, disable_tqdm=True)


@check("lm_eval", "the default device", integration="lm_eval", mode="always", launches=False)
def _():
    from lm_eval.models.huggingface import HFLM

    folder = str(small.llama_folder())
    # The command gives it this device where none is named.
    assert HFLM(pretrained=folder, device="cuda:0").model.device.type == "ocl"
    _choice._hinted.clear()
    assert HFLM(pretrained=folder, device="cpu").model.device.type == "cpu"
    assert "accelerate" in _choice._hinted  # A program that wants the CPU gets no hint.


@check("torch-geometric", "device('auto')", integration="torch_geometric", mode="always")
def _():
    import torch_geometric
    from torch_geometric.nn import GCNConv

    device = torch_geometric.device("auto")
    assert device.type == "ocl" and torch_geometric.device("cpu").type == "cpu"
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]], device=device)
    layer = GCNConv(4, 2).to(device)
    assert layer(noise(3, 4).to(device), edges).device.type == "ocl"


@check("torch-geometric", "a loader that prefetches", integration="torch_geometric")
def _(device):
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader, PrefetchLoader

    graphs = [Data(x=noise(3, 4, seed=seed)) for seed in range(4)]
    batches = list(PrefetchLoader(DataLoader(graphs, 2), device=torch.device(device)))
    assert {batch.x.device.type for batch in batches} == {device}
    return [batch.x.sin() for batch in batches]


@check("torch-geometric", "GraphGym's device", integration="torch_geometric", mode="always",
       launches=False)  # fmt: skip
def _():
    from torch_geometric.graphgym.config import cfg, set_cfg
    from torch_geometric.graphgym.utils.device import auto_select_device

    set_cfg(cfg)
    auto_select_device()
    assert (cfg.accelerator, cfg.devices) == ("ocl", 1)
    cfg.accelerator = "cpu"
    auto_select_device()
    assert cfg.accelerator == "cpu"


@check("torchrl", "a collector", integration="torchrl")
def _():
    from torchrl.collectors import Collector
    from torchrl.envs import GymEnv

    collector = Collector(
        GymEnv("CartPole-v1", device="ocl"), None, frames_per_batch=8, total_frames=8, device="ocl"
    )
    for data in collector:
        assert data["observation"].device.type == "ocl"


@check("torchrl", "a collector of a CPU's environment with a policy on a device")
def _(device):
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import Collector
    from torchrl.envs import GymEnv

    policy = TensorDictModule(
        seeded(torch.nn.Linear, 4, 2), in_keys=["observation"], out_keys=["action"]
    ).to(device)
    world = GymEnv("CartPole-v1", device="cpu")
    world.set_seed(3)
    collector = Collector(
        world, policy, frames_per_batch=8, total_frames=16,
        policy_device=device, env_device="cpu", storing_device="cpu",
    )  # fmt: skip
    return [(data["observation"], data["action"]) for data in collector]


@check("torchrl", "the device that it finds", integration="torchrl", mode="always", launches=False)
def _():
    from torchrl._utils import get_available_device

    assert get_available_device() == torch.device("ocl:0")
    assert get_available_device(return_str=True) == "ocl:0"


@check("transformers", "caches offloaded to the host", integration="transformers")
def _(device):
    model = small.llama().to(device)
    tokens = small.tokens(8).to(device)
    # Upstream's know accelerators alone. On the CPU the tokens are those of any cache.
    kinds = ("offloaded", "offloaded_static") if device == "ocl" else ("dynamic", "static")
    found = []
    for kind in kinds:
        arguments = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": kind}
        found.append(model.generate(tokens, **arguments))
    return found


@check("torchtitan", "a Llama in training", integration="torchtitan", tolerance=5e-3)
def _(device):
    from torchtitan.models.common.attention import ScaledDotProductAttention
    from torchtitan.models.llama3 import _debugmodel

    config = _debugmodel("flex")
    for layer in config.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    torch.manual_seed(1)
    model = config.build()
    model.init_states()
    model = model.to(device)
    tokens = (torch.arange(32).view(2, 16) % 20).to(device)

    def loss(m):
        logits = m(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    return small.fit(model, loss, torch.optim.AdamW(model.parameters(), 1e-3), 2)
