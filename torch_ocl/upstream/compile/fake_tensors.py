"""Shapes, strides and dtypes that fake tensors expect, for torch.compile and torch.export.

Upstream decides some by the device's name, of devices that it knows. Where our results follow CPU
torch's, or their operands, graphs would be compiled for strides that no result has.
"""

import functools
from typing import Any

import torch


def install() -> None:
    """Makes upstream's functions answer for `ocl`; nothing where torch has no such functions."""
    _install_convolution_format()
    _install_device_hint()
    _install_norm_statistics()
    _install_results_like_input()


def _install_convolution_format() -> None:
    """Which memory format a convolution's result has; of devices not known, contiguous."""
    upstream = getattr(torch._C, "_conv_determine_backend_memory_format", None)
    if upstream is None:
        return

    def determine(input: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
        if input.device.type != "ocl":
            return upstream(input, weight, backend)
        return _convolution_format(input, weight)

    torch._C._conv_determine_backend_memory_format = determine


def _convolution_format(input: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """As in convolution/Convolution.cpp of csrc/ops: that of either operand that has its own."""
    from torch._prims_common import suggest_memory_format

    own = suggest_memory_format(input)
    if own != torch.contiguous_format or input.dim() != weight.dim():
        return own
    return suggest_memory_format(weight)


def _install_device_hint() -> None:
    """Which device a result is computed on, as shape functions ask where theirs differ."""
    module = getattr(torch, "_meta_registrations", None)
    upstream = getattr(module, "device_hint", None)
    # nonzero_static has CPU torch's strides, and so have Fourier transforms, those with MKL.
    if upstream is None or not torch.backends.mkl.is_available():
        return

    def device_hint(tensor: Any) -> str:
        device = upstream(tensor)
        return "cpu" if device == "ocl" else device

    module.device_hint = device_hint


def _install_norm_statistics() -> None:
    """Norms save means and deviations as CPU torch's do: in their input's dtype, and a batch norm
    none at all in evaluation. Upstream's decompositions do so where the device is called `cpu`."""
    decompositions = getattr(getattr(torch, "_decomp", None), "decompositions", None)
    refs = getattr(torch, "_refs", None)
    batch_norm = getattr(decompositions, "native_batch_norm_helper", None)
    if batch_norm is not None:
        decompositions.native_batch_norm_helper = _saving_as_on_cpu(batch_norm)
    layer_norm = getattr(refs, "native_layer_norm", None)
    if layer_norm is not None:
        refs.native_layer_norm = ours = _saving_as_on_cpu(layer_norm)
        for table in torch._decomp.global_decomposition_table.values():
            for op in [op for op, function in table.items() if function is layer_norm]:
                table[op] = ours


def _saving_as_on_cpu(norm: Any) -> Any:
    """A norm with other second and third results on `ocl`; its fifth option says it is trained."""

    @functools.wraps(norm)
    def wrapped(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        out, mean, rstd, *rest = norm(input, *args, **kwargs)
        if input.device.type == "ocl":
            tensors = [x for x in args if isinstance(x, torch.Tensor)]
            if False in args[4:5]:
                mean, rstd = mean.new_zeros(0), rstd.new_zeros(0)
            if all(x.dtype == input.dtype for x in tensors):
                mean, rstd = mean.to(input.dtype), rstd.to(input.dtype)
        return (out, mean, rstd, *rest)

    return wrapped


#: Ops whose results lie as their input of 4 dimensions does, which upstream's shape functions have
#: as contiguous. A volume without a batch is among those inputs.
_LIKE_INPUT = (
    "max_pool3d_with_indices",
    "reflection_pad3d",
    "replication_pad3d",
)


def _install_results_like_input() -> None:
    """Their results lie channels last where the input does."""
    try:
        from torch._subclasses.fake_impls import op_implementations_dict
    except ImportError:
        return
    for name in _LIKE_INPUT:
        op_implementations_dict.setdefault(getattr(torch.ops.aten, name).default, _like_input)


def _like_input(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    """The fake of an op, channels last; upstream's for other inputs."""
    from torch._prims_common import suggest_memory_format

    if not args or args[0].device.type != "ocl" or args[0].dim() != 4:
        return NotImplemented
    if suggest_memory_format(args[0]) != torch.channels_last:
        return NotImplemented
    with mode:
        results = op(args[0].contiguous(), *args[1:], **kwargs)
        if isinstance(results, torch.Tensor):
            return results.contiguous(memory_format=torch.channels_last)
        return tuple(r.contiguous(memory_format=torch.channels_last) for r in results)
