"""transformers' from_pretrained(gguf_file=...) on `ocl`: the weights of its layers stay packed."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from tests.gguf_files import write_llama
from torch_ocl.utils.gguf import GGUFTensor


@pytest.fixture(params=[False, True], ids=["", "tied"])
def folder(request, tmp_path):
    write_llama(tmp_path / "model.gguf", tied=request.param)
    return tmp_path


def load(folder, device, **arguments):
    return AutoModelForCausalLM.from_pretrained(
        folder, gguf_file="model.gguf", device_map=device, **arguments
    )


TOKENS = torch.tensor([[1, 7, 3, 19, 0, 4]])


def test_the_weights_stay_packed(folder):
    model = load(folder, "ocl")
    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Embedding))]
    assert len(layers) == 16 and all(isinstance(layer.weight, GGUFTensor) for layer in layers)
    assert {layer.weight.device.type for layer in layers} == {"ocl"}
    plain = load(folder, "cpu")
    assert not any(isinstance(p, GGUFTensor) for p in plain.parameters())
    with torch.no_grad():
        wanted = plain(TOKENS).logits
        for count in (1, 6):
            found = model(TOKENS[:, :count].to("ocl")).logits
            assert_close(found.cpu(), wanted[:, :count], rtol=1e-3, atol=1e-3)
        rows = torch.arange(20).repeat(2, 1)
        assert_close(model(rows.to("ocl")).logits.cpu(), plain(rows).logits, rtol=1e-3, atol=1e-3)
    texts = [
        m.generate(TOKENS.to(m.device), max_new_tokens=6, do_sample=False) for m in (model, plain)
    ]
    assert torch.equal(texts[0].cpu(), texts[1])
    assert not torch.ocl.fallback_counts()


def test_in_bfloat16_and_unpacked(tmp_path):
    from transformers import GgufConfig

    write_llama(tmp_path / "model.gguf")
    model = load(tmp_path, "ocl", dtype=torch.bfloat16)
    assert isinstance(model.lm_head.weight, GGUFTensor)
    logits = model(TOKENS.to("ocl")).logits
    assert logits.dtype == torch.bfloat16
    unpacked = load(tmp_path, "ocl", quantization_config=GgufConfig(dequantize=True))
    assert type(unpacked.lm_head.weight.data) is torch.Tensor
    wanted = unpacked(TOKENS.to("ocl")).logits
    assert (logits - wanted).norm() < 0.05 * wanted.norm()


@pytest.mark.parametrize("places", [["ocl", "cpu"], [0, "cpu"]])
def test_weights_in_several_places_are_unpacked(places):
    """Only their places are asked here: upstream loads them."""
    from transformers import GgufConfig
    from transformers.quantizers.quantizer_gguf import GgufHfQuantizer

    quantizer = GgufHfQuantizer(GgufConfig())
    quantizer.update_device_map(dict(zip("ab", places, strict=True)))
    assert quantizer._all_on_ocl is False
    quantizer.update_device_map({"": "ocl:0"})
    assert quantizer._all_on_ocl is True


def test_a_low_rank_matrix_trains_beside_them(tmp_path):
    from peft import LoraConfig, get_peft_model

    write_llama(tmp_path / "model.gguf")
    model = load(tmp_path, "ocl")
    assert model.hf_quantizer.is_trainable
    targets = ["q_proj", "down_proj"]
    model = get_peft_model(model, LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM"))
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == 8 and not any(isinstance(p, GGUFTensor) for p in trained)
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    tokens, losses = TOKENS.to("ocl"), []
    for _ in range(8):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
