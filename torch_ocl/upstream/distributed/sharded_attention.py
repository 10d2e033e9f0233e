"""Attention on DTensors: `ocl`'s fused op in tensor and context parallel.

Upstream has rules for the fused ops of CUDA, by name. These are the same for
`_scaled_dot_product_fused_attention_overrideable`, which a device of PrivateUse1 has: shards by
batch or by head, and in context_parallel() rings of shards of the sequence."""

import math
from types import ModuleType
from typing import Any

import torch

_NAME = "_scaled_dot_product_fused_attention_overrideable"
# Dimensions of q, k, v in [batch, head, position, feature].
_BATCH, _HEAD, _SEQUENCE = 0, 1, 2
# Results of the forward op behind output and logsumexp: cum_seq_q, cum_seq_k, max_q, max_k,
# philox_seed, philox_offset, debug_attn_mask.
_OTHERS = 7
# The device's logsumexp is one to the base of 2; upstream adds up natural ones.
_LN_2 = math.log(2)


def add_strategies(module: ModuleType) -> None:
    """How the op's inputs may be sharded. `module` has upstream's rules, of matrix products."""
    from torch.distributed.tensor._op_schema import OpStrategy, RuntimeSchemaInfo
    from torch.distributed.tensor.placement_types import Replicate, Shard

    forward = getattr(torch.ops.aten, _NAME).default
    backward = getattr(torch.ops.aten, f"{_NAME}_backward").default

    def bias_placement(strategy: Any, dim: int) -> Any:
        shape = strategy.strategies[0].output_spec.shape
        return Shard(dim) if len(shape) == 4 and shape[dim] > 1 else Replicate()

    def placements(results: int, tensors: list, bias: Any, extra: list, replicated: int) -> list:
        """A list for each strategy: the sharded results, what follows them, then the inputs."""
        strategies = []
        for dim in (None, _HEAD, _BATCH):
            one = Replicate() if dim is None else Shard(dim)
            inputs = [one] * tensors[0]
            if bias is not None:
                inputs.append(Replicate() if dim is None else bias_placement(bias, dim))
            inputs += [one] * tensors[1] + [Replicate()] * replicated
            strategies.append([one] * results + extra + inputs)
        return strategies

    def forward_strategy(schema: Any) -> Any:
        arguments = schema.args_schema
        bias = arguments[3] if len(arguments) > 3 and isinstance(arguments[3], OpStrategy) else None
        extra = [None, None, None, None, Replicate(), Replicate(), None]
        return module.expand_to_full_mesh_op_strategy(
            schema.get_mesh_from_args(),
            schema,
            placements(2, [3, 0], bias, extra, 0),
            input_index=2 + _OTHERS,
        )

    def backward_strategy(schema: Any) -> Any:
        arguments = schema.args_schema
        bias = arguments[4] if isinstance(arguments[4], OpStrategy) else None
        others = sum(isinstance(argument, OpStrategy) for argument in arguments[8:])
        return module.expand_to_full_mesh_op_strategy(
            schema.get_mesh_from_args(validate=False),
            schema,
            placements(3, [4, 2], bias, [None], others),
            input_index=4,
        )

    module.register_op_strategy(forward, schema_info=RuntimeSchemaInfo(4))(forward_strategy)
    module.register_op_strategy(backward)(backward_strategy)


def add_ring(module: ModuleType) -> None:
    """Rings of shards of the sequence. `module` is upstream's, of context_parallel()."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    forward = getattr(torch.ops.aten, _NAME).default
    backward = getattr(torch.ops.aten, f"{_NAME}_backward").default

    def local(value: Any) -> Any:
        return value._local_tensor if isinstance(value, DTensor) else value

    def sharded_as(like: Any, value: torch.Tensor) -> Any:
        """A result whose shards are this process's `value` and others of its shape."""
        shape = list(value.shape)
        for size, placement in zip(like.device_mesh.shape, like.placements, strict=True):
            if placement.is_shard():
                shape[placement.dim] *= size
        meta = TensorMeta(torch.Size(shape), value.stride(), value.dtype)
        spec = DTensorSpec(like.device_mesh, like.placements, tensor_meta=meta)
        return DTensor(value, spec, requires_grad=False)

    def check(bias: Any, dropout: float) -> None:
        if bias is not None or dropout:
            raise NotImplementedError(
                "context_parallel on ocl takes attention without a mask and without dropout"
            )

    def ring(op_call: Any, args: tuple, kwargs: dict) -> tuple:
        defaults = (None, 0.0, False, False)
        query, *_ = args
        tensors, (bias, dropout, causal, _) = args[:3], (*args[3:], *defaults[len(args) - 3 :])
        check(bias, dropout)

        def op(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> tuple:
            out, logsumexp, *others = forward(q, k, v, None, 0.0, is_causal, **kwargs)
            return out, logsumexp * _LN_2, *others

        out, logsumexp, *others = module._templated_ring_attention(
            query.device_mesh.get_group(), _SEQUENCE, op, *map(local, tensors), is_causal=causal
        )
        return sharded_as(query, out), sharded_as(query, logsumexp), *others

    def backward_ring(op_call: Any, args: tuple, kwargs: dict) -> tuple:
        grad, query, key, value, bias, _, out, logsumexp = args[:8]
        rest = tuple(map(local, args[8:12]))
        dropout, causal, *philox = map(local, args[12:])
        check(bias, dropout)

        def op(query, key, value, out, logsumexp, is_causal, grad_out) -> tuple:
            mask = [True, True, True, False]
            tensors = (grad_out, query, key, value, None, mask, out, logsumexp / _LN_2)
            return backward(*tensors, *rest, 0.0, is_causal, *philox, **kwargs)[:3]

        grads = module._templated_ring_attention_backward(
            query.device_mesh.get_group(),
            _SEQUENCE,
            op,
            grad_out=local(grad),
            grad_out_name="grad_out",
            query=local(query),
            key=local(key),
            value=local(value),
            out=local(out),
            logsumexp=local(logsumexp),
            is_causal=causal,
        )
        return *(sharded_as(query, grad) for grad in grads), None

    module.custom_ops[forward] = ring
    module.custom_ops[backward] = backward_ring


#: Modules of torch, each with what changes it once it is imported.
PATCHES = {
    "torch.distributed.tensor._ops._matrix_ops": add_strategies,
    "torch.distributed.tensor.experimental._context_parallel._attention": add_ring,
}
