"""Streams and events, through torch's generic classes and torch.ocl's."""

import threading
import time

import pyopencl as cl
import pyopencl.array
import pytest
import torch


def becomes_true(condition, seconds=10):
    """Polls: a query may itself need a moment on the device."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def test_the_default_stream_is_current():
    assert torch.ocl.current_stream() == torch.ocl.default_stream()
    assert torch.ocl.current_stream().stream_id == 0
    assert torch.ocl.current_stream().device == torch.device("ocl", torch.ocl.current_device())


def test_streams_come_from_a_pool_of_32_per_priority():
    normal = {torch.ocl.Stream().stream_id for _ in range(40)}
    high = {torch.ocl.Stream(priority=-1).stream_id for _ in range(40)}
    assert len(normal) == len(high) == 32
    assert not normal & high
    assert 0 not in normal | high


def test_a_context_switches_and_restores():
    stream = torch.ocl.Stream()
    before = torch.ocl.current_stream()
    with torch.ocl.stream(stream) as entered:
        assert entered is stream
        assert torch.ocl.current_stream() == stream
    assert torch.ocl.current_stream() == before
    with torch.ocl.stream(None):
        assert torch.ocl.current_stream() == before


def test_generic_streams_work_as_context():
    stream = torch.Stream(device="ocl")
    with stream:
        assert torch.ocl.current_stream().stream_id == stream.stream_id
        assert torch.accelerator.current_stream() == stream
    assert torch.ocl.current_stream().stream_id == 0


def test_the_current_stream_belongs_to_the_thread():
    seen = []
    with torch.ocl.stream(torch.ocl.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.ocl.current_stream().stream_id))
        thread.start()
        thread.join()
    assert seen == [0]


def test_work_on_a_stream_is_ordered_by_events():
    a, b = torch.ocl.Stream(), torch.ocl.Stream()
    x = torch.zeros(1 << 16, device="ocl")
    torch.ocl.synchronize()
    with torch.ocl.stream(a):
        for _ in range(10):
            x.add_(1)
        ready = a.record_event()
    b.wait_event(ready)
    with torch.ocl.stream(b):
        y = x * 2
    b.synchronize()
    assert y.cpu().eq(20).all()
    assert becomes_true(ready.query)


def test_wait_stream():
    a, b = torch.ocl.Stream(), torch.ocl.Stream()
    x = torch.zeros(1 << 16, device="ocl")
    torch.ocl.synchronize()
    with torch.ocl.stream(a):
        x.add_(3)
    b.wait_stream(a)
    with torch.ocl.stream(b):
        x.mul_(2)
    b.synchronize()
    assert becomes_true(a.query) and becomes_true(b.query)
    assert x.cpu().eq(6).all()


def test_a_stream_never_used_is_idle():
    stream = torch.ocl.Stream(priority=-1)
    assert stream.query()
    stream.synchronize()


def test_events_measure_time():
    start = torch.Event(device="ocl", enable_timing=True)
    end = torch.ocl.Event(enable_timing=True)
    start.record()
    x = torch.ones(1 << 20, device="ocl")
    for _ in range(10):
        x.mul_(1.5)
    end.record()
    end.synchronize()
    assert start.query() and end.query()
    assert isinstance(end, torch.ocl.Event) and isinstance(start, torch.ocl.Event)
    assert 0 < start.elapsed_time(end) < 60_000


def test_elapsed_time_needs_timing_events():
    start, end = torch.ocl.Event(), torch.ocl.Event()
    start.record()
    end.record()
    torch.ocl.synchronize()
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(end)


def test_an_event_not_recorded_is_complete():
    event = torch.ocl.Event()
    assert event.query()
    event.synchronize()
    event.wait()


def test_an_event_may_be_recorded_again():
    event = torch.ocl.Event(enable_timing=True)
    for _ in range(3):
        event.record()
        event.synchronize()
    assert event.query()


def test_interprocess_events_are_refused():
    with pytest.raises(RuntimeError, match="between processes"):
        torch.ocl.Event(interprocess=True)


def test_a_stream_of_another_kind_of_device_is_refused():
    current = torch.ocl.current_stream()
    with pytest.raises(ValueError, match="cpu"):
        torch.ocl.set_stream(torch.Stream("cpu"))
    assert torch.ocl.current_stream() == current


def test_a_stream_of_a_device_that_does_not_exist_is_refused():
    with pytest.raises(RuntimeError, match="out of range"):
        torch.ocl.Stream(device=torch.ocl.device_count())
    with pytest.raises(ValueError):
        torch.ocl.stream(torch.Stream(device="cpu"))


def test_threads_may_share_a_device():
    results = [None] * 8

    def work(i):
        with torch.ocl.stream(torch.ocl.Stream()):
            x = torch.full((1000,), float(i), device="ocl")
            for _ in range(50):
                x = x + 1
            results[i] = x.cpu()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result.eq(i + 50).all() for i, result in enumerate(results))


def test_the_warm_path_to_the_queue_is_cheap():
    from torch_ocl import _C

    torch.ones(1, device="ocl")
    assert min(_C.benchmark_current_queue(100_000) for _ in range(5)) < 50
    tensor = torch.ones(1000, device="ocl")
    address = tensor.data_ptr() + 16
    assert min(_C.benchmark_address_lookup(address, 100_000) for _ in range(5)) < 50


def test_what_is_no_stream():
    with pytest.raises(TypeError, match="int"):
        torch.ocl.set_stream(5)


def pyopencl_queue(properties=0):
    context = torch.ocl.pyopencl_queue().context
    return cl.CommandQueue(context, properties=properties)


def test_priorities():
    lowest, highest = torch.ocl.Stream.priority_range()
    assert (lowest, highest) == (0, -1)
    assert torch.ocl.Stream(priority=highest).query()


def test_an_external_queue_is_a_stream():
    queue = pyopencl_queue()
    stream = torch.ocl.ExternalStream(queue.int_ptr)
    assert isinstance(stream, torch.ocl.Stream) and stream.device == torch.device("ocl:0")
    assert torch.ocl.get_stream_from_external(queue.int_ptr, "ocl:0") == stream
    other = pyopencl_queue()
    assert torch.ocl.ExternalStream(other.int_ptr) != stream
    x = torch.ones(1 << 16, device="ocl")
    torch.ocl.synchronize()
    with torch.ocl.stream(stream):
        assert torch.ocl.current_stream() == stream
        assert torch.ocl.pyopencl_queue().int_ptr == queue.int_ptr
        for _ in range(10):
            x.add_(1)
        done = stream.record_event()
    queue.finish()
    assert done.query()
    # Commands of others aren't counted: a query enqueues a marker, which may be under way itself.
    assert becomes_true(stream.query)
    assert x.cpu().eq(11).all()
    torch.ocl.current_stream().wait_stream(stream)


def test_others_work_on_an_external_queue_is_waited_for():
    queue = pyopencl_queue()
    stream = torch.ocl.ExternalStream(queue.int_ptr)
    with torch.ocl.stream(stream):
        x = torch.zeros(1 << 20, device="ocl")
        array = torch.ocl.to_pyopencl(x)
        for _ in range(10):
            array += 1
        y = x * 2
    assert isinstance(array, cl.array.Array)
    stream.synchronize()
    assert y.cpu().eq(20).all()


def test_a_streams_own_queue_is_that_stream():
    stream = torch.ocl.Stream()
    with torch.ocl.stream(stream):
        handle = torch.ocl.pyopencl_queue().int_ptr
    assert torch.ocl.ExternalStream(handle) == stream


def test_queues_that_are_no_streams():
    with pytest.raises(ValueError, match="null"):
        torch.ocl.ExternalStream(0)
    device = torch.ocl.pyopencl_queue().device
    other = cl.CommandQueue(cl.Context([device]))
    with pytest.raises(ValueError, match="another OpenCL context"):
        torch.ocl.ExternalStream(other.int_ptr)
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if device.queue_properties & properties:
        unordered = pyopencl_queue(properties)
        with pytest.raises(ValueError, match="out of order"):
            torch.ocl.ExternalStream(unordered.int_ptr)
    with pytest.raises(RuntimeError, match="out of range"):
        torch.ocl.ExternalStream(other.int_ptr, device=99)


def test_events_take_cudas_flags():
    event = torch.ocl.Event(enable_timing=True, blocking=True, interprocess=False, external=True)
    event.record()
    event.synchronize()
    assert event.query()
