"""The picture of a trace: rows, levels, arrows, and what a real profile gives."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from benchmarks.studies import timeline


def event(name, kind, thread, start, length, process=7, correlation=0):
    return {
        "ph": "X", "cat": kind, "name": name, "pid": process, "tid": thread, "ts": 1000 + start,
        "dur": length, "args": {"correlation": correlation},
    }  # fmt: skip


DEVICE = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "ocl:0"}}
TRACE = {
    "traceEvents": [
        DEVICE,
        event("aten::inner<T>", "cpu_op", 2, 20, 30),
        event("aten::outer", "cpu_op", 2, 10, 50),
        event("aten::later", "cpu_op", 1, 70, 20),
        event("clEnqueueNDRangeKernel", "privateuse1_runtime", 2, 25, 5, correlation=5),
        event("add<f32>", "kernel", 0, 40, 60, process=0, correlation=5),
        {"ph": "i", "cat": "cpu_op", "name": "an instant", "pid": 7, "tid": 1, "ts": 1},
    ]
}


def test_rows():
    first, second, device = timeline.rows_of(TRACE)
    assert [row.title for row in (first, second, device)] == [
        "thread 1",
        "thread 2",
        "ocl:0, stream 0",
    ]
    levels = {box.name: box.level for box in first.boxes}
    assert levels == {"aten::outer": 0, "aten::inner<T>": 1, "clEnqueueNDRangeKernel": 2}
    assert [(box.start, box.end) for box in device.boxes] == [(30, 90)]
    assert not first.on_device and device.on_device


def test_picture():
    svg = timeline.draw(TRACE)
    ElementTree.fromstring(svg)
    # In both panels the call has an arrow to its kernel.
    assert svg.count("marker-end") == 2
    assert "inner&lt;T&gt;" in svg and "aten::" not in svg
    detail = timeline.draw(TRACE, (0.9, 1.0))
    assert detail.count("marker-end") == 1  # the call lies before
    widths = [float(w) for w in re.findall(r"<rect x='[^']*' y='[^']*' width='([0-9.]+)'", svg)]
    assert max(widths) <= timeline.WIDTH - timeline.LEFT - timeline.RIGHT + 0.1


def test_what_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no ops and no kernels"):
        timeline.draw({"traceEvents": [DEVICE]})
    with pytest.raises(ValueError, match="no kernels"):
        timeline.draw({"traceEvents": [event("aten::add", "cpu_op", 1, 0, 5)]})
    with pytest.raises(SystemExit):
        timeline.main(["--out", str(tmp_path / "x.svg"), "--part", "0.5", "0.1"])


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="kernels in traces came with PyTorch 2.13")
def test_a_training_step(tmp_path):
    trace, svg = tmp_path / "trace.json", tmp_path / "trace.svg"
    timeline.profile_step(trace)
    timeline.main(["--trace", str(trace), "--out", str(svg)])
    rows = timeline.rows_of(json.loads(trace.read_text()))
    assert rows[-1].title.startswith("ocl:0, stream")
    assert {"forward", "update"} <= {box.name for box in rows[0].boxes}
    picture = svg.read_text()
    ElementTree.fromstring(picture)
    assert picture.count("marker-end") > timeline.SOME_ARROWS / 2
    assert "conv" in picture and len(picture) < 300_000
