"""torch.profiler and torch.ocl.profiler on the device: which kernels ran, when, for which
op and range, on which stream."""

import json
import threading
from collections import Counter

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from tests import fresh

DEVICE = torch.autograd.DeviceType.PrivateUse1
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def launches():
    return torch.ocl.launch_count()


def device_events(profiled):
    """Events that ran on the device, without the ranges of the user's."""
    return [e for e in profiled.events() if e.device_type == DEVICE and not e.is_user_annotation]


def kernels(profiled):
    return [e for e in device_events(profiled) if not e.name.startswith(("Memcpy", "Memset"))]


def trace(profiled, folder):
    path = folder / "trace.json"
    profiled.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return {
        category: [e for e in events if e.get("cat") == category]
        for category in {e.get("cat") for e in events}
    } | {"names": [e for e in events if e["ph"] == "M"]}


@pytest.fixture
def matrix():
    a = torch.rand(300, 300, device="ocl")
    for _ in range(2):  # programs are built, and the tuner has tried what it tries
        torch.relu(a @ a).sum()
    torch.ocl.synchronize()
    with record_function("the first imports something"):
        pass
    return a


def test_key_averages_have_the_times_of_kernels(matrix):
    with profile(activities=BOTH) as profiled:
        for _ in range(3):
            torch.relu(matrix @ matrix)
    rows = {row.key: row for row in profiled.key_averages()}
    relu = next(row for name, row in rows.items() if name.startswith("pointwise_contiguous<clamp"))
    assert relu.device_type == DEVICE and relu.count == 3
    assert 0 < relu.self_device_time_total < 1e5
    assert rows["aten::clamp_min"].self_device_time_total == pytest.approx(
        relu.self_device_time_total
    )
    product = [row for name, row in rows.items() if name.startswith("gemm_")]
    assert rows["aten::mm"].device_time_total == pytest.approx(
        sum(row.self_device_time_total for row in product)
    )
    assert rows["aten::mm"].self_device_time_total > 0
    assert "OCL total" in profiled.key_averages().table()


def test_every_launch_appears_once(matrix):
    before = launches()
    with profile(activities=BOTH) as profiled:
        x = matrix
        for _ in range(40):
            x = torch.softmax(x, 1) + matrix.sum(0)
            x = x[:7, :5].contiguous() * 2  # brief ones
            x = torch.nn.functional.pad(x, (0, 295, 0, 293))
    assert len(kernels(profiled)) == launches() - before


def test_kernels_follow_each_other_on_a_stream(matrix):
    with profile(activities=BOTH) as profiled:
        for _ in range(10):
            torch.relu(matrix @ matrix)
    ran = sorted((e.time_range.start, e.time_range.end) for e in kernels(profiled))
    for (_, end), (start, _) in zip(ran, ran[1:], strict=False):
        assert start >= end - 5  # microseconds: two clocks
    calls = {
        e.id: e.time_range.start for e in profiled.events() if e.name == "clEnqueueNDRangeKernel"
    }
    for event in kernels(profiled):
        assert event.time_range.start >= calls[event.id] - 50


def test_a_kernel_belongs_to_the_op_that_launched_it(matrix):
    with profile(activities=BOTH) as profiled:
        torch.relu(matrix).sum()
    launched = {e.name: [k.name for k in e.kernels] for e in profiled.events() if e.kernels}
    assert [n.partition("<")[0] for n in launched["aten::clamp_min"]] == ["pointwise_contiguous"]
    assert {n.partition("_")[0] for n in launched["aten::sum"]} == {"reduce"}


def test_backward_runs_in_a_thread_of_its_own(matrix):
    weight = matrix.clone().requires_grad_()
    (matrix @ weight).sum().backward()
    before = launches()
    with profile(activities=BOTH) as profiled:
        (matrix @ weight).sum().backward()
    assert len(kernels(profiled)) == launches() - before
    by_op = Counter()
    for event in profiled.events():
        by_op[event.name] += sum(k.name.startswith("gemm_") for k in event.kernels)
    assert by_op["MmBackward0"] == 0  # it is mm, called by it, that launches
    products = [e for e in profiled.events() if e.name == "aten::mm"]
    assert len(products) == 2 and all(e.kernels for e in products)
    assert products[0].thread != products[1].thread


def test_threads(matrix):
    def work():
        for _ in range(20):
            torch.relu(matrix)

    work()
    before = launches()
    with torch.ocl.profiler(rows=0, roofline=False) as profiled:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(k.calls for k in profiled.kernels) == launches() - before == 60


def test_profiles_begin_and_end_while_threads_launch(matrix):
    """A queue changes its handle then; the order of its commands must hold."""
    stop, wrong = threading.Event(), []

    def work():
        while not stop.is_set():
            x = torch.zeros(50_000, device="ocl")
            for _ in range(20):
                x += 1
            if not bool((x == 20).all()):
                wrong.append(x.unique().tolist())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        with torch.ocl.profiler(rows=0, roofline=False):
            torch.relu(matrix)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_trace(matrix, tmp_path):
    with profile(activities=BOTH) as profiled:
        with record_function("outer"), record_function("inner"):
            torch.relu(matrix)
        torch.ones(1000).to("ocl").cpu()
    events = trace(profiled, tmp_path)
    (relu,) = (e for e in events["kernel"] if "clamp" in e["name"])
    (name,) = (e for e in events["names"] if e["name"] == "process_name" and e["pid"] == 0)
    assert name["args"]["name"] == "ocl:0" and relu["pid"] == 0
    assert relu["args"]["global size"] and relu["dur"] > 0
    # An arrow from the call, on the row of the host's thread, to the kernel.
    number = relu["args"]["correlation"]
    (call,) = (e for e in events["privateuse1_runtime"] if e["args"]["correlation"] == number)
    arrow = {e["ph"]: e for e in events["ac2g"] if e["id"] == number}
    assert (arrow["s"]["pid"], arrow["s"]["tid"]) == (call["pid"], call["tid"])
    assert (arrow["f"]["pid"], arrow["f"]["tid"]) == (relu["pid"], relu["tid"])
    assert call["tid"] == threading.get_native_id()
    ranges = {e["name"]: e for e in events["gpu_user_annotation"]}
    for range_name in ("outer", "inner"):
        begin = ranges[range_name]["ts"]
        assert begin <= relu["ts"] and relu["ts"] + relu["dur"] <= begin + ranges[range_name]["dur"]
    assert {e["name"]: e["args"]["bytes"] for e in events["gpu_memcpy"]} == {
        "Memcpy HtoD": 4000,
        "Memcpy DtoH": 4000,
    }


def test_stacks(matrix):
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    with profile(activities=BOTH, with_stack=True, experimental_config=verbose) as profiled:
        torch.relu(matrix)
    relu = next(e for e in profiled.events() if e.name == "aten::relu")
    assert any("test_stacks" in frame for frame in relu.stack)


def test_memory(matrix):
    with profile(activities=BOTH, profile_memory=True) as profiled:
        kept = torch.relu(matrix)
    row = next(r for r in profiled.key_averages() if r.key == "aten::relu")
    assert kept.nbytes <= row.device_memory_usage < kept.nbytes + 1024
    assert row.self_cpu_memory_usage == 0


def test_copies_on_the_device():
    source = torch.rand(100_000, device="ocl")
    storage = source.untyped_storage()
    torch.ocl.synchronize()
    with torch.ocl.profiler(rows=0, roofline=False) as profiled:
        storage.resize_(storage.nbytes() + 4096)
    (copy,) = (k for k in profiled.kernels if k.name == "Memcpy DtoD")
    assert copy.bytes == 400_000 and copy.calls == 1


def test_streams_have_rows(matrix, tmp_path):
    streams = [torch.ocl.Stream(), torch.ocl.Stream()]
    with profile(activities=BOTH) as profiled:
        torch.relu(matrix)
        with torch.ocl.stream(streams[0]):
            torch.relu(matrix)
            with torch.ocl.stream(streams[1]):
                torch.relu(matrix)
            torch.relu(matrix)
        torch.ocl.synchronize()
    events = trace(profiled, tmp_path)
    rows = Counter(e["tid"] for e in events["kernel"])
    assert rows == {0: 1, streams[0].stream_id: 2, streams[1].stream_id: 1}
    names = {e["tid"]: e["args"]["name"] for e in events["names"] if e["name"] == "thread_name"}
    assert names[0] == "default stream"
    assert names[streams[0].stream_id] == f"stream {streams[0].stream_id}"


def test_the_host_alone(matrix):
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        torch.relu(matrix)
    assert device_events(profiled) == []
    assert all(e.name != "clEnqueueNDRangeKernel" for e in profiled.events())


def test_nothing_is_kept_from_before_or_between(matrix):
    for _ in range(3):
        torch.relu(matrix)
        with profile(activities=BOTH) as profiled:
            torch.relu(matrix)
        torch.relu(matrix)
        assert len(kernels(profiled)) == 1


def test_both_profilers_at_once(matrix):
    with profile(activities=BOTH) as outer:
        torch.relu(matrix)
        with torch.ocl.profiler(rows=0, roofline=False) as inner:
            torch.relu(matrix)
        torch.relu(matrix)
    assert len(kernels(outer)) == 3
    assert [k.calls for k in inner.kernels] == [1]


def test_schedule(matrix):
    seen = []
    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda profiled: seen.append(len(kernels(profiled))),
    ) as profiled:
        for _ in range(8):
            torch.relu(matrix)
            profiled.step()
    assert seen == [2, 2]


def test_an_error_ends_the_profile(matrix):
    with pytest.raises(ZeroDivisionError), torch.ocl.profiler(rows=0):
        torch.relu(matrix)
        raise ZeroDivisionError
    with torch.ocl.profiler(rows=0, roofline=False) as profiled:
        torch.relu(matrix)
    assert [k.calls for k in profiled.kernels] == [1]


def test_table_of_kernels(matrix, capsys):
    x = torch.rand(1000, 1000, device="ocl")
    torch.ocl.synchronize()
    with torch.ocl.profiler() as profiled:
        torch.mm(x, x)
        y = torch.add(x, x)
        y.add_(x)
        torch.mm(matrix, matrix[:, :1].expand(-1, 300))
        x[0].expand(1000, 1000).contiguous()
    rows = {k.name: k for k in profiled.kernels}
    add = next(k for name, k in rows.items() if "<add" in name)
    assert add.calls == 2 and add.ops == {"aten::add": 1, "aten::add_": 1}
    # x + x is one operand for this; y += x reads two and writes one.
    assert add.bytes == pytest.approx((3 + 3) * x.nbytes)
    assert add.bandwidth == pytest.approx(add.bytes / add.seconds)
    products = [k for k in profiled.kernels if k.flops]
    assert sum(k.flops for k in products) == pytest.approx(2e9 + 2 * 300**3)
    assert all(k.roofline is not None and k.roofline > 0 for k in products)
    copy = next(k for k in profiled.kernels if "aten::copy_" in k.ops)
    assert copy.bytes == pytest.approx(4000 + x.nbytes)  # a row that is repeated is read once
    assert profiled.device_seconds == pytest.approx(sum(k.seconds for k in profiled.kernels))
    assert 0 < profiled.device_seconds
    printed = capsys.readouterr().out
    assert "GFLOP/s" in printed and "mm" in printed and add.name in printed
    assert len(profiled.table(rows=1).splitlines()) == 4


def test_bytes_of_convolutions_and_attention():
    x = torch.rand(2, 8, 16, 16, device="ocl", requires_grad=True)
    convolution = torch.nn.Conv2d(8, 4, 3, padding=1, bias=False, device="ocl")
    query = torch.rand(2, 4, 32, 16, device="ocl")
    with torch.ocl.profiler(rows=0, roofline=False) as profiled:
        convolution(x).sum().backward()
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
    flops = Counter()
    for kernel in profiled.kernels:
        flops[next(iter(kernel.ops)).partition("_")[0]] += kernel.flops
    once = 2 * 2 * 4 * 16 * 16 * 8 * 9
    assert flops["aten::convolution"] == pytest.approx(3 * once)
    # The scores, and what they weigh: 2 x 4 times 32 x 32 products of 16 numbers, twice.
    assert sum(flops.values()) - 3 * once == pytest.approx(2 * 2 * 4 * 32 * 32 * (16 + 16))


def test_only_one_table_at_a_time(matrix):
    with torch.ocl.profiler(rows=0, roofline=False):
        with pytest.raises(RuntimeError, match="active already"):
            with torch.ocl.profiler():
                pass


def test_ranges(matrix):
    @torch.ocl.range("of {}", "a function")
    def relu():
        return torch.relu(matrix)

    assert torch.ocl.range_pop() == -1
    with profile(activities=BOTH) as profiled:
        assert torch.ocl.range_push("first") == 0
        assert torch.ocl.range_push("second") == 1
        torch.ocl.mark("here")
        relu()
        assert torch.ocl.range_pop() == 1
        assert torch.ocl.range_pop() == 0
        with torch.ocl.range("third"):
            pass
    host = {e.name for e in profiled.events() if e.device_type != DEVICE}
    assert {"first", "second", "here", "of a function", "third"} <= host
    on_device = {e.name for e in profiled.events() if e.device_type == DEVICE}
    assert {"first", "second", "of a function"} <= on_device and "third" not in on_device


def test_profile_before_the_first_use_of_the_device():
    script = """
import torch
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
    torch.ones(10, device="ocl").add_(1)
assert sum(e.name.startswith("pointwise") for e in profiled.events()) == 2
print("done")
"""
    run = fresh.run_script(script)
    assert run.returncode == 0 and "done" in run.stdout, run.stderr
