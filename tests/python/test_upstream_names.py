"""Names of torch.cuda that programs use: amp, backends, properties, DLPack, sync debug mode."""

import gc
import uuid

import numpy
import pytest
import torch
from torch.utils.dlpack import DLDeviceType


def test_amp_under_cudas_names():
    from torch.ocl.amp import GradScaler, autocast, custom_bwd, custom_fwd

    class Twice(torch.autograd.Function):
        @staticmethod
        @custom_fwd(cast_inputs=torch.float32)
        def forward(context, x):
            assert x.dtype == torch.float32 and not torch.is_autocast_enabled("ocl")
            return x * 2

        @staticmethod
        @custom_bwd
        def backward(context, grad):
            assert not torch.is_autocast_enabled("ocl")
            return grad * 2

    x = torch.ones(4, 4, device="ocl", requires_grad=True)
    with autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        out = Twice.apply(x.half())
    out.sum().backward()
    assert x.grad.eq(2).all()
    with autocast():
        assert (x @ x).dtype == torch.float16
    with autocast(enabled=False):
        assert (x @ x).dtype == torch.float32
    scaler = GradScaler(init_scale=8.0)
    assert scaler.is_enabled() and scaler.scale(x.detach()).eq(8).all()


def test_backends():
    import torch.backends.ocl as backend

    assert backend is torch.backends.ocl
    assert backend.is_available() and backend.is_built()
    assert backend.version() in torch.ocl.get_device_properties().version
    assert torch.version.ocl == "3.0"
    before = torch.ocl.tunable.is_enabled()
    with backend.flags(tuning=not before):
        assert torch.ocl.tunable.is_enabled() is not before
    assert torch.ocl.tunable.is_enabled() is before


def test_properties_under_cudas_names():
    p = torch.ocl.get_device_properties()
    assert p.multi_processor_count == p.gpu_multi_processor_count == p.max_compute_units
    assert p.major >= 1 and p.minor >= 0
    if p.compute_capability is None:
        assert p.version.startswith(f"OpenCL {p.major}.{p.minor}")
    assert p.warp_size >= 1 and p.warp_size & (p.warp_size - 1) == 0
    assert p.max_threads_per_block == p.max_threads_per_multi_processor == p.max_work_group_size
    assert p.regs_per_multiprocessor >= p.max_work_group_size
    assert p.shared_memory_per_block == p.shared_memory_per_block_optin == p.local_mem_size
    assert p.shared_memory_per_multiprocessor == p.local_mem_size
    assert p.L2_cache_size > 0
    assert p.clock_rate == p.max_clock_mhz * 1000
    assert p.is_integrated in (0, 1)
    assert p.uuid is None or isinstance(p.uuid, uuid.UUID)
    assert (p.pci is None) == (p.pci_bus_id is None)
    assert p.pci_domain_id is None or p.pci_domain_id >= 0
    assert p.pci_device_id is None or p.pci_device_id >= 0
    assert p == torch.ocl.get_device_properties(0)
    assert not hasattr(p, "memory_clock_rate")


def test_dtypes_of_the_device():
    dtypes = torch.ocl.get_device_capability()["supported_dtypes"]
    for dtype in dtypes:
        if dtype.is_floating_point or dtype in (torch.int8, torch.uint64, torch.bool):
            assert torch.zeros(3, device="ocl").to(dtype).dtype == dtype
    assert {torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz} <= dtypes
    assert {torch.float8_e5m2fnuz, torch.float8_e8m0fnu} <= dtypes


def test_architectures():
    assert torch.ocl.get_arch_list() == [] and torch.ocl.get_gencode_flags() == ""
    cores = torch.ocl.get_device_properties().has_tensor_cores
    assert torch.ocl.is_tf32_supported() is cores
    assert torch.ocl.has_half is True and torch.ocl.has_magma is False
    torch.ocl.ipc_collect()


def test_what_is_missing_says_why():
    for name, reason in (
        ("current_blas_handle", "kernels of this package"),
        ("cudart", "CUDA's runtime library"),
        ("utilization", "no question for it"),
        ("CUDAGraph", "torch.ocl.OclGraph here"),
        ("compile_shader", "torch.ocl.compile_kernel here"),
    ):
        with pytest.raises(AttributeError, match=reason):
            getattr(torch.ocl, name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'$"):
        torch.ocl.nonsense  # noqa: B018
    with pytest.raises(AttributeError):
        torch.ocl._nonsense  # noqa: B018


def test_dlpack():
    x = torch.arange(24.0, device="ocl").reshape(4, 6)[1:, ::2]
    assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    y = torch.from_dlpack(x)
    assert y.data_ptr() == x.data_ptr() and y.stride() == x.stride() and y.device == x.device
    y.add_(1)
    assert x.cpu().equal(torch.arange(24.0).reshape(4, 6)[1:, ::2] + 1)
    want = x.cpu()
    del x
    gc.collect()
    assert y.cpu().equal(want)
    assert torch.from_dlpack(y, copy=True).data_ptr() != y.data_ptr()
    assert torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(y)).equal(y)
    for dtype in (torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        z = torch.ones(3, device="ocl").to(dtype)
        assert torch.from_dlpack(z).equal(z)


def test_dlpack_to_and_from_the_host():
    moved = torch.from_dlpack(numpy.arange(5, dtype=numpy.int32), device="ocl")
    assert moved.device.type == "ocl" and moved.tolist() == [0, 1, 2, 3, 4]
    assert torch.from_dlpack(moved, device="cpu").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(BufferError, match="gradient"):
        torch.from_dlpack(torch.ones(2, device="ocl", requires_grad=True))
    assert torch.ones(2).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


@pytest.fixture
def sync_debug_mode():
    yield torch.ocl.set_sync_debug_mode
    torch.ocl.set_sync_debug_mode(0)


def test_sync_debug_mode(sync_debug_mode):
    x = torch.ones(5, device="ocl")
    assert torch.ocl.get_sync_debug_mode() == 0
    sync_debug_mode("error")
    assert torch.ocl.get_sync_debug_mode() == 2
    x.add(1).sum()
    torch.ocl.synchronize()
    for wait in (x.cpu, x[0].item, x.nonzero, torch.ocl.current_stream().synchronize):
        with pytest.raises(RuntimeError, match="called a synchronizing OpenCL operation"):
            wait()
    sync_debug_mode("warn")
    with pytest.warns(UserWarning, match="synchronizing"):
        x.tolist()
    sync_debug_mode("default")
    assert x.tolist() == [1] * 5
    for mode in ("loud", 3, None):
        with pytest.raises(RuntimeError, match="debug_mode"):
            torch.ocl.set_sync_debug_mode(mode)


def test_the_type_is_marked():
    import importlib.resources

    assert importlib.resources.files("torch_ocl").joinpath("py.typed").is_file()


def test_the_tensor_types_of_old():
    for name, dtype in (("FloatTensor", torch.float32), ("BoolTensor", torch.bool)):
        ours, theirs = getattr(torch.ocl, name), getattr(torch, name)
        assert ours.dtype == theirs.dtype == dtype and ours.is_ocl and not ours.is_cuda
        for arguments in ((), (2, 3), (torch.Size([4]),), ([1, 0],), ([[1], [2]],)):
            got, want = ours(*arguments), theirs(*arguments)
            assert got.shape == want.shape and got.dtype == dtype and got.device.type == "ocl"
        assert ours([1, 0]).cpu().equal(theirs([1, 0]))
    x = torch.ones(2, device="ocl")
    assert isinstance(x, torch.ocl.FloatTensor) and not isinstance(x, torch.ocl.HalfTensor)
    assert not isinstance(x.cpu(), torch.ocl.FloatTensor)
    assert torch.ocl.FloatTensor(x).data_ptr() == x.data_ptr()
    with pytest.raises(TypeError, match="expected"):
        torch.ocl.HalfTensor(x)
    assert x.type() == "torch.ocl.FloatTensor"
    half = torch.ones(2).type(torch.ocl.HalfTensor)
    assert isinstance(half, torch.ocl.HalfTensor)
    assert half.type("torch.ocl.LongTensor").tolist() == [1, 1]
