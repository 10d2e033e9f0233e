"""RPC with tensors of `ocl`, by device maps as CUDA's.

TensorPipe moves tensors of the CPU and of CUDA. An `ocl` tensor goes as one of the CPU, with the
device that it is for: a caller knows the callee's by its map. A callee sends its own, and the
caller finds its device by the same map, inverted. Copies are part of the autograd graph, so
distributed autograd works as well."""

import functools
import threading
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree

_thread = threading.local()


def _maps() -> dict[str, dict[torch.device, torch.device]]:
    """This worker's, by the names of callees."""
    agent = torch._C._distributed_rpc._get_current_rpc_agent()
    return agent._get_backend_options().device_maps


def _name() -> str:
    agent = torch._C._distributed_rpc._get_current_rpc_agent()
    return agent.get_worker_info().name


def _missing(device: torch.device, worker: str) -> RuntimeError:
    return RuntimeError(
        f"RPC has no device map for {device} of this call with {worker}. Say which device is which "
        f"with TensorPipeRpcBackendOptions.set_device_map({worker!r}, {{'ocl:0': 'ocl:0'}}), on "
        "the caller."
    )


def _for_callee(receiver: Any, index: int, device: str) -> torch.Tensor:
    """An argument, on its device. Distributed autograd gives the received tensor its history after
    this, so what needs a gradient is copied when the call runs."""
    received = receiver(index)
    if not received.requires_grad:
        return received.to(device)
    tensor = torch.empty_like(received, device=device, requires_grad=False)
    _thread.received.append((tensor, received))
    return tensor


def _call(copies: list, function: Any, *args: Any, **kwargs: Any) -> Any:
    for tensor, received in copies:
        tensor.copy_(received)
    return function(*args, **kwargs)


def _for_caller(receiver: Any, index: int, callee: str, device: str) -> torch.Tensor:
    of_callee = torch.device(device)
    if callee == _name():
        return receiver(index).to(of_callee)
    for mine, theirs in _maps().get(callee, {}).items():
        if theirs == of_callee:
            return receiver(index).to(mine)
    raise _missing(of_callee, callee)


def _call_builtin(name: str, args: tuple, kwargs: dict) -> Any:
    return torch._C._jit_get_operation(name)[0](*args, **kwargs)


def change_pickler(module: ModuleType) -> None:
    """`module` has upstream's pickler of calls and results."""
    kind = module._InternalRPCPickler
    upstream, serialize, deserialize = kind._tensor_reducer, kind.serialize, kind.deserialize

    @functools.wraps(upstream)
    def _tensor_reducer(self: Any, tensor: torch.Tensor) -> tuple:
        device = tensor.device
        if device.type != "ocl":
            return upstream(self, tensor)
        callee = getattr(_thread, "callee", None)
        if callee is None:
            receiver, (index,) = upstream(self, tensor.cpu())
            return _for_caller, (receiver, index, _name(), str(device))
        target = device if callee == _name() else _maps().get(callee, {}).get(device)
        if target is None:
            raise _missing(device, callee)
        receiver, (index,) = upstream(self, tensor.cpu())
        return _for_callee, (receiver, index, str(target))

    @functools.wraps(serialize)
    def _serialize(self: Any, obj: Any) -> tuple:
        """A call goes to the worker that was named last; all else is a result."""
        is_call = isinstance(obj, module.PythonUDF)
        _thread.callee = getattr(_thread, "named", None) if is_call else None
        try:
            return serialize(self, obj)
        finally:
            _thread.callee = None

    @functools.wraps(deserialize)
    def _deserialize(self: Any, binary_data: bytes, tensor_table: list) -> Any:
        outer, _thread.received = getattr(_thread, "received", None), []
        try:
            found = deserialize(self, binary_data, tensor_table)
            if _thread.received and isinstance(found, module.PythonUDF):
                call = functools.partial(_call, _thread.received, found.func)
                found = found._replace(func=call)
            return found
        finally:
            _thread.received = outer

    kind._tensor_reducer, kind.serialize, kind.deserialize = (
        _tensor_reducer,
        _serialize,
        _deserialize,
    )
    made = module._internal_rpc_pickler  # it has the method in a table
    made._dispatch_table[torch.Tensor] = made._tensor_reducer


def change_calls(module: ModuleType) -> None:
    """`module` has upstream's calls. They ask for the callee, then pickle."""
    upstream = module._to_worker_info

    @functools.wraps(upstream)
    def _to_worker_info(to: Any) -> Any:
        info = upstream(to)
        _thread.named = info.name
        return info

    def pickling(builtin: Any, of_python: Any) -> Any:
        """Arguments of torch's own functions don't pass the pickler."""

        @functools.wraps(builtin)
        def invoke(info: Any, name: str, timeout: float, *args: Any, **kwargs: Any) -> Any:
            leaves = _pytree.tree_leaves((args, kwargs))
            if not any(isinstance(t, torch.Tensor) and t.device.type == "ocl" for t in leaves):
                return builtin(info, name, timeout, *args, **kwargs)
            call = module.PythonUDF(_call_builtin, (name, args, kwargs), {})
            pickled, tensors = module._default_pickler.serialize(call)
            return of_python(info, pickled, tensors, timeout, False)

        return invoke

    module._to_worker_info = _to_worker_info
    module._invoke_rpc_builtin = pickling(module._invoke_rpc_builtin, module._invoke_rpc_python_udf)
    module._invoke_remote_builtin = pickling(
        module._invoke_remote_builtin, module._invoke_remote_python_udf
    )


def change_registry(module: ModuleType) -> None:
    """`module` has upstream's checks of all workers' maps, which are of CUDA's devices alone."""
    exchange = module._tensorpipe_exchange_and_check_all_device_maps
    validate = module._validate_device_maps
    reverse, devices_of = module._create_reverse_mapping, module._create_device_list

    def others(maps: dict) -> dict:
        """The part of one worker's maps that is TensorPipe's business."""
        return {
            to: {mine: pairs[mine] for mine in pairs if mine.type != "ocl"}
            for to, pairs in maps.items()
        }

    def not_ours(devices: list) -> list:
        return [device for device in devices if device.type != "ocl"]

    @functools.wraps(exchange)
    def _exchange(name: str, count: int, maps: dict, devices: list, group: Any) -> Any:
        # A worker that leaves before all have met would end the others with an error of its group.
        exchanged = exchange(name, count, maps, devices, group)
        for to, pairs in maps.items():
            _check(name, to, pairs)
        return exchanged

    @functools.wraps(validate)
    def _validate_device_maps(
        names: Any, counts: Any, maps: dict, devices: dict, is_static_group: bool = True
    ) -> None:
        maps = {name: others(of_one) for name, of_one in maps.items()}
        devices = {name: not_ours(of_one) for name, of_one in devices.items()}
        validate(names, counts, maps, devices, is_static_group)

    @functools.wraps(reverse)
    def _create_reverse_mapping(name: str, names: Any, maps: dict) -> dict:
        return reverse(name, names, {other: others(of_one) for other, of_one in maps.items()})

    @functools.wraps(devices_of)
    def _create_device_list(devices: list, maps: dict, reverse_maps: dict) -> list:
        return devices_of(not_ours(devices), others(maps), reverse_maps)

    module._tensorpipe_exchange_and_check_all_device_maps = _exchange
    module._validate_device_maps = _validate_device_maps
    module._create_reverse_mapping = _create_reverse_mapping
    module._create_device_list = _create_device_list


def _check(name: str, to: str, pairs: dict[torch.device, torch.device]) -> None:
    """Raises where a worker's own map can't be right."""
    if any((mine.type == "ocl") != (theirs.type == "ocl") for mine, theirs in pairs.items()):
        raise ValueError(
            f"Node {name} maps devices of ocl to others in its device map for {to}\n"
            f"device map = {pairs}"
        )
    ours = [mine for mine in pairs if mine.type == "ocl"]
    if any(mine.index is None or mine.index >= torch.ocl.device_count() for mine in ours):
        raise ValueError(
            f"Node {name} has source devices with invalid indices in its device map for {to}\n"
            f"device map = {pairs}\ndevice count = {torch.ocl.device_count()}"
        )


def change_options(module: ModuleType) -> None:
    """`module` has upstream's options, whose list of devices is of CUDA's alone."""
    upstream = module._to_device

    @functools.wraps(upstream)
    def _to_device(device: Any) -> torch.device:
        found = torch.device(device)
        return found if found.type == "ocl" else upstream(device)

    module._to_device = _to_device


#: Modules of torch, each with what changes it once it is imported.
PATCHES = {
    "torch.distributed.rpc.internal": change_pickler,
    "torch.distributed.rpc.api": change_calls,
    "torch.distributed.rpc.backend_registry": change_registry,
    "torch.distributed.rpc.options": change_options,
}
