"""scaled_dot_product_attention of jagged nested tensors (torch.nested, layout=torch.jagged).

Upstream takes a fused kernel for CUDA alone. Elsewhere it splits the tensors into sequences and
computes the matrices of scores, and not causal ones. On `ocl` each sequence has the fused kernel.
"""

from types import ModuleType
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from torch_ocl.integrations._patches import wrap

#: Offsets on the host, by the tensor on the device: layers share them, so one copy serves all.
_on_host: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _host_offsets(nested: Any) -> list[int]:
    offsets = nested.offsets()
    found = _on_host.get(offsets)
    if found is None:
        found = _on_host[offsets] = offsets.tolist()
    return found


class _Attention(torch.autograd.Function):
    """Attention of values [heads, total, columns]."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, *settings: Any) -> torch.Tensor:
        """settings: the sequences' offsets in query and in key, dropout, whether causal, scale."""
        out, logarithms, seed, offset = torch.ops.torch_ocl.jagged_attention(
            query, key, value, *settings
        )
        ctx.save_for_backward(query, key, value, out, logarithms)
        ctx.settings = (*settings, seed, offset)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        """The gradients of query, key and value."""
        saved = ctx.saved_tensors
        found = torch.ops.torch_ocl.jagged_attention_backward(grad, *saved, *ctx.settings)
        return (*found, *([None] * 5))


def _is_taken(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """Whether the kernels take them: [batch, heads, ragged, columns], each sequence as long in key
    as in value, and without holes."""
    tensors = (query, key, value)
    return (
        mask is None
        and not torch.compiler.is_compiling()
        and all(
            t.device.type == "ocl" and t.is_nested and t.layout == torch.jagged for t in tensors
        )
        and all(t.dim() == 4 and t._ragged_idx == 2 and t.lengths() is None for t in tensors)
        and query.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
        and query.dtype == key.dtype == value.dtype
        and query.size(0) == key.size(0) == value.size(0)
        and query.size(1) == key.size(1) == value.size(1)
        and query.size(3) == key.size(3)
        and 0 < query.size(3) <= 256
        and value.size(3) <= 256
        and _host_offsets(key) == _host_offsets(value)
    )


def _attention(upstream: Any, module: ModuleType) -> Any:
    def jagged_scaled_dot_product_attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        query, key, value, attn_mask = module._autocast(query, key, value, attn_mask)
        if not _is_taken(query, key, value, attn_mask):
            return upstream(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        from torch.nested._internal.nested_tensor import nested_view_from_values_offsets_lengths

        settings = (_host_offsets(query), _host_offsets(key), dropout_p, is_causal, scale)
        values = (query.values(), key.values(), value.values())
        out = _Attention.apply(*values, *settings)
        return nested_view_from_values_offsets_lengths(
            out.transpose(0, 1),
            query.offsets(),
            None,
            min_seqlen=query._maybe_min_seqlen,
            max_seqlen=query._maybe_max_seqlen,
        ).transpose(1, 2)

    return jagged_scaled_dot_product_attention


def _sdpa(module: ModuleType) -> None:
    wrap(module, "jagged_scaled_dot_product_attention", lambda up: _attention(up, module))


PATCHES = {"torch.nested._internal.sdpa": _sdpa}
