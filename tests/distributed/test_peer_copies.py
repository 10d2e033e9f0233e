"""Copies between devices keep the order of both streams, and nobody waits for them."""

import os
import textwrap

import pytest

from tests.fresh import run_script

PREPARE = """
import ctypes
ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX: threads keep no memory of their own
import threading, time
import torch
torch.set_grad_enabled(False)
a = torch.randn(1500, 1500, device="ocl:0")
def work(times=20):
    for _ in range(times):
        c = a @ a
    return c
work(1).to("ocl:1").cpu()
"""


def run(code, parts="2", **environment):
    environment["TORCH_OCL_PARTITION"] = parts
    script = textwrap.dedent(PREPARE) + textwrap.dedent(code)
    done = run_script(script, environment=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done


def test_the_program_goes_on():
    run("""
    begin = time.perf_counter()
    work().cpu()
    whole = time.perf_counter() - begin
    b = torch.zeros(1500, 1500, device="ocl:1")
    begin = time.perf_counter()
    c = work()
    b.copy_(c)
    b += 1
    arrived = torch.ocl.Event()
    arrived.record(torch.ocl.current_stream(1))
    spent = time.perf_counter() - begin
    assert not arrived.query() and spent < whole / 2, (spent, whole)
    torch.testing.assert_close(b.cpu(), c.cpu() + 1, rtol=0, atol=0)
    """)


def test_both_streams_keep_their_order():
    """Work that follows on the source's stream may overwrite it, and what is before on the other
    side may still read what the copy overwrites."""
    run("""
    for count in (3, 1000, 1 << 20, 9_000_001):
        x = torch.empty(count, device="ocl:0")
        y = torch.full((count,), -2.0, device="ocl:1")
        for i in range(4):
            before = y + 0
            x.fill_(i)
            y.copy_(x)
            x.fill_(-1)
            after = y + 1
            y.fill_(-2)
            assert (before == -2).all() and (after == i + 1).all() and (x == -1).all()
    """)


def test_side_streams():
    run("""
    first, second = torch.ocl.Stream("ocl:0"), torch.ocl.Stream("ocl:1")
    with torch.ocl.stream(first), torch.ocl.stream(second):
        x = torch.ones(1000, device="ocl:0")
        work()
        x.fill_(5)
        y = x.to("ocl:1")
    assert not second.query()
    torch.zeros(3, device="ocl:1").cpu()  # another stream's work isn't held up
    second.synchronize()
    assert (y == 5).all()
    """)


def test_an_event_of_another_device_holds_up_its_stream_alone():
    run("""
    first, second = torch.ocl.Stream("ocl:0"), torch.ocl.Stream("ocl:1")
    done, after = torch.ocl.Event(), torch.ocl.Event()
    with torch.ocl.stream(first):
        work()
        done.record()
    second.wait_event(done)
    after.record(second)
    assert not done.query() and not after.query()
    second.synchronize()
    assert done.query() and after.query()
    second.wait_event(done)
    second.synchronize()
    """)


def test_both_ways_from_many_threads():
    run("""
    failures = []
    def carry(number):
        try:
            s = torch.full((3000,), float(number), device=f"ocl:{number % 2}")
            for i in range(100):
                s = s.to(f"ocl:{(number + i + 1) % 2}") + 1
            assert (s == number + 100).all()
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=carry, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    """)


def test_memory_may_go_before_the_copy_is_done():
    run("""
    for i in range(10):
        x = torch.full((1 << 20,), float(i), device="ocl:0")
        work(1)
        y = x.to("ocl:1")
        del x
        torch.ocl.empty_cache()
        torch.full((1 << 20,), -1.0, device="ocl:0")
        assert (y == i).all()
    x.to("ocl:1") if i < 0 else a.to("ocl:1")  # the process ends with one under way
    """)


def test_devices_of_two_platforms():
    run(
        """
        if torch.ocl.device_count() > 1:
            x = torch.randn(3_000_000)
            assert x.to("ocl:0").to("ocl:1").to("ocl:0").cpu().equal(x)
        """,
        parts="1",
        TORCH_OCL_DEVICES="0,1",
    )


def test_failed_checks_are_raised_on_the_sources_device():
    run("""
    x = torch.ones(10, device="ocl:0")[torch.tensor([77], device="ocl:0")]
    y = x.to("ocl:1")
    y.cpu()
    try:
        torch.ocl.synchronize(0)
    except IndexError as error:
        assert "77" in str(error)
    else:
        raise AssertionError
    """)


@pytest.mark.parametrize("device", [0, 1])
def test_a_failure_is_raised_by_the_next_wait(device):
    """Pinned memory that the system won't give, here: to a CPU's driver, as others map far more."""
    code = f"""
    import resource, sys
    if torch.ocl.get_device_properties(0).type != "cpu":
        sys.exit()
    x = torch.ones(40 << 18, device="ocl:0")
    y = torch.zeros(40 << 18, device="ocl:1")
    torch.ocl.synchronize(0), torch.ocl.synchronize(1)
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (64 << 20), resource.RLIM_INFINITY))
    taken = []
    try:
        while True:
            taken.append(torch.empty(1 << 21, dtype=torch.uint8, pin_memory=True))
    except torch.OutOfMemoryError:
        pass
    y.copy_(x)
    try:
        torch.ocl.synchronize({device})
    except torch.OutOfMemoryError as error:
        assert "pinned" in str(error), error
    else:
        raise AssertionError
    taken.clear()
    torch.ocl.synchronize({device})
    try:
        torch.ocl.synchronize({1 - device})
    except torch.OutOfMemoryError:
        pass
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (y.copy_(x).cpu() == 1).all()
    """
    run(code)


def test_a_capture_refuses_them():
    run("""
    x, y = torch.ones(5000, device="ocl:0"), torch.zeros(5000, device="ocl:1")
    with torch.ocl.device(0):
        try:
            with torch.ocl.graph(torch.ocl.OclGraph()):
                y.copy_(x)
        except RuntimeError as error:
            assert "a copy to another device is not possible" in str(error), error
        else:
            raise AssertionError
    assert (y.copy_(x).cpu() == 1).all()
    """)
