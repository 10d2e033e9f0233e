"""Blocks and files in GGUF's formats, with the numbers that the package gguf reads from them."""

import gguf
import numpy as np
import torch

#: Elements of a block, and its bytes.
FORMATS = {
    "Q4_0": (32, 18), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210), "Q8_0": (32, 34)
}  # fmt: skip
#: Where a block's numbers of half precision lie, in bytes. All other bytes may be any.
_HALVES = {"Q4_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q8_0": [0]}


def blocks(name, n, k, seed=0):
    """Random blocks of a matrix [n, k], as bytes: every bit is used."""
    random = np.random.default_rng(seed)
    elements, size = FORMATS[name]
    made = random.integers(0, 256, (n, k // elements, size), dtype=np.uint8)
    for at in _HALVES[name]:
        # About 1 for the weights' largest, in all formats.
        number = random.uniform(-1, 1, (n, k // elements, 1)) / (8 if name == "Q4_0" else 1000)
        made[..., at : at + 2] = number.astype(np.float16).view(np.uint8)
    return made.reshape(n, k // elements * size)


def numbers(name, made):
    """The numbers that the package reads, in double."""
    return torch.from_numpy(gguf.dequantize(made, gguf.GGMLQuantizationType[name])).double()


def write(path, tensors, architecture="llama", **fields):
    """A file of tensors: name -> (format, bytes or numbers). `fields`: metadata without the
    architecture's name in front."""
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in fields.items():
        key = f"{architecture}.{name.replace('__', '.')}"
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    for name, (format, data) in tensors.items():
        kind = gguf.GGMLQuantizationType[format]
        writer.add_tensor(name, data, raw_dtype=None if format in ("F32", "F16") else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_llama(path, tied=False):
    """A Llama of two layers with random weights in several formats.

    tied: its embedding is its head, too."""
    kinds = {
        "attn_q": ("Q4_0", 64, 64), "attn_k": ("Q8_0", 32, 64), "attn_v": ("Q4_0", 32, 64),
        "attn_output": ("Q8_0", 64, 64), "ffn_gate": ("Q4_0", 256, 64), "ffn_up": ("Q8_0", 256, 64),
    }  # fmt: skip
    random = np.random.default_rng(1)
    norm = ("F32", 1 + random.random(64, dtype=np.float32))
    tensors = {"token_embd.weight": ("Q8_0", blocks("Q8_0", 20, 64)), "output_norm.weight": norm}
    for layer in range(2):
        for name, (kind, n, k) in kinds.items():
            tensors[f"blk.{layer}.{name}.weight"] = (kind, blocks(kind, n, k, layer))
        down = ("Q4_K", "Q6_K")[layer]
        tensors[f"blk.{layer}.ffn_down.weight"] = (down, blocks(down, 64, 256, layer))
        tensors[f"blk.{layer}.attn_norm.weight"] = tensors[f"blk.{layer}.ffn_norm.weight"] = norm
    if not tied:
        tensors["output.weight"] = ("Q4_0", blocks("Q4_0", 20, 64, 3))
    write(
        path, tensors, block_count=2, context_length=128, embedding_length=64, vocab_size=20,
        feed_forward_length=256, attention__head_count=4, attention__head_count_kv=2,
        attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=10000.0, rope__dimension_count=16,
    )  # fmt: skip
