"""Parts of torch that go by a list of devices' names, in which that of PrivateUse1 can't be."""

import contextlib
import functools
import importlib
from typing import Any

import torch
from torch.overrides import has_torch_function_unary


def install() -> None:
    """Parts that another version of torch lacks are left out: `import torch` must go on."""
    for change in (
        _dlpack_device,
        _accelerator_snapshot,
        _generators_without_graphs,
        _inductor_before_its_caches,
        _bfloat16_hooks,
        _configuration,
    ):
        with contextlib.suppress(AttributeError, ImportError):
            change()


def _dlpack_device() -> None:
    """torch.from_dlpack() asks a tensor for its device. It is DLPack's kDLExtDev, as upstream's C++
    part has it: addresses of `ocl` tensors mean nothing to other libraries for OpenCL."""
    from torch.utils.dlpack import DLDeviceType

    upstream = torch.Tensor.__dlpack_device__

    @functools.wraps(upstream)
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
        if has_torch_function_unary(self) or self.device.type != "ocl":
            return upstream(self)
        return DLDeviceType.kDLExtDev, self.device.index or 0

    torch.Tensor.__dlpack_device__ = __dlpack_device__


def _accelerator_snapshot() -> None:
    """torch.accelerator.memory._snapshot() knows two devices."""
    upstream = torch.accelerator.memory._snapshot

    @functools.wraps(upstream)
    def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None or accelerator.type != "ocl":
            return upstream(device, augment_with_fx_traces)
        return torch.ocl.memory._snapshot(device, augment_with_fx_traces)

    torch.accelerator.memory._snapshot = _snapshot


def _generators_without_graphs() -> None:
    """Dynamo compiles no function of torch.cuda that seeds or has a generator's state, by its list
    of files. torch calls them where no graph can be made."""
    from torch_ocl.api import random

    frames = torch._C._dynamo.eval_frame
    skipped = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    for function in vars(random).values():
        if getattr(function, "__module__", None) == random.__name__:
            frames.set_code_exec_strategy(function.__code__, skipped)


def _bfloat16_hooks() -> None:
    """DistributedDataParallel refuses hooks that compress to bfloat16, by their names, unless torch
    was built with NCCL or XCCL. gloo adds bfloat16, too."""
    ddp = torch.nn.parallel.DistributedDataParallel
    upstream = ddp._check_comm_hook

    @functools.wraps(upstream)
    def _check_comm_hook(self: Any, hook: Any) -> Any:
        name = getattr(hook, "__name__", "")
        if self.device_type != "ocl" or not name.startswith("bf16_compress"):
            return upstream(self, hook)

        @functools.wraps(hook)  # which has the signature that is checked
        def unnamed(*args: Any) -> Any:
            return hook(*args)

        unnamed.__name__ = "hook"
        return upstream(self, unnamed)

    ddp._check_comm_hook = _check_comm_hook


def _inductor_before_its_caches() -> None:
    """Inductor asks for a device's backend after it has looked for the graph in its caches, whose
    key has what backends add to it: ours must be there before."""
    wrapper = torch._TorchCompileInductorWrapper
    upstream = wrapper.__call__

    @functools.wraps(upstream)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        from torch_ocl import inductor

        inductor.register()
        return upstream(self, *args, **kwargs)

    wrapper.__call__ = __call__


def _configuration() -> None:
    """torch.__config__.show() ends with a line on this package. It does not initialise OpenCL.

    `python -m torch.utils.collect_env` needs none: it lists what pip has installed."""
    upstream = torch.__config__.show

    @functools.wraps(upstream)
    def show() -> str:
        ours = importlib.import_module("torch_ocl")
        return (
            f"{upstream().rstrip()}\n  - torch_ocl {ours.__version__}, OpenCL "
            f"{torch.version.ocl}: python -m torch_ocl shows devices and drivers\n"
        )

    torch.__config__.show = show
