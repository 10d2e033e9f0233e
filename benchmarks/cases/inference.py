"""Cases of inference: networks for one image, and a token of a language model in few bits.
They are what engines made for inference are compared by (harness/engines.py)."""

import functools
import pathlib
import tempfile

import torch

from benchmarks.harness.case import add, tensors, wrapped

#: torchvision's names; the operations of one image of 224 x 224.
NETWORKS = {
    "ResNet-18": ("resnet18", 2 * 1.82e9),
    "ResNet-50": ("resnet50", 2 * 4.09e9),
    "MobileNetV2": ("mobilenet_v2", 2 * 0.30e9),
    "MobileNetV3 large": ("mobilenet_v3_large", 2 * 0.22e9),
    "EfficientNet-B0": ("efficientnet_b0", 2 * 0.39e9),
    "ConvNeXt-T": ("convnext_tiny", 2 * 4.46e9),
    "ViT-B/16": ("vit_b_16", 2 * 17.56e9),
}
IMAGE = (1, 3, 224, 224)
#: The formats of a Llama's matrices, and bytes of an element.
FORMATS = {"BF16": 2.0, "Q8_0": 34 / 32, "Q4_0": 18 / 32}
#: Tokens before the one that is timed.
BEFORE = 128
LLAMA = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 512,
}


def network(name):
    """A network of torchvision on the CPU, with weights that keep numbers near 1, and an image."""
    import torchvision

    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # as training leaves them
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.8, 1.2)
    return model, tensors("cpu", IMAGE)[0]


def image_case(title, name, flops, dtype):
    half = dtype is not torch.float32

    def make(device):
        model, image = network(name)
        run = wrapped(model.to(device, dtype))
        image = image.to(device, dtype)

        @torch.inference_mode()
        def call():
            return run(image).float()

        return call

    add(
        f"{title}{' bfloat16' if half else ''}",
        "inference",
        make,
        dtype=str(dtype).removeprefix("torch."),
        flops=flops,
        network=lambda: network(name),
        tolerance={"rtol": 1e-1, "atol": 1e-1} if half else {"rtol": 1e-3, "atol": 1e-3},
    )


@functools.cache
def llama_file(kind):
    """The path of a GGUF file with a Llama of 207 million random weights."""
    import gguf
    import numpy

    folder = pathlib.Path(tempfile.mkdtemp(prefix="torch_ocl_llama_"))
    path = folder / f"{kind}.gguf"
    random = numpy.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    width, inner = LLAMA["hidden_size"], LLAMA["intermediate_size"]
    heads, shared = LLAMA["num_attention_heads"], LLAMA["num_key_value_heads"]
    writer.add_block_count(LLAMA["num_hidden_layers"])
    writer.add_context_length(LLAMA["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(shared)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(LLAMA["vocab_size"])
    writer.add_tokenizer_model("none")
    format_ = gguf.GGMLQuantizationType[kind]

    def put(name, rows, columns):
        made = random.standard_normal((rows, columns), dtype=numpy.float32) / columns**0.5
        writer.add_tensor(f"{name}.weight", gguf.quantize(made, format_), raw_dtype=format_)

    def put_norm(name):
        writer.add_tensor(f"{name}.weight", numpy.ones(width, numpy.float32))

    put("token_embd", LLAMA["vocab_size"], width)
    for i in range(LLAMA["num_hidden_layers"]):
        put_norm(f"blk.{i}.attn_norm")
        put_norm(f"blk.{i}.ffn_norm")
        put(f"blk.{i}.attn_q", width, width)
        put(f"blk.{i}.attn_k", width * shared // heads, width)
        put(f"blk.{i}.attn_v", width * shared // heads, width)
        put(f"blk.{i}.attn_output", width, width)
        put(f"blk.{i}.ffn_gate", inner, width)
        put(f"blk.{i}.ffn_up", inner, width)
        put(f"blk.{i}.ffn_down", width, inner)
    put_norm("output_norm")
    put("output", LLAMA["vocab_size"], width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def words():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, LLAMA["vocab_size"], (1, BEFORE + 1), generator=generator)


def token_case(kind):
    """A token after others, by transformers. CPU torch's weights are numbers of the dtype."""
    dtype = torch.bfloat16 if kind == "BF16" else torch.float32

    def make(device):
        from transformers import AutoModelForCausalLM, StaticCache

        path = llama_file(kind)
        model = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=dtype, device_map=device
        ).eval()
        cache = StaticCache(config=model.config, max_cache_len=2 * BEFORE)
        given = words().to(device)
        with torch.no_grad():
            model(given[:, :-1], past_key_values=cache)
        lengths = [layer.cumulative_length for layer in cache.layers]
        run = wrapped(model)

        @torch.no_grad()
        def call():
            out = run(given[:, -1:], past_key_values=cache)
            torch._foreach_sub_(lengths, 1)
            return out.logits[0, -1].float()

        return call

    weights = 207e6
    add(
        f"Llama 207M {kind}, a token after {BEFORE}",
        "inference",
        make,
        dtype=kind,
        bytes=weights * FORMATS[kind],
        moves=(1, 0),
        gguf=lambda: llama_file(kind),
        # llama.cpp rounds activations to 8 bits.
        tolerance={"rtol": 1e-1, "atol": 2e-1},
    )


for title, (name, flops) in NETWORKS.items():
    for dtype in (torch.float32, torch.bfloat16):
        image_case(title, name, flops, dtype)
for kind in FORMATS:
    token_case(kind)
