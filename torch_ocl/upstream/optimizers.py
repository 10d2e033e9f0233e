"""The default steps of torch.optim.Adam, AdamW and SGD on `ocl`: one launch over all parameters.

Upstream's default for such devices is its form over lists, which launches up to eight kernels and
groups the lists in Python. What it computes is what the fused kernels do, in one pass. The state
stays the default's: steps are counted on the host, in tensors of the CPU. Half types take
upstream's form, as it rounds between its passes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import adam, sgd

_PLAIN = (torch.nn.Parameter, torch.Tensor)
_DTYPES = (torch.float32, torch.float64)


def install() -> None:
    """Replaces the forms over lists, which go on for what is not ours."""
    adam._multi_tensor_adam = _adam(adam._multi_tensor_adam)
    sgd._multi_tensor_sgd = _sgd(sgd._multi_tensor_sgd)


def _are_ours(*lists: Sequence[Any]) -> bool:
    """Whether all are dense tensors of one dtype on one device of ours."""
    if torch.compiler.is_compiling() or not lists[0]:
        return False
    device, dtype = lists[0][0].device, lists[0][0].dtype
    return (
        device.type == "ocl"
        and dtype in _DTYPES
        and all(
            type(t) in _PLAIN
            and t.dtype is dtype
            and t.device == device
            and t.layout is torch.strided
            for tensors in lists
            for t in tensors
        )
    )


def _are_numbers(*values: Any) -> bool:
    return not any(isinstance(v, torch.Tensor) for v in values)


def _adam(theirs: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(theirs)
    def multi_tensor_adam(
        params: list[torch.Tensor],
        grads: list[torch.Tensor],
        exp_avgs: list[torch.Tensor],
        exp_avg_sqs: list[torch.Tensor],
        max_exp_avg_sqs: list[torch.Tensor],
        state_steps: list[torch.Tensor],
        grad_scale: torch.Tensor | None,
        found_inf: torch.Tensor | None,
        **options: Any,
    ) -> None:
        lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
        numbers = {k: options[k] for k in ("lr", "beta1", "beta2", "weight_decay", "eps")}
        ours = (
            not (options["capturable"] or options["differentiable"])
            and grad_scale is None
            and found_inf is None
            and _are_numbers(*numbers.values())
            and _are_ours(*lists)
            and all(s.is_cpu for s in state_steps)
            and len({s.item() for s in state_steps}) == 1
            and not torch.ocl.is_current_stream_capturing()
        )
        if not ours:
            return theirs(*lists, state_steps, grad_scale, found_inf, **options)
        torch._foreach_add_(state_steps, 1)
        step = torch.full((), state_steps[0].item(), dtype=torch.float32, device=params[0].device)
        decoupled = options.get("decoupled_weight_decay", False)
        kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
        kernel(
            *lists,
            [step] * len(params),
            amsgrad=options["amsgrad"],
            maximize=options["maximize"],
            grad_scale=None,
            found_inf=None,
            **numbers,
        )
        torch.autograd.graph.increment_version(params)

    return multi_tensor_adam


def _sgd(theirs: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(theirs)
    def multi_tensor_sgd(
        params: list[torch.Tensor],
        grads: list[torch.Tensor],
        momentum_buffer_list: list[torch.Tensor | None],
        grad_scale: torch.Tensor | None,
        found_inf: torch.Tensor | None,
        **options: Any,
    ) -> None:
        lists = (params, grads, momentum_buffer_list)
        differentiable = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        if differentiable and params[0].device.type == "ocl":
            # This form takes no notice of what needs a gradient.
            return sgd._single_tensor_sgd(*lists, grad_scale, found_inf, **options)
        momentum = options["momentum"]
        buffers = momentum_buffer_list if momentum != 0 else []
        numbers = {k: options[k] for k in ("lr", "weight_decay", "momentum", "dampening")}
        ours = (
            grad_scale is None
            and found_inf is None
            and _are_numbers(*numbers.values())
            and all(b is not None for b in buffers)  # the first step makes them
            and _are_ours(params, grads, buffers)
        )
        if not ours:
            return theirs(*lists, grad_scale, found_inf, **options)
        torch._fused_sgd_(
            params,
            grads,
            buffers,
            nesterov=options["nesterov"],
            maximize=options["maximize"],
            is_first_step=False,
            grad_scale=None,
            found_inf=None,
            **numbers,
        )
        torch.autograd.graph.increment_version(params)

    return multi_tensor_sgd
