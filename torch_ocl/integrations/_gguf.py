"""The weights of a GGUF file as those of a transformers model, packed where its layers allow it."""

from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import nn

from torch_ocl.utils.gguf import BLOCKS, tensor_of


def state_of(path: str, model: nn.Module, dtype: torch.dtype | None) -> dict[str, torch.Tensor]:
    """The tensors by the model's names, on the CPU. The weights of its linear layers and embeddings
    stay packed where transformers changes no more than the order of their rows. For the others its
    own rules are applied to the numbers."""
    import gguf
    from transformers import modeling_gguf_pytorch_utils as upstream

    reader = gguf.GGUFReader(path)
    parsed = upstream.load_gguf_checkpoint(path, return_tensors=False)
    parsed["tensors"] = {}
    architecture = upstream.read_field(reader, "general.architecture")[0]
    kind = upstream.TENSOR_PROCESSORS.get(architecture, upstream.TensorProcessor)
    processor = kind(config=parsed["config"])
    names = upstream.get_gguf_hf_weights_map(model, processor)
    layers = set(_names_of_layers(model))
    for tensor in reader.tensors:
        known = {"tensor_key_mapping": names, "parsed_parameters": parsed}
        target = names.get(tensor.name)
        order = None
        if target in layers and tensor.tensor_type.name in BLOCKS:
            order = _order_of_rows(processor, tensor, known)
        if order is not None:
            parsed["tensors"][target] = tensor_of(
                tensor.data[order], tensor.tensor_type.name, dtype
            )
            continue
        numbers = gguf.dequantize(tensor.data, tensor.tensor_type)
        result = processor.process(weights=numbers, name=tensor.name, **known)
        if result.name in names:
            plain = torch.from_numpy(numpy.array(result.weights))
            parsed["tensors"][names[result.name]] = plain if dtype is None else plain.to(dtype)
    return parsed["tensors"]


def _names_of_layers(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            yield f"{name}.weight"


def _order_of_rows(processor: Any, tensor: Any, known: dict[str, Any]) -> Any:
    """Which rows of the file a weight has, one after the other; None if transformers changes more
    than their order. It is asked with the rows' numbers in their place."""
    rows = numpy.arange(len(tensor.data))[:, None]
    result = processor.process(weights=rows, name=tensor.name, **known)
    asked = result.weights
    if result.name != tensor.name or asked.shape != rows.shape:
        return None
    return asked[:, 0] if (numpy.sort(asked[:, 0]) == rows[:, 0]).all() else None
