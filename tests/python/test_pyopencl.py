"""Memory and queues shared with PyOpenCL."""

import gc
import subprocess
import sys

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
import torch

DOUBLE = "kernel void twice(global float* x) { x[get_global_id(0)] *= 2; }"


@pytest.fixture
def queue():
    return torch.ocl.pyopencl_queue()


def settle():
    """Lets the interpreter do what drivers' callbacks asked it for."""
    gc.collect()
    for _ in range(1000):
        pass


def test_a_program_moves_a_line_at_a_time(queue):
    """PyOpenCL's first example: what was a NumPy array or a buffer is a tensor, or is not."""
    a_np = np.random.default_rng(1).random(50000).astype(np.float32)
    context, flags = queue.context, cl.mem_flags
    a_g = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=a_np)
    b = torch.rand(50000, device="ocl")
    result = torch.empty_like(b)
    program = cl.Program(
        context,
        """kernel void sum(global const float* a, global const float* b, global float* result) {
             int i = get_global_id(0);
             result[i] = a[i] + b[i];
           }""",
    ).build()
    b_g, result_g = torch.ocl.to_pyopencl(b).data, torch.ocl.to_pyopencl(result).data
    program.sum(queue, (50000,), None, a_g, b_g, result_g)
    a = torch.ocl.from_pyopencl(a_g).view(torch.float32)
    assert torch.equal(result, a + b)
    assert torch.equal(a.cpu(), torch.from_numpy(a_np))


def test_the_queue_is_the_current_stream():
    stream = torch.ocl.Stream()
    default = torch.ocl.pyopencl_queue()
    with torch.ocl.stream(stream):
        other = torch.ocl.pyopencl_queue()
    assert default == torch.ocl.pyopencl_queue() and other != default
    assert other.context == default.context
    with pytest.raises(RuntimeError):
        torch.ocl.pyopencl_queue(torch.ocl.device_count())


def test_order_holds_between_ops_and_pyopencl(queue):
    x = torch.ones(1 << 18, device="ocl")
    twice = cl.Program(queue.context, DOUBLE).build().twice
    array = torch.ocl.to_pyopencl(x)
    for _ in range(10):
        x += 1
        twice(queue, array.shape, None, array.data)
    want = 1.0
    for _ in range(10):
        want = (want + 1) * 2
    assert (x.cpu() == want).all()


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.int8, torch.uint8, torch.int64, torch.bool]
    + [torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64],
)
def test_there_and_back(dtype):
    x = torch.arange(24, device="ocl").to(dtype).reshape(2, 3, 4)
    for view in (
        x,
        x.transpose(0, 2),
        x[1],
        x[1, :, 1:3],
        x[1, 2, 3],
        x[:, None, 1].expand(2, 5, 4),
    ):
        array = torch.ocl.to_pyopencl(view)
        assert array.shape == tuple(view.shape)
        back = torch.ocl.from_pyopencl(array)
        assert back.dtype == dtype and back.stride() == view.stride()
        assert torch.equal(back.cpu(), view.cpu())
    back = torch.ocl.from_pyopencl(torch.ocl.to_pyopencl(x))
    back.zero_()
    assert not x.cpu().any()


def test_arrays_read_and_write_the_tensor():
    x = torch.arange(64.0, device="ocl")
    array = torch.ocl.to_pyopencl(x)
    array += 1
    assert torch.equal(x.cpu(), torch.arange(64.0) + 1)
    assert np.array_equal(array.get(), x.cpu().numpy())
    assert torch.ocl.to_pyopencl(x[32:]).data is not None
    odd = torch.ocl.to_pyopencl(x[33:])
    assert np.array_equal(odd.get(), x[33:].cpu().numpy())
    with pytest.raises(cl.array.ArrayHasOffsetError):
        odd.data  # noqa: B018


def test_tensors_of_pyopencls_arrays(queue):
    host = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    array = cl.array.to_device(queue, host)
    x = torch.ocl.from_pyopencl(array)
    assert x.device.type == "ocl" and x.dtype == torch.int32 and x.is_contiguous()
    assert np.array_equal(x.cpu().numpy(), host)
    x += 1
    assert np.array_equal(array.get(), host + 1)
    part = torch.ocl.from_pyopencl(array[1:, 2])
    assert np.array_equal(part.cpu().numpy(), (host + 1)[1:, 2])
    fortran = torch.ocl.from_pyopencl(cl.array.to_device(queue, np.asfortranarray(host)))
    assert fortran.stride() == (1, 3, 12) and np.array_equal(fortran.cpu().numpy(), host)
    empty = torch.ocl.from_pyopencl(cl.array.empty(queue, (0, 3), np.float32))
    assert empty.shape == (0, 3) and empty.dtype == torch.float32


def test_every_kind_of_op_takes_a_foreign_buffer(queue):
    host = np.random.default_rng(2).random((64, 64), np.float32)
    x = torch.ocl.from_pyopencl(cl.array.to_device(queue, host))
    on_cpu = torch.from_numpy(host)
    for op in (
        lambda t: t + t.t(),
        lambda t: t @ t,
        lambda t: t.sum(1),
        lambda t: t.softmax(0),
        lambda t: t.sort().values,
        lambda t: t[t > 0.5],
        lambda t: torch.cat([t, t[:, 3:]], 1),
        lambda t: t.clone().index_add_(0, torch.tensor([1], device=t.device), t[:1]),
    ):
        torch.testing.assert_close(op(x).cpu(), op(on_cpu))
    kernel = torch.ocl.compile_kernel(DOUBLE)
    kernel(x[1:], global_size=64)
    torch.testing.assert_close(x[1].cpu(), 2 * on_cpu[1])
    kernel(x.view(-1)[3:], global_size=1)
    assert x[0, 3].item() == 2 * host[0, 3]


def test_buffers_that_are_parts_of_others(queue):
    whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4096)
    x = torch.ocl.from_pyopencl(whole)
    assert x.shape == (4096,) and x.dtype == torch.uint8
    x.copy_(torch.arange(4096) % 251)
    part = torch.ocl.from_pyopencl(whole.get_sub_region(1024, 256))
    assert torch.equal(part.cpu(), x[1024:1280].cpu())
    kernel = torch.ocl.compile_kernel("kernel void f(global uchar* x) { x[get_global_id(0)] = 9; }")
    kernel(part[5:], global_size=3)
    assert x[1027:1034].tolist() == [c % 251 for c in (1027, 1028)] + [9] * 3 + [
        c % 251 for c in (1032, 1033)
    ]


def test_a_buffer_outlives_its_tensor(queue):
    settle()  # what earlier tests left goes first
    before = torch.ocl.memory_allocated()
    x = torch.full((1 << 16,), 3.0, device="ocl")
    buffer = torch.ocl.to_pyopencl(x).data
    del x
    settle()
    others = [torch.zeros(1 << 16, device="ocl") for _ in range(4)]
    host = np.empty(1 << 16, np.float32)
    cl.enqueue_copy(queue, host, buffer)
    assert (host == 3).all()
    del others, buffer
    settle()
    torch.ocl.synchronize()
    settle()
    assert torch.ocl.memory_allocated() == before


def test_a_tensor_outlives_its_buffer(queue):
    array = cl.array.to_device(queue, np.full(1 << 16, 5, np.float32))
    x = torch.ocl.from_pyopencl(array)[7:]
    del array
    gc.collect()
    more = [cl.array.zeros(queue, 1 << 16, np.float32) for _ in range(4)]
    assert (x.cpu() == 5).all()
    y = x * 2
    del x, more
    gc.collect()
    assert (y.cpu() == 10).all()


def test_a_tensor_goes_while_it_is_used(queue):
    for _ in range(10):
        x = torch.ocl.from_pyopencl(cl.array.zeros(queue, 1 << 20, np.float32))
        y = x + 1
        del x
        z = y * 2
        assert (z.cpu() == 2).all()


def test_round_trips_do_not_pile_up(queue):
    x = torch.arange(1024.0, device="ocl")
    before = torch.ocl.memory_allocated()
    for _ in range(200):
        y = torch.ocl.from_pyopencl(torch.ocl.to_pyopencl(x[3:]))
        y += 1
    assert torch.equal(x[3:].cpu(), torch.arange(3.0, 1024.0) + 200)
    del y
    settle()
    torch.ocl.synchronize()
    settle()
    assert torch.ocl.memory_allocated() == before


def test_what_can_not_be_shared(queue):
    x = torch.ones(4, device="ocl")
    for wrong in (x.cpu(), np.ones(4), 3, None):
        with pytest.raises(TypeError, match="ocl device"):
            torch.ocl.to_pyopencl(wrong)
    with pytest.raises(TypeError, match=r"no torch.bfloat16: pass tensor.view\(torch.uint16\)"):
        torch.ocl.to_pyopencl(x.to(torch.bfloat16))
    with pytest.raises(TypeError, match="resolve_conj"):
        torch.ocl.to_pyopencl(x.to(torch.complex64).conj())
    with pytest.raises(ValueError, match="without elements"):
        torch.ocl.to_pyopencl(x[:0])
    with pytest.raises(RuntimeError, match="detach"):
        torch.ocl.to_pyopencl(x.requires_grad_())
    for wrong in (np.ones(4), x, 3):
        with pytest.raises(TypeError, match="expected a pyopencl"):
            torch.ocl.from_pyopencl(wrong)
    array = cl.array.to_device(queue, np.arange(8, dtype=np.float32))
    with pytest.raises(ValueError, match="negative strides"):
        torch.ocl.from_pyopencl(array[::-1])
    with pytest.raises(TypeError, match="torch has no dtype for"):
        torch.ocl.from_pyopencl(cl.array.zeros(queue, 4, cl.cltypes.float4))


def test_buffers_of_another_context(queue):
    context = cl.Context(queue.context.devices)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64)
    with pytest.raises(ValueError, match="another OpenCL context.*pyopencl_queue"):
        torch.ocl.from_pyopencl(buffer)


@pytest.mark.parametrize("index", range(torch.ocl.device_count()))
def test_each_device_has_its_context(index):
    queue = torch.ocl.pyopencl_queue(index)
    x = torch.ocl.from_pyopencl(cl.array.to_device(queue, np.ones(4, np.float32)))
    assert x.device == torch.device("ocl", index)
    assert (x + torch.ones(4, device=x.device)).tolist() == [2] * 4
    assert torch.ocl.to_pyopencl(x).queue.context == queue.context


def test_a_process_ends_with_shared_memory(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, pyopencl as cl, pyopencl.array, torch\n"
        "queue = torch.ocl.pyopencl_queue()\n"
        "a = torch.ocl.to_pyopencl(torch.ones(8, device='ocl'))\n"
        "b = torch.ocl.from_pyopencl(cl.array.to_device(queue, np.ones(8, np.float32)))\n"
        "c = b + 1\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=120)


def test_without_pyopencl(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    monkeypatch.setitem(sys.modules, "pyopencl.array", None)
    with pytest.raises(ImportError, match="pip install pyopencl"):
        torch.ocl.pyopencl_queue()


def test_memory_of_a_pool_is_not_handed_out_again():
    queue = torch.ocl.pyopencl_queue()
    pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
    array = cl.array.arange(queue, 1000, dtype="float32", allocator=pool)
    tensor = torch.ocl.from_pyopencl(array)
    del array
    cl.array.zeros(queue, 1000, "float32", allocator=pool)
    assert tensor.sum().item() == 499500
