"""Packed weights: linear layers that keep their weights packed, for inference.

A product on a CPU device first copies its operands into panels, the order in which its inner loop
reads them. A weight is the same for every call, so its panels can be kept::

    model = torch.ocl.pack_weights(model.eval())

The panels take the weight's place, so memory stays what it was (float16 is kept as float32, and so
is bfloat16 where the processor has no products of it). docs/performance.md says what is gained.
On GPUs, whose kernels read a weight as it lies, a packed layer is the plain one.
"""

import torch
from torch import nn
from torch.autograd import forward_ad

__all__ = ["PackedLinear", "pack_weights"]


@torch.library.register_fake("torch_ocl::packed_linear")
def _packed_linear(input, panels, bias, out_features):
    return input.new_empty((*input.shape[:-1], out_features))


@torch.library.register_vmap("torch_ocl::packed_linear")
def _packed_linear_vmap(info, in_dims, input, panels, bias, out_features):
    # A layer's parameters are what they are; the batch is one of rows.
    assert in_dims[1:] == (None, None, None)
    batched = input.movedim(in_dims[0], 0)
    return torch.ops.torch_ocl.packed_linear(batched, panels, bias, out_features), 0


class PackedLinear(nn.Module):
    """Computes what nn.Linear does, from a weight that is packed.

    `weight` unpacks: it is a new tensor every time, and changing it changes nothing. Parameters get
    no gradients, but inputs do. A state dict holds the plain weight, and loading one packs it.
    """

    def __init__(self, linear: nn.Linear):
        """Packs the weight of `linear`, which should be on an `ocl` device.

        Raises TypeError for a weight that is not of a floating-point dtype.
        """
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        bias = linear.bias
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self.training = linear.training
        self.register_buffer("panels", None, persistent=False)
        self._pack(linear.weight)

    @property
    def weight(self) -> torch.Tensor:
        """The weight [out_features, in_features], unpacked into a new tensor."""
        panels = self.panels
        if panels.dim() == 4:  # pairs of adjacent input features
            panels = panels.transpose(2, 3).flatten(1, 2)
        if panels.dim() == 3:
            panels = panels.transpose(1, 2).flatten(0, 1)
        return panels[: self.out_features, : self.in_features].to(self._dtype, copy=True)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """input: [..., in_features] of the weight's dtype -> [..., out_features]. Raises what
        nn.Linear raises."""
        panels = self.panels
        if panels.dim() == 2:
            return nn.functional.linear(input, panels, self.bias)
        fits = input.dtype == self._dtype and input.dim() > 0
        fits = fits and input.device == panels.device and input.shape[-1] == self.in_features
        differentiated = input.requires_grad and torch.is_grad_enabled()
        # Within forward-mode differentiation any input may have a tangent.
        differentiated = differentiated or forward_ad._current_level >= 0
        if not fits or differentiated or torch.is_autocast_enabled("ocl"):
            return nn.functional.linear(input, self.weight, self.bias)
        return torch.ops.torch_ocl.packed_linear(input, panels, self.bias, self.out_features)

    def extra_repr(self) -> str:
        bias = self.bias is not None
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={bias}"

    def _pack(self, weight):
        weight = weight.detach()
        self._dtype = weight.dtype
        on_device = weight.device.type == "ocl"
        self.panels = torch.ops.torch_ocl.pack_linear_weight(weight) if on_device else weight

    def _apply(self, fn, recurse=True):
        # Panels are one device's, and their dtype isn't the weight's.
        weight = fn(self.weight)
        panels, self.panels = self.panels, None
        try:
            super()._apply(fn, recurse)
        except BaseException:
            self.panels = panels
            raise
        self._pack(weight)
        return self

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination[prefix + "weight"] = self.weight
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        key = prefix + "weight"
        if key in unexpected_keys:
            unexpected_keys.remove(key)
        weight = state_dict.get(key)
        if weight is None:
            if strict:
                missing_keys.append(key)
        elif weight.shape != (self.out_features, self.in_features):
            expected = torch.Size((self.out_features, self.in_features))
            error_msgs.append(
                f"size mismatch for {key}: copying a param with shape {weight.shape} from "
                f"checkpoint, the shape in current model is {expected}."
            )
        else:
            self._pack(weight.to(self.panels.device, self._dtype))


def pack_weights(module: nn.Module) -> nn.Module:
    """Replaces every nn.Linear in a module, which should be on an `ocl` device, by a PackedLinear.

    Subclasses of nn.Linear, and layers whose weight another module shares (as embeddings do with a
    language model's head) or that have hooks or a forward() of their own, stay as they are. Returns
    the module, or the PackedLinear of a module that is a layer itself. TypeError for what is no
    module.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"pack_weights() takes a torch.nn.Module, not {type(module).__name__}")
    uses = {}
    for layer in module.modules():
        for parameter in layer._parameters.values():
            if parameter is not None:
                uses[id(parameter)] = uses.get(id(parameter), 0) + 1

    packed = {}

    def replacement(layer):
        if layer not in packed:
            packed[layer] = PackedLinear(layer)
        return packed[layer]

    def takes(layer):
        if type(layer) is not nn.Linear or "forward" in layer.__dict__:
            return False
        weight = layer.weight
        hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks
        ours = weight.device.type == "ocl" and weight.is_floating_point()
        return ours and not hooks and uses[id(weight)] == 1

    if takes(module):
        return replacement(module)
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and takes(child):
                parent._modules[name] = replacement(child)
    return module
