"""Devices: which there are, what they can do, which one is current."""

import atexit
import dataclasses
import re
import time
import uuid
from typing import Any

import torch

from torch_ocl import _C
from torch_ocl.api.device_arguments import (
    DeviceLike,
    _get_device_index,
    begin_use,
    existing_device_index,
)


def is_available() -> bool:
    """True if there is a usable OpenCL device. Never raises; see unavailable_reason().

    Does not initialise OpenCL: a process that has only asked can still be forked. A forked child of
    a process that has used OpenCL hears what its parent would, and any use raises RuntimeError.
    """
    return _C.device_count() > 0


def unavailable_reason() -> str:
    """Why there is no device to use, with what to install; empty if there is one."""
    return _C.unavailable_reason()


def device_count() -> int:
    """The number of usable devices: GPUs first, CPUs last, or as TORCH_OCL_DEVICES says.

    Does not initialise OpenCL, as is_available().
    """
    return _C.device_count()


def is_initialized() -> bool:
    """True once this process has used OpenCL."""
    return _C.is_initialized()


def _let_autograd_threads_end() -> None:
    """Waits a moment at exit, without the GIL: a thread of autograd's that lets go of a Python
    object while the interpreter is finalised takes the process down with it."""
    if is_initialized():
        time.sleep(0.02)


atexit.register(_let_autograd_threads_end)


def init() -> None:
    """Initialises OpenCL now rather than at the first use; raises RuntimeError if it can't be."""
    _C.check_device(0)


def _lazy_init() -> None:
    """Torch calls it before it makes the first tensor on the device, and also before it asks for
    the current device or stream (torch.compile does so on behalf of CPU programs). What needs
    OpenCL initialises it by itself."""


def _is_in_bad_fork() -> bool:
    return _C.is_in_bad_fork()


def current_device() -> int:
    """The index of the calling thread's current device. Initialises OpenCL."""
    begin_use()
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Makes a device current for the calling thread; a negative index does nothing.

    Raises RuntimeError if there is no such device, the current one included.
    """
    index = _get_device_index(device)
    if index >= 0:
        _C.check_device(index)
    _C.set_device(index)


def synchronize(device: DeviceLike = None) -> None:
    """Waits for all work on a device (default: the current one).

    Raises IndexError if a kernel met an index out of range, RuntimeError if the device failed or
    there is no such device.
    """
    begin_use()
    _C.synchronize(_get_device_index(device, optional=True))


class device:
    """Context manager that makes a device current; None or a negative index changes nothing.

    Entering it raises RuntimeError if there is no such device.
    """

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else _get_device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        _C.set_device(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of a tensor or storage current; other devices' are
    ignored."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.device if obj.device.type == "ocl" else None)


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    """Properties that were probed on a device.

    Attributes:
        name: The device's name, as its driver gives it.
        vendor: Its vendor.
        platform_name: The name of the driver's platform.
        driver_version: The driver's version.
        version: The version of OpenCL that the device has.
        type: "gpu", "accelerator" or "cpu".
        opencl_c_version: The newest OpenCL C that it compiles: (major, minor).
        total_memory: Bytes of memory.
        max_allocation: Bytes that one tensor may have.
        local_mem_size: Bytes of local memory of a work-group.
        global_cache_size: Bytes of the cache that the driver names.
        cache_line_size: Bytes of a line of it.
        max_compute_units: Compute units; a CPU's are its cores.
        max_clock_mhz: The highest clock in MHz; 0 if the driver doesn't say.
        max_work_group_size: Work-items that a work-group may have.
        max_sub_group_size: Work-items of the largest sub-group; 0 without sub-groups.
        required_sub_group_sizes: Sub-group sizes that a kernel may ask for
            (cl_intel_required_subgroup_size).
        subgroup_matrix_size: The sub-group size of Intel's matrix instructions
            (cl_intel_subgroup_matrix_multiply_accumulate); 0 without them.
        host_unified_memory: Whether device and host share their memory.
        vector_width_float: What the driver calls a vector of floats.
        has_fp64: Double precision.
        has_fp16: Arithmetic in half precision.
        has_subgroups: Sub-groups.
        has_int64_atomics: Atomic operations on 64-bit integers.
        has_work_group_reduce: The built-in reductions of a work-group.
        has_tensor_cores: NVIDIA's tensor cores, by inline PTX.
        has_warpgroup_mma: Hopper's matrix instructions of four warps.
        has_assembled_local_memory: More local memory than OpenCL's compiler allows (Hopper).
        has_avx512: x86's AVX-512, by programs in its own language.
        has_bf16_dot: x86's dot products of bfloat16 (AVX512-BF16).
        has_int8_dot: x86's dot products of int8 (AVX512-VNNI).
        has_amx: x86's products of tiles of bfloat16 and int8 (AMX).
        last_level_cache_size: Bytes of the outermost cache; 0 if nothing tells.
        registers_per_item: 32-bit values that a work-item can keep in registers, an estimate.
        compute_capability: NVIDIA's, (major, minor); None for other vendors.
        pci: (domain, bus, device) of its place, None where the driver doesn't tell.
        uuid_bytes: The 16 bytes that name the device, None where the driver doesn't tell.
        extensions: The names of OpenCL's extensions, with spaces between them.

    Then there are torch.cuda's names for what OpenCL knows. What it has no question for, such as
    the memory's clock, is no attribute.
    """

    name: str
    vendor: str
    platform_name: str
    driver_version: str
    version: str
    type: str
    opencl_c_version: tuple[int, int]
    total_memory: int
    max_allocation: int
    local_mem_size: int
    global_cache_size: int
    cache_line_size: int
    max_compute_units: int
    max_clock_mhz: int
    max_work_group_size: int
    max_sub_group_size: int
    required_sub_group_sizes: tuple[int, ...]
    subgroup_matrix_size: int
    host_unified_memory: bool
    vector_width_float: int
    has_fp64: bool
    has_fp16: bool
    has_subgroups: bool
    has_int64_atomics: bool
    has_work_group_reduce: bool
    has_tensor_cores: bool
    has_warpgroup_mma: bool
    has_assembled_local_memory: bool
    has_avx512: bool
    has_bf16_dot: bool
    has_int8_dot: bool
    has_amx: bool
    last_level_cache_size: int = dataclasses.field(repr=False)
    registers_per_item: int = dataclasses.field(repr=False)
    compute_capability: tuple[int, int] | None = dataclasses.field(repr=False)
    pci: tuple[int, int, int] | None = dataclasses.field(repr=False)
    uuid_bytes: bytes | None = dataclasses.field(repr=False)
    extensions: str = dataclasses.field(repr=False)

    @property
    def multi_processor_count(self) -> int:
        """As torch.cuda calls the compute units."""
        return self.max_compute_units

    gpu_multi_processor_count = multi_processor_count

    @property
    def major(self) -> int:
        """The compute capability's on NVIDIA's devices, that of OpenCL's version on others."""
        return self._version()[0]

    @property
    def minor(self) -> int:
        """The number that belongs to `major`."""
        return self._version()[1]

    def _version(self) -> tuple[int, int]:
        if self.compute_capability is not None:
            return self.compute_capability
        found = re.match(r"OpenCL (\d+)\.(\d+)", self.version)
        return (int(found[1]), int(found[2])) if found else (1, 2)

    @property
    def warp_size(self) -> int:
        """Work-items of the largest sub-group; 1 without sub-groups."""
        return max(1, self.max_sub_group_size)

    @property
    def max_threads_per_block(self) -> int:
        """Work-items that a work-group may have."""
        return self.max_work_group_size

    @property
    def max_threads_per_multi_processor(self) -> int:
        """Work-items of the largest work-group: so many at least are on a compute unit at a time.
        OpenCL doesn't tell how many may be."""
        return self.max_work_group_size

    @property
    def regs_per_multiprocessor(self) -> int:
        """32-bit registers that such a work-group may use, an estimate."""
        return self.registers_per_item * self.max_work_group_size

    @property
    def shared_memory_per_block(self) -> int:
        """Bytes of local memory of a work-group."""
        return self.local_mem_size

    @property
    def shared_memory_per_block_optin(self) -> int:
        """Bytes of local memory of a work-group: OpenCL has no smaller default."""
        return self.local_mem_size

    @property
    def shared_memory_per_multiprocessor(self) -> int:
        """Bytes of local memory that one work-group can have of a compute unit."""
        return self.local_mem_size

    @property
    def L2_cache_size(self) -> int:
        """Bytes of the outermost cache that is known."""
        return self.last_level_cache_size or self.global_cache_size

    @property
    def clock_rate(self) -> int:
        """The highest clock in kHz; 0 if the driver doesn't say."""
        return self.max_clock_mhz * 1000

    @property
    def is_integrated(self) -> int:
        """1 if device and host share their memory, else 0."""
        return int(self.host_unified_memory)

    @property
    def uuid(self) -> uuid.UUID | None:
        """The id that names the device among all others; None where the driver doesn't tell."""
        return uuid.UUID(bytes=self.uuid_bytes) if self.uuid_bytes else None

    @property
    def pci_domain_id(self) -> int | None:
        """The domain of the device's place; None where the driver doesn't tell."""
        return self.pci[0] if self.pci else None

    @property
    def pci_bus_id(self) -> int | None:
        """The bus of the device's place; None where the driver doesn't tell."""
        return self.pci[1] if self.pci else None

    @property
    def pci_device_id(self) -> int | None:
        """The device number of its place; None where the driver doesn't tell."""
        return self.pci[2] if self.pci else None

    def __repr__(self) -> str:
        shown = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.repr}
        for size in ("total_memory", "max_allocation"):
            shown[size] = f"{shown[size] // 2**20}MB"
        for text in ("name", "vendor", "platform_name", "driver_version", "version", "type"):
            shown[text] = repr(shown[text])
        return f"_OclDeviceProperties({', '.join(f'{k}={v}' for k, v in shown.items())})"


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """The properties of a device (default: the current one). RuntimeError if there is no such
    device."""
    return DeviceProperties(**_C.properties(_get_device_index(device, optional=True)))


def get_device_name(device: DeviceLike = None) -> str:
    """The device's name, as its driver gives it."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> dict[str, Any]:
    """The capabilities of a device: {"supported_dtypes": set of torch.dtype}, as
    torch.accelerator.get_device_capability."""
    return torch.accelerator.get_device_capability(existing_device_index(device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 tensors work on every device, stored as such and computed in float. Without
    emulation False, since OpenCL has no bfloat16 arithmetic. Initialises OpenCL."""
    begin_use()
    return including_emulation


def is_tf32_supported() -> bool:
    """Whether the current device has tensor cores that take TF32. Products and convolutions of
    float32 use it where ``torch.set_float32_matmul_precision`` or `fp32_precision` allows it."""
    return get_device_properties().has_tensor_cores


def get_arch_list() -> list[str]:
    """An empty list: kernels are compiled for a device when they are first used."""
    return []


def get_gencode_flags() -> str:
    """An empty string, as get_arch_list()."""
    return ""


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes torch.autocast("ocl") can compute in."""
    return [torch.float16, torch.bfloat16]


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """True if copies between the two devices need not pass through the host: only within one."""
    begin_use()
    return existing_device_index(device) == existing_device_index(peer_device)
