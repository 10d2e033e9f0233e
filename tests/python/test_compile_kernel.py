"""torch.ocl.compile_kernel: launches, their sizes, on streams, threads, processes and devices."""

import copy
import pickle
import subprocess
import sys
import threading

import pytest
import torch

from tests.python.user_kernels import SCALE

compiled = torch.ocl.compile_kernel


def test_a_kernel_runs(scale):
    x = torch.randn(1000, device="ocl")
    y = torch.empty_like(x)
    assert scale(x, y, 2, 1000, global_size=(1024,), local_size=(64,)) is None
    assert torch.equal(y.cpu(), 2 * x.cpu())
    scale(x, y, 0.5, 1000, global_size=1000)
    assert torch.equal(y.cpu(), 0.5 * x.cpu())
    assert repr(scale) == (
        "<torch.ocl kernel scale(global float* x, global float* y, float factor, uint n)>"
    )


# ---- Sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes, local, error",
    [
        (-1, None, ValueError),
        ((4, -1), None, ValueError),
        ((), None, ValueError),
        ((1, 1, 1, 1), None, ValueError),
        (2.0, None, TypeError),
        ("4", None, TypeError),
        (2**63, None, ValueError),
        (2**48 + 1, None, ValueError),
        (4, 0, ValueError),
        (4, -4, ValueError),
        (4, (2, 2), ValueError),
        (4, 3, ValueError),
        (2**40, 2**40, ValueError),
        ((2**12, 2**12), (2**12, 2**12), ValueError),
        (None, None, TypeError),
    ],
)
def test_sizes_that_make_no_sense(scale, sizes, local, error):
    x = torch.zeros(4, device="ocl")
    with pytest.raises(error, match="^kernel 'scale': "):
        scale(x, x, 1.0, 0, global_size=sizes, local_size=local)


def test_a_required_local_size():
    kernel = compiled(
        """kernel __attribute__((reqd_work_group_size(8, 1, 1))) void f(global int* x) {
             x[get_global_id(0)] = get_local_size(0);
           }"""
    )
    x = torch.zeros(16, dtype=torch.int32, device="ocl")
    kernel(x, global_size=16)
    assert x.tolist() == [8] * 16
    with pytest.raises(ValueError, match=r"reqd_work_group_size asks for \[8, 1, 1\], got \[4\]"):
        kernel(x, global_size=16, local_size=4)
    with pytest.raises(ValueError, match="not a multiple"):
        kernel(x, global_size=12)


def test_local_memory():
    kernel = compiled(
        """kernel void turn(global int* x, local int* t, local float4* u) {
             int i = get_local_id(0), n = get_local_size(0);
             t[i] = x[get_global_id(0)];
             u[i] = (float4)(i);
             barrier(CLK_LOCAL_MEM_FENCE);
             x[get_global_id(0)] = t[n - 1 - i] + (int)u[n - 1].x;
           }"""
    )
    x = torch.arange(8, dtype=torch.int32, device="ocl")
    local = torch.ocl.local_memory
    kernel(x, local(16), local(64), global_size=8, local_size=4)
    assert x.tolist() == [6, 5, 4, 3, 10, 9, 8, 7]
    with pytest.raises(TypeError, match="parameter 't': it takes torch.ocl.local_memory"):
        kernel(x, 16, local(64), global_size=8, local_size=4)
    with pytest.raises(ValueError, match="kernel 'turn': it needs .* bytes of local memory"):
        kernel(x, local(2**30), local(64), global_size=8, local_size=4)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            local(wrong)
    with pytest.raises(TypeError):
        local(1.5)


# ---- Streams, threads, processes, devices --------------------------------------------------------


def test_it_runs_on_the_current_stream():
    kernel = compiled("kernel void f(global int* x, int v) { x[get_global_id(0)] += v; }")
    x = torch.zeros(1 << 16, dtype=torch.int32, device="ocl")
    torch.ocl.synchronize()
    stream = torch.ocl.Stream()
    with torch.ocl.stream(stream):
        for v in range(100):
            kernel(x, v, global_size=x.numel())
    stream.synchronize()
    assert (x.cpu() == sum(range(100))).all()


def test_memory_may_go_before_the_kernel_ran(scale):
    want = torch.full((1 << 16,), 3.0)
    for _ in range(20):
        y = torch.empty(1 << 16, device="ocl")
        scale(torch.full((1 << 16,), 1.5, device="ocl"), y, 2.0, 1 << 16, global_size=1 << 16)
        torch.zeros(1 << 16, device="ocl")
        assert torch.equal(y.cpu(), want)
    torch.ocl.empty_cache()


def test_threads_share_a_kernel(scale):
    results = {}

    def work(factor):
        x = torch.arange(1000.0, device="ocl")
        for shift in range(50):
            y = torch.zeros(1000, device="ocl")
            scale(x[shift:], y, float(factor), 900, global_size=900)
            if not torch.equal(y.cpu()[:900], factor * (torch.arange(900.0) + shift)):
                results[factor] = shift

    threads = [threading.Thread(target=work, args=(factor,)) for factor in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not results


def test_a_forked_child_gets_an_error(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, torch\n"
        "k = torch.ocl.compile_kernel('kernel void f(global int* x) { *x = 1; }')\n"
        "x = torch.zeros(1, dtype=torch.int32, device='ocl')\n"
        "k(x, global_size=1)\n"
        "torch.ocl.synchronize()\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        k(x, global_size=1)\n"
        "    except RuntimeError as error:\n"
        "        os._exit(0 if 'spawn' in str(error) else 1)\n"
        "    os._exit(2)\n"
        "assert os.wait()[1] == 0\n"
        "assert x.item() == 1\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=120)


@pytest.mark.parametrize("index", range(torch.ocl.device_count()))
def test_it_runs_where_its_tensors_are(scale, index):
    x = torch.ones(8, device=f"ocl:{index}")
    y = torch.zeros(9, device=f"ocl:{index}")[1:]
    scale(x, y, 2.0, 8, global_size=8)
    assert y.tolist() == [2] * 8
    if index:
        with pytest.raises(ValueError, match="parameter 'y': its tensor is on ocl:0, .* ocl:"):
            scale(x, torch.ones(8, device="ocl:0"), 1.0, 8, global_size=8)


def test_copies_and_pickles(scale):
    module = torch.nn.Identity()
    module.kernel = scale
    x, y = torch.ones(4, device="ocl"), torch.empty(4, device="ocl")
    for kernel in (copy.deepcopy(module).kernel, pickle.loads(pickle.dumps(scale))):
        kernel(x, y.zero_(), 2.0, 4, global_size=4)
        assert y.tolist() == [2] * 4


def test_the_program_comes_from_the_cache(scale):
    before = torch.ocl.program_stats()
    compiled(SCALE, "scale")
    assert torch.ocl.program_stats() == before
