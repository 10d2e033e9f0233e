"""Small kernels that the calling thread executes itself keep their place in a stream, beside those
that the driver's threads execute."""

import os
import threading

import pytest
import torch
from torch.testing import assert_close

from tests.fresh import run_script

SMALL, LARGE = 10, 400_000


def steps(device):
    """Small and large work by turns, each on the results of the last, without a wait."""
    generator = torch.Generator().manual_seed(0)
    small = torch.randn(SMALL, generator=generator).to(device)
    large = torch.randn(LARGE, generator=generator).to(device)
    seen = []
    for i in range(30):
        large = (large + small.sum()).tanh()
        if i % 3 == 0:
            small = small * 0.5
        small = small + large[:SMALL] - large.mean()
        large[i : i + SMALL] = small
        small[i % SMALL] = i
        if i % 7 == 0:
            seen.append(small.sum().item())
    return small, large, seen


def test_small_and_large_by_turns():
    small, large, seen = steps("ocl")
    expected = steps("cpu")
    assert_close((small.cpu(), large.cpu()), expected[:2])
    assert_close(seen, expected[2], rtol=1e-4, atol=1e-4)


def test_a_small_kernel_waits_for_another_stream():
    first, second = torch.ocl.Stream(), torch.ocl.Stream()
    for _ in range(20):
        with torch.ocl.stream(first):
            large = torch.ones(LARGE, device="ocl")
            for _ in range(10):
                large = large + 1
        second.synchronize()
        second.wait_stream(first)
        with torch.ocl.stream(second):
            result = large[-SMALL:] * 2
            assert result.tolist() == [22.0] * SMALL


def test_events_after_small_kernels_complete():
    stream = torch.ocl.current_stream()
    stream.synchronize()
    x = torch.zeros(SMALL, device="ocl")
    for i in range(100):
        x += 1
        event = torch.ocl.Event()
        event.record()
        event.synchronize()
        assert event.query() and stream.query()
        assert x[0].item() == i + 1


def test_threads_on_one_stream():
    """Each has tensors of its own; what one launches must not make the other's work look done."""
    failures = []

    def work(seed):
        small = torch.full((SMALL,), float(seed), device="ocl")
        large = torch.full((LARGE,), float(seed), device="ocl")
        for i in range(200):
            large = large + 1
            small = large[:SMALL] + small
            if i % 10 == 0:
                small = small * 0
            expected = sum(seed + j + 1 for j in range(i // 10 * 10 + 1, i + 1))
            if i % 17 == 0 and small.tolist() != [float(expected)] * SMALL:
                failures.append((seed, i, small[0].item(), expected))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("nbytes", [4, 16 << 10, (16 << 10) + 4, 1 << 20])
def test_copies_in_order(nbytes):
    n = nbytes // 4
    for wait in (False, True):
        x = torch.arange(n, dtype=torch.int32).to("ocl")
        for _ in range(5):
            x = x + 1
        if wait:
            torch.ocl.synchronize()
        host = x.cpu()
        assert torch.equal(host, torch.arange(n, dtype=torch.int32) + 5)
        x.copy_(host + 1)
        y = x.clone()
        x.zero_()
        assert torch.equal(y.cpu(), host + 1)
        assert not x.any()


def test_a_failed_check_of_a_small_kernel_is_reported():
    torch.ocl.synchronize()
    index = torch.tensor([0, 12], device="ocl")
    torch.arange(10, device="ocl")[index]
    with pytest.raises(IndexError):
        torch.ocl.synchronize()


#: Elements of an op of one operation for each, or a product's sizes: the most that the calling
#: thread takes, and one more.
LIMIT = 16384
OPS = {
    "add": ("x[:n] + 1", LIMIT, LIMIT + 1),
    "fill": ("x[:n].fill_(2)", LIMIT, LIMIT + 1),
    "where": ("torch.where(b[:n], x[:n], y[:n])", LIMIT, LIMIT + 1),
    "cat": ("torch.cat([x[: n // 2], y[: n - n // 2]])", LIMIT, LIMIT + 1),
    "index": ("x[i[:n]]", 1000, LIMIT + 1),
    "softmax": ("x[:n].view(-1, 16).softmax(1)", 1024, LIMIT),
    "sum of rows": ("x[:n].view(-1, 8).sum(1)", 1024, LIMIT * 2),
    "mm": ("x[: n * 16].view(n, 16) @ y[:256].view(16, 16)", 16, 1024),
}
SCRIPT = """
import torch
x, y = torch.rand(1 << 16, device="ocl"), torch.rand(1 << 16, device="ocl")
b = x > 0.5
i = torch.arange(1 << 16, device="ocl")
f = lambda n: OP
for n in (FEW, MANY):
    f(n)  # programs are built
for n in (FEW, MANY):
    torch.ocl.synchronize()
    print("n", n, file=__import__("sys").stderr, flush=True)
    f(n)
torch.ocl.synchronize()
"""


@pytest.mark.parametrize("name", OPS)
def test_which_launches_the_calling_thread_takes(name):
    op, few, many = OPS[name]
    code = SCRIPT.replace("OP", op).replace("FEW", str(few)).replace("MANY", str(many))
    run = run_script(code, environment=os.environ | {"TORCH_OCL_VERBOSE": "launch"})
    assert run.returncode == 0, run.stderr
    parts = run.stderr.split("n " + str(few) + "\n")[1].split("n " + str(many) + "\n")
    launches = [[line for line in part.splitlines() if "launch: " in line] for part in parts]
    brief, other = ([line.endswith("on the calling thread") for line in part] for part in launches)
    assert brief and other
    offered = "cl_intel_exec_by_local_thread" in torch.ocl.get_device_properties(0).extensions
    assert all(brief) == offered and not any(other)


@pytest.mark.parametrize("n", [LIMIT - 1, LIMIT + 1, 1 << 18])
def test_failed_checks_on_both_sides_of_the_limit(n):
    index = torch.zeros(n, dtype=torch.int64, device="ocl")
    index[n // 2] = 12
    for _ in range(2):  # the first one builds the program
        torch.ocl.synchronize()
        x = torch.arange(10, device="ocl")[index]
        with pytest.raises(IndexError):
            x.sum().item()
    torch.ocl.synchronize()
    divisors = torch.ones(n, dtype=torch.int64, device="ocl")
    divisors[-1] = 0
    quotient = index // divisors
    with pytest.raises(RuntimeError, match="ZeroDivision"):
        torch.ocl.synchronize()
    assert quotient.shape == (n,)
