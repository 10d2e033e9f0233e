"""Host memory: pinned, copied to without blocking, or so large that its pages are taken at once."""

import textwrap

import pytest
import torch

from tests.fresh import run_script


def test_pin_memory_copies_and_is_recognised():
    plain = torch.arange(1000.0)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and not plain.is_pinned()
    assert pinned.device.type == "cpu"
    assert torch.equal(pinned, plain)
    assert pinned[10:].is_pinned()
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()


def test_factories_pin():
    assert torch.empty(5, pin_memory=True).is_pinned()
    assert not torch.empty(0).is_pinned()


def test_freed_pinned_memory_is_reused():
    address = torch.empty(100_000, pin_memory=True).data_ptr()
    assert torch.empty(100_000, pin_memory=True).data_ptr() == address


def test_memory_stops_being_pinned_when_freed():
    stats = torch.empty(1 << 20, pin_memory=True)
    del stats
    torch.ocl.empty_host_cache()
    assert not torch.empty(1 << 20).is_pinned()


@pytest.mark.parametrize("non_blocking", [False, True])
def test_copies_both_ways(non_blocking):
    source = torch.randn(1 << 18).pin_memory()
    on_device = source.to("ocl", non_blocking=non_blocking)
    back = torch.empty_like(source, pin_memory=True)
    back.copy_(on_device, non_blocking=non_blocking)
    torch.ocl.synchronize()
    assert torch.equal(back, source)


def test_memory_in_flight_is_not_handed_out():
    for value in range(50):
        source = torch.full((1 << 18,), float(value)).pin_memory()
        on_device = source.to("ocl", non_blocking=True)
        del source
        # Would overwrite the source of the copy if it were handed out too early.
        torch.full((1 << 18,), -1.0).pin_memory()
        assert on_device.cpu().eq(value).all()


def test_the_data_loader_starts_the_device_where_it_is_a_gpu():
    code = """
    import torch
    from torch_ocl import _C
    if GPU:
        _C.device_types = lambda: ["gpu"]
    data = torch.utils.data.TensorDataset(torch.arange(10.0))
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(data, 5, pin_memory=True, num_workers=workers)
        pinned = [batch.is_pinned() for (batch,) in loader]
        assert pinned == [_C.device_types()[0] != "cpu"] * 2, pinned
        assert torch.ocl.is_initialized() == pinned[0]
    """
    for gpu in (False, True):
        done = run_script(textwrap.dedent(code.replace("GPU", str(gpu))))
        assert done.returncode == 0, done.stderr


def test_the_data_loader_pins():
    data = torch.utils.data.TensorDataset(torch.arange(10.0))
    loader = torch.utils.data.DataLoader(data, batch_size=5, pin_memory=True)
    assert all(batch.is_pinned() for (batch,) in loader)


@pytest.mark.parametrize("lazy", [torch.conj, lambda x: torch.conj(x).imag], ids=["conj", "neg"])
def test_lazy_bits_are_settled_before_an_asynchronous_copy(lazy):
    x = torch.randn(100000, dtype=torch.complex64)
    expected = lazy(x).resolve_conj().resolve_neg()
    target = torch.empty_like(expected).pin_memory()
    target.copy_(lazy(x.to("ocl")), non_blocking=True)
    torch.ocl.synchronize()
    assert torch.equal(target, expected)


@pytest.mark.parametrize("mapped", [False, True])
def test_large_copies_to_the_host_stay_within_their_bounds(tmp_path, mapped):
    """Their pages are taken at once, whole pages: what lies beside them in the first and last is
    kept, in files mapped into memory too."""
    count = 12 << 20
    if mapped:
        host = torch.from_file(str(tmp_path / "file"), shared=True, size=count).fill_(7)
    else:
        host = torch.full((count,), 7.0)
    source = torch.randn(count - 2000, device="ocl")
    host[1001:-999].copy_(source)
    assert (host[:1001] == 7).all() and (host[-999:] == 7).all()
    assert torch.equal(host[1001:-999].to("ocl"), source)
    assert torch.equal(source.view(4, -1).T.cpu().T.reshape(-1), host[1001:-999])
