"""Snapshots of memory and the history of allocations, in torch.cuda's format."""

import pickle
import subprocess
import sys
import threading

import pytest
import torch
from torch.cuda import _memory_viz

from tests.fresh import run_script

MIB = 2**20


@pytest.fixture(autouse=True)
def nothing_is_recorded_afterwards():
    torch.ocl.synchronize()
    torch.ocl.empty_cache()
    yield
    torch.ocl.memory._record_memory_history(None)
    torch.ocl.memory._set_memory_metadata("")


def empty(n_bytes):
    return torch.empty(n_bytes, dtype=torch.uint8, device="ocl")


def block_of(tensor, segments):
    """The segment and the block that a tensor's memory is."""
    found = [
        (segment, block)
        for segment in segments
        for block in segment["blocks"]
        if block["address"] == tensor.data_ptr()
    ]
    assert len(found) == 1
    return found[0]


def actions_of(tensor_address, snapshot, device=0):
    trace = snapshot["device_traces"][device]
    return [event["action"] for event in trace if event.get("addr") == tensor_address]


def test_segments_and_blocks_add_up():
    kept = [empty(n) for n in (1, 1000, 3 * MIB, 40 * MIB)]
    gaps = [empty(2 * MIB) for _ in range(3)]
    del gaps[1]
    segments = torch.ocl.memory_snapshot()
    stats = torch.ocl.memory_stats()
    assert sum(s["total_size"] for s in segments) == stats["reserved_bytes.all.current"]
    assert sum(s["allocated_size"] for s in segments) == stats["allocated_bytes.all.current"]
    assert sum(s["active_size"] for s in segments) == stats["active_bytes.all.current"]
    assert len(segments) == stats["segment.all.current"]
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]
    for tensor in kept:
        segment, block = block_of(tensor, segments)
        assert block["state"] == "active_allocated" and block["requested_size"] == tensor.numel()
        assert segment["segment_type"] == ("small" if tensor.numel() <= MIB else "large")
        assert segment["device"] == 0 and segment["stream"] == 0
        assert segment["segment_pool_id"] == (0, 0) and block["frames"] == []


def test_memory_that_waits_for_a_stream():
    stream = torch.ocl.Stream()
    tensor = torch.zeros(8 * MIB, device="ocl")
    torch.ocl.synchronize()
    with torch.ocl.stream(stream):
        for _ in range(20):
            tensor.add_(1)
    tensor.record_stream(stream)
    address = tensor.data_ptr()
    del tensor
    blocks = [b for s in torch.ocl.memory_snapshot() for b in s["blocks"]]
    (block,) = [b for b in blocks if b["address"] == address]
    assert block["state"] == "active_awaiting_free" and block["requested_size"] == 32 * MIB


def allocate_here(n_bytes):
    return empty(n_bytes)


def test_who_allocated_what_is_in_use():
    before = empty(MIB)
    torch.ocl.memory._record_memory_history("state", stacks="python")
    tensor = allocate_here(3 * MIB)
    snapshot = torch.ocl.memory._snapshot()
    _, block = block_of(tensor, snapshot["segments"])
    names = [frame["name"] for frame in block["frames"]]
    assert names.index("empty") < names.index("allocate_here")
    frame = block["frames"][names.index("allocate_here")]
    assert frame["filename"] == __file__
    assert frame["line"] == allocate_here.__code__.co_firstlineno + 1
    assert torch.ocl.memory._allocation_traceback(tensor.data_ptr()) == block["frames"]
    assert torch.ocl.memory._allocation_traceback(before.data_ptr()) is None
    assert torch.ocl.memory._allocation_traceback(12345) is None
    assert all(not trace for trace in snapshot["device_traces"])
    assert block_of(before, snapshot["segments"])[1]["frames"] == []


def test_a_history_of_allocations():
    torch.ocl.memory._record_memory_history(stacks="python")
    torch.ocl.memory._set_memory_metadata("step 1")
    tensor = allocate_here(70 * MIB)
    address = tensor.data_ptr()
    torch.ocl.memory._set_memory_metadata("")
    del tensor
    torch.ocl.empty_cache()
    snapshot = torch.ocl.memory._snapshot()
    wanted = ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"]
    assert actions_of(address, snapshot) == wanted
    trace = snapshot["device_traces"][0]
    events = {event["action"]: event for event in trace if event.get("addr") == address}
    assert events["alloc"]["size"] == 70 * MIB and events["alloc"]["stream"] == 0
    assert events["segment_alloc"]["size"] >= 70 * MIB
    assert events["alloc"]["user_metadata"] == "step 1"
    assert events["free_requested"]["user_metadata"] == ""
    assert events["alloc"]["pool_id"] == (0, 0)
    assert "allocate_here" in [f["name"] for f in events["alloc"]["frames"]]
    here = [f["name"] for f in events["free_requested"]["frames"]]
    assert "test_a_history_of_allocations" in here and "allocate_here" not in here
    times = [event["time_us"] for event in trace]
    assert times == sorted(times) and times[-1] - times[0] < 60_000_000
    assert trace[-1]["action"] == "snapshot"


def test_cpp_frames_name_the_op():
    torch.ocl.memory._record_memory_history()
    x = torch.ones(1000, device="ocl")
    y = x + x
    _, block = block_of(y, torch.ocl.memory._snapshot()["segments"])
    assert any("add" in frame["name"] for frame in block["frames"])
    assert any(frame["name"] == "test_cpp_frames_name_the_op" for frame in block["frames"])


def test_memory_of_a_backward_pass():
    """Its thread has no Python frames."""
    torch.ocl.memory._record_memory_history(stacks="python")
    x = torch.ones(1000, 1000, device="ocl", requires_grad=True)
    (x * 2).sum().backward()
    _, block = block_of(x.grad, torch.ocl.memory._snapshot()["segments"])
    assert isinstance(block["frames"], list)


def test_what_is_kept():
    record, snapshot = torch.ocl.memory._record_memory_history, torch.ocl.memory._snapshot
    record(max_entries=3)
    for _ in range(5):
        empty(2 * MIB)
    assert len(snapshot()["device_traces"][0]) == 3
    record(skip_actions=["free_requested", "snapshot"], clear_history=True)
    empty(2 * MIB)
    assert [e["action"] for e in snapshot()["device_traces"][0]] == ["alloc", "free_completed"]
    record(context="alloc", stacks="python", clear_history=True)
    empty(2 * MIB)
    free = snapshot()["device_traces"][0][1]
    assert free["action"] == "free_requested"
    assert "empty" in [f["name"] for f in free["frames"]]  # where it was allocated
    record(context=None, clear_history=True)
    kept = empty(2 * MIB)
    assert all(e["frames"] == [] for e in snapshot()["device_traces"][0])
    record(None)
    assert snapshot()["device_traces"][0] == []
    record(True)
    empty(2 * MIB)
    assert snapshot()["device_traces"][0]
    record(False)
    del kept


@pytest.mark.parametrize(
    "arguments",
    [{"enabled": "some"}, {"context": "none"}, {"stacks": "cpp"}, {"skip_actions": ["sleep"]}],
    ids=str,
)
def test_words_that_mean_nothing(arguments):
    with pytest.raises(ValueError):
        torch.ocl.memory._record_memory_history(**arguments)


def test_running_out_of_memory_is_an_event():
    torch.ocl.memory._record_memory_history()
    with pytest.raises(torch.ocl.OutOfMemoryError):
        empty(2**45)
    trace = torch.ocl.memory._snapshot()["device_traces"][0]
    (event,) = [e for e in trace if e["action"] == "oom"]
    assert event["size"] == 2**45 and event["device_free"] > 0 and "addr" not in event


OBSERVED = """
import torch
def fail(*args):
    raise KeyError("in an observer")
torch.ocl.memory._attach_out_of_memory_observer(fail)
torch.ocl.memory._attach_out_of_memory_observer(lambda *args: print(args))
try:
    torch.empty(2**45, dtype=torch.uint8, device="ocl")
except torch.OutOfMemoryError:
    print("raised", torch.ocl.mem_get_info())
"""


def test_observers_of_out_of_memory():
    done = run_script(OBSERVED)
    assert done.returncode == 0, done.stderr
    told, raised = done.stdout.splitlines()
    device, asked, total, free = eval(told)
    assert (device, asked) == (0, 2**45) and 0 < free <= total
    assert raised.startswith("raised") and str(total) in raised
    assert "in an observer" in done.stderr


def test_threads_record_at_a_time():
    torch.ocl.memory._record_memory_history(stacks="python")

    def work():
        for n in range(200):
            torch.empty(1000 + n, device="ocl")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        torch.ocl.memory._snapshot()
    for thread in threads:
        thread.join()
    trace = torch.ocl.memory._snapshot()["device_traces"][0]
    assert sum(event["action"] == "alloc" for event in trace) == 800


def test_torchs_tools_take_a_snapshot(tmp_path):
    torch.ocl.memory._record_memory_history()
    kept = [empty(n * MIB) for n in (1, 30, 100)]
    empty(50 * MIB)
    file = tmp_path / "snapshot.pickle"
    torch.ocl.memory._dump_snapshot(str(file))
    snapshot = pickle.loads(file.read_bytes())
    assert torch.accelerator.memory._snapshot().keys() == snapshot.keys()
    text = _memory_viz.segsum(snapshot)
    total = _memory_viz.Bytes(sum(s["total_size"] for s in snapshot["segments"]))
    assert f"total_reserved: {total}" in text
    assert "100.0MiB" in _memory_viz.trace(snapshot)
    assert "<script" in _memory_viz.trace_plot(snapshot)
    assert "<script" in _memory_viz.segment_plot(snapshot)
    flames = _memory_viz.memory(snapshot, format_flamegraph=str)
    assert "test_torchs_tools_take_a_snapshot" in flames
    command = [sys.executable, "-m", "torch.cuda._memory_viz", "stats", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "total_allocated" in done.stdout, done.stderr
    del kept


def test_a_warm_allocation_is_cheap_after_recording():
    from torch_ocl import _C

    torch.ocl.memory._record_memory_history()
    _C.benchmark_allocator(4096, 10)
    torch.ocl.memory._record_memory_history(None)
    assert min(_C.benchmark_allocator(4096, 20000) for _ in range(5)) < 900


def test_snapshots_before_the_first_use():
    code = """
import torch
print(torch.ocl.memory_snapshot(), torch.ocl.memory._snapshot()["device_traces"])
torch.ocl.memory._record_memory_history()
print(torch.ocl.is_initialized())
x = torch.ones(3, device="ocl")
print(len(torch.ocl.memory._snapshot()["device_traces"][0]) >= 3)
"""
    done = run_script(code)
    assert done.stdout.splitlines() == ["[] []", "False", "True"], done.stderr
