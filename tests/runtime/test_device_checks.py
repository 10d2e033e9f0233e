"""Checks made on the device: whoever waits for the work gets its failures, and nobody else."""

import threading

import pytest
import torch


@pytest.fixture
def rows():
    return torch.ones(3, 2, device="ocl")


def bad_index():
    return torch.tensor([9], device="ocl")


def on_a_stream(rows):
    index = bad_index()
    torch.ocl.synchronize()
    stream = torch.ocl.Stream()
    with torch.ocl.stream(stream):
        rows.index_select(0, index)
    index.record_stream(stream)  # its memory isn't the next tensor's before the stream has read it
    return stream


@pytest.mark.parametrize("wait", [torch.ocl.synchronize, torch.accelerator.synchronize])
def test_waiting_for_the_device(rows, wait):
    on_a_stream(rows)
    with pytest.raises(IndexError, match="index 9"):
        wait()
    wait()
    assert (rows + 1).sum().item() == 12


def test_waiting_for_the_stream(rows):
    stream = on_a_stream(rows)
    rows.index_select(0, torch.tensor([1], device="ocl")).cpu()  # another stream's work is fine
    with pytest.raises(IndexError, match="index 9"):
        stream.synchronize()
    torch.ocl.synchronize()


def test_waiting_for_an_event(rows):
    event = on_a_stream(rows).record_event()
    with pytest.raises(IndexError, match="index 9"):
        event.synchronize()
    torch.ocl.synchronize()


def test_an_event_of_the_default_stream(rows):
    rows.index_select(0, bad_index())
    event = torch.Event(device="ocl")
    event.record()
    with pytest.raises(IndexError, match="index 9"):
        event.synchronize()


def test_a_stream_that_waits_for_another(rows):
    first, second = on_a_stream(rows), torch.ocl.Stream()
    second.wait_stream(first)
    torch.ocl.current_stream().wait_stream(second)
    with pytest.raises(IndexError, match="index 9"):
        (rows + 1).cpu()
    torch.ocl.synchronize()


def test_threads(rows):
    """A thread's failure is its own, whatever the others wait for meanwhile."""
    made, waited, caught = threading.Event(), threading.Event(), {}

    def failing():
        with torch.ocl.stream(torch.ocl.Stream()):
            rows.index_select(0, bad_index())
            made.set()
            waited.wait(20)
            try:
                torch.ocl.current_stream().synchronize()
            except IndexError as error:
                caught["failing"] = str(error)

    def working():
        made.wait(20)
        try:
            for _ in range(20):
                rows.index_select(0, torch.tensor([1], device="ocl")).cpu()
        except IndexError as error:
            caught["working"] = str(error)
        waited.set()

    threads = [threading.Thread(target=f) for f in (failing, working)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert list(caught) == ["failing"]
