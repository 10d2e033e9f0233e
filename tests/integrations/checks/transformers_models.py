"""Models of transformers, each tiny and with random weights."""

import torch

from tests.integrations import small
from tests.integrations.checklist import check
from tests.integrations.small import SMALL, noise, seeded, tokens


def transformer(config, model, device, **sizes):
    import transformers

    made = seeded(getattr(transformers, model), getattr(transformers, config)(**sizes))
    return made.eval().to(device)


@check("transformers", "BERT: training of a classifier", tolerance=5e-3)
def _(device):
    model = transformer(
        "BertConfig",
        "BertForSequenceClassification",
        device,
        **SMALL,
        intermediate_size=64,
        vocab_size=40,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ).train()
    batch = {"input_ids": tokens().to(device), "labels": torch.tensor([0, 2], device=device)}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    return small.fit(model, lambda m: m(**batch).loss, optimizer)


@check("transformers", "ViT", tolerance=5e-3)
def _(device):
    model = transformer(
        "ViTConfig",
        "ViTForImageClassification",
        device,
        **SMALL,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=3,
    )
    return model(small.images().to(device)).logits


@check("transformers", "CLIP", tolerance=5e-3)
def _(device):
    from transformers import CLIPConfig

    sizes = {**SMALL, "intermediate_size": 64}
    config = CLIPConfig(
        text_config={**sizes, "vocab_size": 40, "eos_token_id": 2},
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    from transformers import CLIPModel

    model = seeded(CLIPModel, config).eval().to(device)
    found = model(input_ids=tokens(8).to(device), pixel_values=small.images().to(device))
    return found.logits_per_image, found.text_embeds


@check("transformers", "T5: generate with an encoder", tolerance=5e-3)
def _(device):
    model = transformer(
        "T5Config",
        "T5ForConditionalGeneration",
        device,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        vocab_size=40,
        decoder_start_token_id=0,
    )
    return model.generate(tokens().to(device), max_new_tokens=6, do_sample=False, num_beams=2)


@check("transformers", "Whisper: generate", tolerance=5e-3)
def _(device):
    model = transformer(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        device,
        vocab_size=60,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=30,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    sound = noise(1, 16, 60).to(device)
    start = torch.tensor([[1, 5]], device=device)
    return model(input_features=sound, decoder_input_ids=start).logits


@check("transformers", "Wav2Vec2", tolerance=5e-3)
def _(device):
    model = transformer(
        "Wav2Vec2Config",
        "Wav2Vec2Model",
        device,
        **SMALL,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
    )
    return model(noise(2, 800).to(device)).last_hidden_state


@check("transformers", "Mixtral: a mixture of experts", tolerance=5e-3)
def _(device):
    model = transformer(
        "MixtralConfig",
        "MixtralForCausalLM",
        device,
        **SMALL,
        intermediate_size=48,
        vocab_size=40,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
    )
    return model(tokens().to(device)).logits


@check("transformers", "Mamba", tolerance=5e-3)
def _(device):
    model = transformer(
        "MambaConfig",
        "MambaForCausalLM",
        device,
        hidden_size=32,
        num_hidden_layers=2,
        vocab_size=40,
        state_size=8,
    )
    return model(tokens().to(device)).logits


@check("transformers", "GPT-2: training under autocast of bfloat16", tolerance=5e-2)
def _(device):
    model = transformer(
        "GPT2Config",
        "GPT2LMHeadModel",
        device,
        n_embd=32,
        n_layer=2,
        n_head=2,
        vocab_size=40,
        n_positions=64,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    ).train()
    x = tokens().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def loss(m):
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            return m(x, labels=x).loss

    return small.fit(model, loss, optimizer)


@check("transformers", "SAM: masks from points", tolerance=5e-3)
def _(device):
    from transformers import SamConfig, SamModel

    vision = {
        **SMALL,
        "output_channels": 16,
        "image_size": 64,
        "patch_size": 8,
        "mlp_dim": 64,
        "window_size": 4,
        "global_attn_indexes": [1],
        "num_pos_feats": 8,
    }
    prompt = {"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4}
    decoder = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "mlp_dim": 32,
        "iou_head_hidden_dim": 16,
    }
    config = SamConfig(
        vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder
    )
    model = seeded(SamModel, config).eval().to(device)
    points = torch.tensor([[[[20.0, 30.0]]]], device=device)
    with torch.no_grad():
        found = model(pixel_values=small.images(1, 64).to(device), input_points=points)
    return found.pred_masks, found.iou_scores


@check("transformers", "a cache of fixed size, and one with a sliding window", tolerance=5e-3)
def _(device):
    model = small.llama().to(device)
    settings = {"max_new_tokens": 6, "do_sample": False}
    x = tokens(6).to(device)
    return [
        model.generate(x, **settings, cache_implementation="static"),
        model.generate(x, **settings, cache_implementation="dynamic"),
    ]
