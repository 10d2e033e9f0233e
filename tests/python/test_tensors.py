"""Python's use of tensors besides computing: print, copy, save, pickle."""

import copy
import io
import pickle

import pytest
import torch


def saved(thing):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3),
        torch.tensor([1.5, float("nan"), float("inf"), -0.0]),
        torch.tensor([True, False]),
        torch.tensor(3.25),
        torch.zeros(0, 3),
        torch.arange(2000.0),
        torch.tensor([1 + 2j, -1j]),
        torch.tensor([0.1, 1000.0], dtype=torch.bfloat16),
    ],
    ids=lambda t: f"{t.dtype}-{tuple(t.shape)}".replace("torch.", ""),
)
def test_printing_adds_only_the_device(tensor):
    shown = repr(tensor.ocl())
    assert "device='ocl:0'" in shown
    without = shown.replace(", device='ocl:0'", "").replace("device='ocl:0', ", "")
    assert "".join(without.split()) == "".join(repr(tensor).split())


def test_deepcopy_of_tensors_and_modules():
    x = torch.arange(5.0).to("ocl").requires_grad_()
    y = copy.deepcopy(x)
    assert y.device == x.device and y.requires_grad and y.data_ptr() != x.data_ptr()
    assert torch.equal(x.detach().cpu(), y.detach().cpu())
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).ocl()
    twin = copy.deepcopy(model)
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert a.device == b.device and torch.equal(a.cpu(), b.cpu())


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("target", [None, "cpu", "ocl", "ocl:0"])
def test_save_on_the_device_and_load_anywhere(target, weights_only):
    model = torch.nn.Linear(3, 4).ocl()
    loaded = torch.load(saved(model.state_dict()), map_location=target, weights_only=weights_only)
    for name, value in model.state_dict().items():
        assert loaded[name].device.type == ("cpu" if target == "cpu" else "ocl")
        assert torch.equal(loaded[name].cpu(), value.cpu())


def test_save_on_the_cpu_and_load_on_the_device():
    x = torch.randn(5, 3)
    y = torch.load(saved(x), map_location="ocl")
    assert y.is_ocl and torch.equal(y.cpu(), x)
    z = torch.load(saved(x), map_location=torch.device("ocl"))
    assert z.is_ocl


def test_views_share_their_storage_after_loading():
    base = torch.arange(10.0).to("ocl")
    a, b = torch.load(saved((base, base[5:])))
    a[5] = 100.0
    assert b[0].item() == 100.0


def test_loading_for_a_device_that_does_not_exist():
    with pytest.raises(RuntimeError, match="device_count"):
        torch.load(saved(torch.ones(1)), map_location=f"ocl:{torch.ocl.device_count()}")


def test_parameters_pickle():
    parameter = torch.nn.Parameter(torch.randn(3).to("ocl"))
    again = pickle.loads(pickle.dumps(parameter))
    assert isinstance(again, torch.nn.Parameter)
    assert again.is_ocl and torch.equal(again.cpu(), parameter.cpu())


def test_numpy_and_item():
    x = torch.arange(4).to("ocl")
    assert x.tolist() == [0, 1, 2, 3]
    assert x[2].item() == 2
    with pytest.raises(TypeError, match="ocl"):
        x.numpy()
    assert x.cpu().numpy().sum() == 6


def test_copy_onto_itself():
    """Nothing is written, so that elements may share memory; onto another view they may not."""
    x = torch.arange(3.0, device="ocl")
    same = x.as_strided((2, 2), (0, 1))
    same.copy_(x.as_strided((2, 2), (0, 1)))
    assert x.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="single memory location"):
        same.copy_(x[1:].expand(2, 2))


@pytest.mark.parametrize("target", [torch.float32, torch.float64, torch.float16, torch.complex64])
@pytest.mark.parametrize(
    "source",
    [
        torch.tensor([1, 2, 255], dtype=torch.uint8),
        torch.tensor([True, False]),
        torch.tensor([-(2**31), 0, 7], dtype=torch.int32),
        torch.tensor([1.5, -0.0, 3.0]),
        torch.tensor([1 + 2j, -3j]),
        torch.tensor([1 + 2j, -3j]).conj(),
    ],
    ids=lambda t: str(t.dtype) + "-conj" * t.is_conj(),
)
def test_copies_into_lazily_negated_views(source, target):
    """The values are converted first: unsigned numbers have no negatives. CPU torch's own copies of
    float32 into such views of float16 are not negated."""
    wanted = -source.to(target)
    for there in ("cpu", "ocl"):
        base = torch.zeros(source.shape, dtype=target, device=there)
        torch._neg_view(base).copy_(source.to("ocl") if there == "cpu" else source)
        torch.testing.assert_close(base.cpu(), wanted, rtol=0, atol=0)


def test_conjugates_and_negatives_of_float8():
    """A real number is its own conjugate."""
    x = torch.tensor([1 + 2j, -3j, 0.25]).conj()
    wanted = torch.zeros(3, dtype=torch.float8_e4m3fn).copy_(x)
    got = torch.zeros(3, dtype=torch.float8_e4m3fn, device="ocl")
    assert torch.equal(got.copy_(x).cpu().float(), wanted.float())
    assert torch.equal(got.copy_(x.to("ocl")).cpu().float(), wanted.float())
    plain = torch.zeros(3)
    torch._neg_view(plain).copy_(got)
    assert torch.equal(plain, -wanted.float())


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_old_storages_have_their_class():
    storage = torch.arange(3.0, device="ocl").storage()
    assert storage._get_legacy_storage_class() is torch.ocl.FloatStorage
    assert storage.type() == "torch.ocl.FloatStorage"
    assert isinstance(storage, torch.ocl.FloatStorage)
    assert not isinstance(storage, torch.FloatStorage | torch.ocl.HalfStorage)
    assert torch.ocl.FloatStorage(2).device.type == "ocl"
    assert pickle.loads(pickle.dumps(storage)).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="Not available"):
        torch.ocl.FloatStorage.from_buffer(b"")
