"""transformers' from_pretrained of GPTQ's and AWQ's checkpoints on `ocl`: weights stay packed, and
no other package is needed."""

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from tests.integer_checkpoints import quantization, weight, write_llama
from torch_ocl.integrations import _checkpoints
from torch_ocl.utils.int4 import Int4Tensor

CHECKPOINTS = {
    "gptq": {"method": "gptq"},
    "gptq-order": {"method": "gptq", "order": True},
    "gptq-32": {"method": "gptq", "group": 32, "symmetric": True},
    "gptq-column": {"method": "gptq", "group": -1},
    "gptq-v2": {"method": "gptq", "group": 64, "order": True, "version": 2},
    "gptq-bias": {"method": "gptq", "bias": True},
    "awq": {"method": "awq"},
    "awq-64": {"method": "awq", "group": 64, "bias": True},
}
TOKENS = torch.tensor([[1, 7, 3, 19, 0, 4]])


def load(folder, **arguments):
    return AutoModelForCausalLM.from_pretrained(folder, device_map="ocl", **arguments)


def packed(model):
    return [m.weight for m in model.modules() if isinstance(getattr(m, "weight", None), Int4Tensor)]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits_and_memory(name, tmp_path):
    exact = write_llama(tmp_path, **CHECKPOINTS[name])
    model = load(tmp_path, dtype=torch.float32)
    layers = packed(model)
    assert len(layers) == 14 and {layer.device.type for layer in layers} == {"ocl"}
    kept = sum(p.untyped_storage().nbytes() for layer in layers for p in layer_parts(layer))
    numbers = sum(layer.numel() for layer in layers)
    # Half a byte a number, 4 bytes a group and 4 a column of another order.
    groups = {"gptq-32": 32, "gptq-v2": 64, "awq-64": 64}.get(name, 128)
    assert kept <= numbers * (0.5 + 4 / groups) + 4 * 14 * 384
    with torch.no_grad():
        for count in (1, 6):
            wanted = exact(TOKENS[:, :count]).logits
            found = model(TOKENS[:, :count].ocl()).logits
            assert_close(found.cpu().double(), wanted, rtol=1e-4, atol=1e-4)
        rows = torch.arange(20).repeat(2, 1)
        found = model(rows.ocl()).logits
        assert_close(found.cpu().double(), exact(rows).logits, rtol=1e-4, atol=1e-4)
    texts = [
        m.generate(TOKENS.to(m.device), max_new_tokens=6, do_sample=False) for m in (model, exact)
    ]
    assert torch.equal(texts[0].cpu(), texts[1])
    assert not torch.ocl.fallback_counts()


def layer_parts(layer):
    return [part for part in (layer.bits, layer.pairs, layer.order) if part is not None]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["gptq-order", "awq"])
def test_in_halves(name, dtype, tmp_path):
    exact = write_llama(tmp_path, **CHECKPOINTS[name])
    model = load(tmp_path, dtype=dtype)
    assert {layer.pairs.dtype for layer in packed(model)} == {torch.float16}
    with torch.no_grad():
        for count in (1, 6):
            found = model(TOKENS[:, :count].ocl()).logits
            wanted = exact(TOKENS[:, :count]).logits
            assert found.dtype == dtype
            error = (found.cpu().double() - wanted).norm() / wanted.norm()
            assert error < (0.02 if dtype == torch.bfloat16 else 0.003)


def test_the_dtype_and_config_of_a_checkpoint(tmp_path):
    write_llama(tmp_path, "gptq")
    model = load(tmp_path)
    assert model.dtype == torch.bfloat16 and model.config.quantization_config.bits == 4
    assert not any(p.requires_grad for p in packed(model))
    assert model.is_quantized and model.hf_quantizer.is_trainable
    with pytest.raises(ValueError, match="not serializable"):
        model.save_pretrained(tmp_path / "other")


@pytest.mark.parametrize("name", ["gptq-order", "awq"])
def test_compiled(name, tmp_path):
    exact = write_llama(tmp_path, **CHECKPOINTS[name])
    model = load(tmp_path, dtype=torch.float32)
    step = torch.compile(model)
    with torch.no_grad():
        for tokens in (TOKENS, TOKENS[:, :1]):
            found = step(tokens.ocl(), use_cache=False).logits
            assert_close(found.cpu().double(), exact(tokens).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gptq-order", "awq"])
def test_a_low_rank_matrix_trains_beside_them(name, tmp_path):
    from peft import LoraConfig, get_peft_model

    exact = write_llama(tmp_path, **CHECKPOINTS[name])
    model = load(tmp_path, dtype=torch.float32)
    losses = []
    for network in (model, exact.float()):
        torch.manual_seed(0)
        targets = ["q_proj", "down_proj"]
        network = get_peft_model(
            network, LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM")
        )
        trained = [p for p in network.parameters() if p.requires_grad]
        assert len(trained) == 8 and not any(isinstance(p, Int4Tensor) for p in trained)
        for index, parameter in enumerate(trained):
            made = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index))
            parameter.data.copy_(made * 0.02)
        optimizer = torch.optim.AdamW(trained, lr=1e-2)
        tokens = TOKENS.to(network.device)
        for _ in range(6):
            loss = network(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert losses[5] < 0.8 * losses[0]
    assert_close(torch.tensor(losses[:6]), torch.tensor(losses[6:]), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("bits", [2, 8])
def test_other_bits_become_numbers(bits, tmp_path):
    exact = write_llama(tmp_path, "gptq", bits=bits, order=True)
    model = load(tmp_path, dtype=torch.float32)
    assert not packed(model)
    found = model(TOKENS.ocl()).logits
    assert_close(found.cpu().double(), exact(TOKENS).logits, rtol=1e-4, atol=1e-4)


def test_layers_that_are_transposed(tmp_path):
    """GPT-2's."""
    import json

    from safetensors.torch import save_file

    sizes = dict(n_embd=64, n_layer=1, n_head=2, vocab_size=16, n_positions=16)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**sizes)).double().eval()
    state = {name: value.float() for name, value in model.state_dict().items()}
    del state["lm_head.weight"]
    name = "transformer.h.0.mlp.c_fc"
    made, exact = weight("gptq", 256, 64, 32)
    model.get_submodule(name).weight.data.copy_(exact.t())
    del state[f"{name}.weight"]
    save_file(
        state | {f"{name}.{key}": part for key, part in made.items()},
        tmp_path / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = json.loads(model.config.to_json_string())
    config["architectures"] = ["GPT2LMHeadModel"]
    config["quantization_config"] = quantization("gptq", 32, False, 4, False, 1)
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokens = TOKENS % 16
    found = load(tmp_path, dtype=torch.float32)(tokens.ocl()).logits
    assert_close(found.cpu().double(), model(tokens).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_tensors_of_compressed_tensors(symmetric, order):
    """Without the package, which transformers needs to read the config of such a checkpoint."""
    made, exact = weight("compressed-tensors", 48, 256, 64, order, 4, symmetric)
    read = {name: part.ocl() for name, part in made.items()}
    found = _checkpoints.weight_of(_checkpoints._compressed(read, 4, None), 4, torch.float32)
    assert isinstance(found, Int4Tensor)
    assert_close(found.dequantize().cpu().double(), exact, rtol=1e-6, atol=1e-7)


def test_groups_that_no_product_takes():
    for n, k, group in ((16, 96, 48), (16, 48, 16), (16, 72, 72)):
        made, exact = weight("gptq", n, k, group)
        read = {name: part.ocl() for name, part in made.items()}
        config = type("Config", (), {"format": "gptq"})
        found = _checkpoints.weight_of(_checkpoints._gptq(read, 4, config), 4, torch.float32)
        assert type(found) is torch.Tensor
        assert_close(found.cpu().double(), exact, rtol=1e-6, atol=1e-7)


def test_groups_of_unequal_sizes():
    made, _ = weight("gptq", 16, 128, 64)
    made["g_idx"][3] = 1
    read = {name: part.ocl() for name, part in made.items()}
    config = type("Config", (), {"format": "gptq"})
    integers = _checkpoints._gptq(read, 4, config)
    found = _checkpoints.weight_of(integers, 4, torch.float32).cpu()
    column = integers.values[:, 3].cpu() - integers.points[1].cpu().float()
    assert type(found) is torch.Tensor
    assert_close(found[:, 3], column * integers.scales[1].cpu().float())


@pytest.mark.parametrize("places", [{"": "cpu"}, None])
def test_models_elsewhere_are_upstreams(places, tmp_path):
    """It asks for its own packages."""
    write_llama(tmp_path, "gptq")
    with pytest.raises(ImportError, match="optimum"):
        AutoModelForCausalLM.from_pretrained(tmp_path, device_map=places)


def test_a_part_that_stays_on_the_cpu(tmp_path):
    """It is packed for the device that computes it."""
    exact = write_llama(tmp_path, "awq")
    places = {"model.embed_tokens": "ocl", "model.rotary_emb": "ocl", "model.layers.0": "ocl"}
    places |= {"model.layers.1": "cpu", "model.norm": "ocl", "lm_head": "ocl"}
    model = AutoModelForCausalLM.from_pretrained(tmp_path, device_map=places, dtype=torch.float32)
    assert len(packed(model)) == 14
    with torch.no_grad():
        found = model(TOKENS.ocl()).logits
    assert_close(found.cpu().double(), exact(TOKENS).logits, rtol=1e-4, atol=1e-4)
