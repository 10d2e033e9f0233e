"""Networks for text and speech, as transformers builds them from small configurations."""

import copy

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional

from tests.models.comparison import assert_close_in, assert_same_network

WORDS = 128
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WHISPER = {
    "vocab_size": WORDS,
    "d_model": 64,
    **{
        f"{part}_{what}": n
        for part in ("encoder", "decoder")
        for what, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 96))
    },
    "max_source_positions": 50,
    "max_target_positions": 64,
    "num_mel_bins": 20,
    "dropout": 0.0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "begin_suppress_tokens": None,
}
NETWORKS = {
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "vocab_size": WORDS,
            "n_embd": 64,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 128,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    "bert": ("BertForMaskedLM", "BertConfig", {**SIZES, **QUIET}),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {
            "vocab_size": WORDS,
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 96,
            "num_layers": 2,
            "num_heads": 4,
            "dropout_rate": 0.0,
            "decoder_start_token_id": 0,
        },
    ),
    "vit": (
        "ViTForImageClassification",
        "ViTConfig",
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 96,
            "image_size": 32,
            "patch_size": 8,
            "num_labels": 10,
            **QUIET,
        },
    ),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER),
}
WRITERS = ["gpt2", "llama", "qwen2", "t5", "whisper"]


def make(name):
    torch.manual_seed(0)
    model, config, arguments = NETWORKS[name]
    return getattr(transformers, model)(getattr(transformers, config)(**arguments))


def inputs_of(name):
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(3, WORDS, (2, 17), generator=generator)
    if name == "vit":
        images = torch.randn(2, 3, 32, 32, generator=generator)
        return {"pixel_values": images, "labels": torch.tensor([1, 2])}
    if name == "whisper":
        return {"input_features": torch.randn(2, 20, 100, generator=generator), "labels": words}
    return {"input_ids": words, "labels": words}


def call(model, inputs):
    out = model(**inputs)
    return out.logits, out.loss


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name):
    assert_same_network(make(name), inputs_of(name), call)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama", "bert", "t5"])
def test_half_types(name, dtype):
    tolerance = {torch.float16: 1e-2, torch.bfloat16: 6e-2}[dtype]
    assert_close_in(dtype, make(name), inputs_of(name), call, tolerance)


def source_of(name):
    inputs = inputs_of(name)
    return {k: v for k, v in inputs.items() if k != "labels"}


@pytest.mark.parametrize("name", WRITERS)
def test_generation(name):
    """Greedy: the CPU's tokens; sampled: the same tokens from the same seed."""
    model = make(name).eval()
    settings = {"max_new_tokens": 16, "pad_token_id": 0}
    want = model.generate(**source_of(name), do_sample=False, **settings)
    model = copy.deepcopy(model).to("ocl")
    source = {k: v.to("ocl") for k, v in source_of(name).items()}
    got = model.generate(**source, do_sample=False, **settings)
    assert got.tolist() == want.tolist()
    if name == "whisper":  # its own generation ignores the limits to likely tokens
        return
    drawn = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        drawn.append(
            model.generate(**source, do_sample=True, top_k=20, top_p=0.9, **settings).tolist()
        )
    assert drawn[0] == drawn[1] and drawn[0] != drawn[2]


class CharacterLSTM(nn.Module):
    def __init__(self, letters=30):
        super().__init__()
        self.embedding = nn.Embedding(letters, 16)
        self.lstm = nn.LSTM(16, 32, num_layers=2, batch_first=True)
        self.head = nn.Linear(32, letters)

    def forward(self, text):
        return self.head(self.lstm(self.embedding(text))[0])


def predict(model, text):
    scores = model(text[:, :-1])
    return scores, functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())


def character_lstm():
    torch.manual_seed(0)
    text = torch.randint(0, 30, (4, 21), generator=torch.Generator().manual_seed(1))
    return CharacterLSTM(), text, predict


def test_character_lstm():
    assert_same_network(*character_lstm())


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_layers(norm_first):
    torch.manual_seed(0)
    model = nn.Transformer(32, 4, 1, 1, 48, dropout=0.0, batch_first=True, norm_first=norm_first)

    def translate(model, inputs):
        source, target = inputs
        mask = nn.Transformer.generate_square_subsequent_mask(
            target.shape[1], target.device, target.dtype
        )
        out = model(source, target, tgt_mask=mask)
        return out, out.square().mean()

    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randn(2, n, 32, generator=generator) for n in (9, 7))
    assert_same_network(model, (source, target), translate)
