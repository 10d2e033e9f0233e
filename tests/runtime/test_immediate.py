"""Small kernels that the calling thread executes itself keep their place in a stream, beside those
that the driver's threads execute."""

import threading

import pytest
import torch
from torch.testing import assert_close

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
