"""Weights in the formats of GPTQ, AWQ and compressed-tensors, with the numbers that they stand for,
and checkpoints of a small Llama of them. The formats are written here as their papers' programs
have them, one integer after the other."""

import json

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

#: Which of 8 columns is which 4 bits of a word of AWQ's, from the lowest on.
AWQ_COLUMNS = [0, 2, 4, 6, 1, 3, 5, 7]


def words(values, dim, bits=4, columns=None):
    """Integers [rows, columns] in int32 words along a dimension."""
    count = 32 // bits
    columns = columns or list(range(count))
    values = np.moveaxis(values.astype(np.uint32), dim, 0)
    made = np.zeros((len(values) // count, values.shape[1]), np.uint32)
    for word in range(len(made)):
        for place, column in enumerate(columns):
            made[word] |= values[word * count + column] << np.uint32(bits * place)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(made, 0, dim)).view(np.int32))


def weight(method, n, k, group=128, order=False, bits=4, symmetric=False, version=1, seed=0):
    """The tensors of a weight [n, k] by their names, and its numbers in double."""
    random = np.random.default_rng(seed)
    group = k if group == -1 else group
    groups = k // group
    largest = 2**bits
    values = random.integers(0, largest, (n, k))
    points = random.integers(1, largest, (n, groups))
    if symmetric:
        points[:] = largest // 2
    scales = (random.uniform(0.5, 1.5, (n, groups)) * 0.16 / largest).astype(np.float16)
    group_of = np.arange(k) // group
    if order:
        random.shuffle(group_of)
    exact = (values - points[:, group_of]) * scales[:, group_of].astype(np.float64)
    given = torch.from_numpy(scales)
    if method == "gptq":
        tensors = {
            "qweight": words(values.T, 0, bits),
            "qzeros": words((points - (version == 1)).T, 1, bits),
            "scales": given.t().contiguous(),
            "g_idx": torch.from_numpy(group_of.astype(np.int32)),
        }
    elif method == "awq":
        tensors = {
            "qweight": words(values.T, 1, bits, AWQ_COLUMNS),
            "qzeros": words(points.T, 1, bits, AWQ_COLUMNS),
            "scales": given.t().contiguous(),
        }
    else:
        tensors = {
            "weight_packed": words(values, 1, bits),
            "weight_scale": given,
            "weight_shape": torch.tensor([n, k]),
        }
        if not symmetric:
            tensors["weight_zero_point"] = words(points, 0, bits)
        if order:
            tensors["weight_g_idx"] = torch.from_numpy(group_of.astype(np.int32))
    return tensors, torch.from_numpy(exact)


def quantization(method, group, order, bits, symmetric, version):
    """The part of a config.json that names the format."""
    if method == "awq":
        return {
            "quant_method": "awq", "bits": bits, "group_size": group, "zero_point": True,
            "version": "gemm", "modules_to_not_convert": None,
        }  # fmt: skip
    if method == "gptq":
        return {
            "quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": order,
            "sym": symmetric, "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
        }  # fmt: skip
    scheme = {
        "num_bits": bits, "type": "int", "symmetric": symmetric, "group_size": group,
        "strategy": "group",
    }  # fmt: skip
    return {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": scheme}},
    }  # fmt: skip


def write_llama(
    folder, method, group=128, order=False, bits=4, symmetric=False, version=1, bias=False
):
    """A Llama of two layers. Returns the model of its numbers, in double on the CPU."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=48, hidden_size=256, intermediate_size=384, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=1, eos_token_id=2, attention_bias=bias,
    )  # fmt: skip
    model = LlamaForCausalLM(config).double()
    for parameter in model.parameters():
        parameter.data.copy_(parameter.data.bfloat16())
    state = {name: value.bfloat16() for name, value in model.state_dict().items()}
    layers = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    ]
    for seed, (name, module) in enumerate(layers):
        sizes = module.out_features, module.in_features
        made, exact = weight(method, *sizes, group, order, bits, symmetric, version, seed)
        module.weight.data.copy_(exact)
        del state[f"{name}.weight"]
        state |= {f"{name}.{key}": part.contiguous() for key, part in made.items()}
        if bias and module.bias is not None:
            module.bias.data.copy_(torch.randn(sizes[0]).bfloat16())
            state[f"{name}.bias"] = module.bias.data.bfloat16()
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures, config.dtype = ["LlamaForCausalLM"], "bfloat16"
    config.save_pretrained(folder)
    path = folder / "config.json"
    text = json.loads(path.read_text())
    text["quantization_config"] = quantization(method, group, order, bits, symmetric, version)
    path.write_text(json.dumps(text))
    return model.eval()
