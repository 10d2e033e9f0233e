"""Programs that don't use `ocl` run as if this package weren't installed.

Once an accelerator is registered, parts of torch take it that a program wants to use it. Each
function undoes that in one place; what a program on `ocl` gets there stays the same or gets better.
"""

import contextlib
import functools
import sys

import torch
from torch.distributed import distributed_c10d


def install() -> None:
    """Parts that another version of torch lacks are left out: `import torch` must go on."""
    for undo in (_data_parallel, _optimizers, _fork_rng, _process_groups):
        with contextlib.suppress(AttributeError, ImportError, KeyError):
            undo()


def _data_parallel() -> None:
    """torch.nn.DataParallel moves modules to the accelerator's devices, and scatters inputs by
    functions that only builds for CUDA have. As without an accelerator it runs the module as it is,
    on whatever device that is."""
    # The package's attribute of that name is the function.
    module = sys.modules["torch.nn.parallel.data_parallel"]
    upstream = module._get_available_device_type

    @functools.wraps(upstream)
    def get_available_device_type():
        device_type = upstream()
        return None if device_type == "ocl" else device_type

    module._get_available_device_type = get_available_device_type


def _optimizers() -> None:
    """Each step of most optimisers asks whether there is an accelerator, and then whether it is one
    that captures graphs: `ocl` never does, so there is no need to look for devices."""
    upstream = torch.optim.Optimizer._accelerator_graph_capture_health_check

    @functools.wraps(upstream)
    def health_check(self):
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None or accelerator.type != "ocl":
            upstream(self)

    torch.optim.Optimizer._accelerator_graph_capture_health_check = health_check


def _fork_rng() -> None:
    """torch.random.fork_rng warns of more than one device, since saving the state of each would
    initialise it. Here it doesn't."""
    if hasattr(torch.random, "_fork_rng_warned_already"):
        torch.random._fork_rng_warned_already = True


def _process_groups() -> None:
    """init_process_group() without a backend takes the accelerator's and fails where none is
    known: it takes the CPU's."""
    config = distributed_c10d.BackendConfig
    known = distributed_c10d.Backend.default_device_backend_map
    upstream = config.__init__

    @functools.wraps(upstream)
    def __init__(self, backend):
        unspecified = str(backend) == distributed_c10d.Backend.UNDEFINED
        if unspecified and torch._C._get_accelerator().type == "ocl" and "ocl" not in known:
            backend = f"cpu:{known['cpu']}"
        upstream(self, backend)

    config.__init__ = __init__
