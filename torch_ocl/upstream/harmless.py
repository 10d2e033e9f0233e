"""Programs that don't use `ocl` run as if this package weren't installed.

Once an accelerator is registered, parts of torch take it that a program wants to use it. Each
function undoes that in one place; what a program on `ocl` gets there stays the same or gets better.
"""

import contextlib
import functools
import sys

import torch
from torch.distributed import distributed_c10d

from torch_ocl import _import_hook
from torch_ocl.integrations._choice import is_gpu
from torch_ocl.upstream import data_parallel


def install() -> None:
    """Parts that another version of torch lacks are left out: `import torch` must go on."""
    for undo in (data_parallel.install, _optimizers, _fork_rng, _process_groups, _pin_memory):
        with contextlib.suppress(AttributeError, ImportError, KeyError):
            undo()
    _import_hook.after("torch.distributed.fsdp._fully_shard._fsdp_init", _fully_shard)


def _optimizers() -> None:
    """Each step of most optimisers looks for a device that captures a graph, of CUDA's or XPU's. On
    `ocl` nothing is started for that. A step whose number is on the host can't be captured: fused
    ones have it on the device."""
    upstream = torch.optim.Optimizer._accelerator_graph_capture_health_check

    @functools.wraps(upstream)
    def health_check(self):
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None or accelerator.type != "ocl":
            upstream(self)
        elif (
            not torch.compiler.is_compiling()
            and torch.ocl.is_initialized()
            and torch.ocl.is_current_stream_capturing()
            and not all(g["capturable"] or g.get("fused") for g in self.param_groups)
        ):
            name = type(self).__name__
            raise RuntimeError(
                f"Attempting to capture step() of {name} in a graph of ocl, but param_groups' "
                "capturable is False: pass capturable=True, or fused=True where there is one"
            )

    torch.optim.Optimizer._accelerator_graph_capture_health_check = health_check


def _fork_rng() -> None:
    """torch.random.fork_rng warns of more than one device, since saving the state of each would
    initialise it. Here it doesn't."""
    if hasattr(torch.random, "_fork_rng_warned_already"):
        torch.random._fork_rng_warned_already = True


def _pin_memory() -> None:
    """DataLoader(pin_memory=True) pins where there is an accelerator, and that starts OpenCL. Where
    the device is a CPU, nothing is won by it: a program that stays on "cpu" isn't to pay for that.
    """
    module = sys.modules["torch.utils.data._utils.pin_memory"]
    upstream = module.pin_memory

    @functools.wraps(upstream)
    def pin_memory(data, device=None):
        if torch._C._get_accelerator().type == "ocl" and not torch.ocl.is_initialized():
            if not is_gpu():
                return data
        return upstream(data, device)

    module.pin_memory = pin_memory


def _fully_shard(module) -> None:
    """fully_shard() without a mesh takes the accelerator's devices and moves the parameters there.
    As long as a program has not used `ocl`, it takes the CPU's."""
    upstream = module._init_default_mesh

    @functools.wraps(upstream)
    def init_default_mesh(mesh_dim_names=None):
        if torch._C._get_accelerator().type != "ocl" or torch.ocl.is_initialized():
            return upstream(mesh_dim_names)
        if not distributed_c10d.is_initialized():
            distributed_c10d.init_process_group()
        shape = (distributed_c10d.get_world_size(),)
        return module.init_device_mesh("cpu", mesh_shape=shape, mesh_dim_names=mesh_dim_names)

    module._init_default_mesh = init_default_mesh


def _process_groups() -> None:
    """init_process_group() without a backend takes the accelerator's alone: CPU tensors would have
    none."""
    config = distributed_c10d.BackendConfig
    known = distributed_c10d.Backend.default_device_backend_map
    upstream = config.__init__

    @functools.wraps(upstream)
    def __init__(self, backend):
        unspecified = str(backend) == distributed_c10d.Backend.UNDEFINED
        if unspecified and torch._C._get_accelerator().type == "ocl":
            pairs = [f"{kind}:{known[kind]}" for kind in ("cpu", "ocl") if kind in known]
            backend = ",".join(pairs)
        upstream(self, backend)

    config.__init__ = __init__
