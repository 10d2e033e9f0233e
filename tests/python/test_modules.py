"""Modules on their way to the device and back: parameters keep their identity, as on CUDA."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, index):
        return self.head(self.embedding(index))


def test_parameters_keep_their_identity():
    model = nn.Linear(3, 4)
    parameters = list(model.parameters())
    for device in ("ocl", "cpu", "ocl:0"):
        assert model.to(device) is model
        assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
        assert all(p.device.type == device[:3] for p in parameters)
        assert all(p.is_leaf and p.requires_grad for p in parameters)


def test_tied_parameters_stay_tied():
    model = Tied().to("ocl")
    assert model.head.weight is model.embedding.weight
    assert len(list(model.parameters())) == 1
    index = torch.tensor([1, 2, 3])
    reference = Tied()
    reference.load_state_dict(model.state_dict())
    model(index.to("ocl")).square().sum().backward()
    reference(index).square().sum().backward()
    torch.testing.assert_close(model.head.weight.grad.cpu(), reference.head.weight.grad)
    assert copy.deepcopy(model).cpu().head.weight.device.type == "cpu"


def test_an_optimiser_made_before_the_move():
    model = nn.Linear(3, 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    model.to("ocl")
    before = model.weight.detach().clone()
    model(torch.ones(2, 3, device="ocl")).sum().backward()
    optimiser.step()
    torch.testing.assert_close(model.weight.detach().cpu(), before.cpu() - 1.0)


def test_gradients_move_too():
    model = nn.Linear(3, 2)
    model(torch.ones(1, 3)).sum().backward()
    want = model.weight.grad.clone()
    model.to("ocl")
    assert model.weight.grad.device.type == "ocl"
    model(torch.ones(1, 3, device="ocl")).sum().backward()
    torch.testing.assert_close(model.weight.grad.cpu(), 2 * want)
    model.cpu()
    assert model.weight.grad.device.type == "cpu"
    model(torch.ones(1, 3)).sum().backward()
    torch.testing.assert_close(model.weight.grad, 3 * want)


def test_a_move_between_forward_and_backward():
    """The graph of the old device's tensors is still there."""
    model = nn.Linear(3, 2)
    kept = model(torch.ones(1, 3))
    model.to("ocl")
    model(torch.ones(1, 3, device="ocl")).sum().backward()
    assert model.weight.grad.device.type == "ocl"
    del kept


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_dtypes_change_on_the_way(dtype):
    model = nn.BatchNorm2d(4)
    weight = model.weight
    model.to("ocl", dtype)
    assert model.weight is weight and weight.dtype == dtype
    assert model.running_mean.dtype == dtype and model.num_batches_tracked.dtype == torch.int64
    assert model.running_mean.device.type == "ocl"


def test_other_conversions():
    model = nn.Linear(2, 2)
    weight = model.weight
    assert model.ocl().weight is weight and weight.device.type == "ocl"
    assert model.half().float().weight is weight
    assert model.cpu().weight is weight and weight.device.type == "cpu"
    empty = nn.Linear(2, 2, device="meta").to_empty(device="ocl")
    assert empty.weight.device.type == "ocl"
    lstm = nn.LSTM(3, 4)
    assert lstm.to("ocl").weight_ih_l0.device.type == "ocl"
    assert nn.Linear(2, 2).requires_grad_(False).to("ocl").weight.requires_grad is False


def test_swapped_and_overwritten_parameters():
    for flag in ("swap", "overwrite"):
        switch = getattr(torch.__future__, f"set_{flag}_module_params_on_conversion")
        switch(True)
        try:
            model = nn.Linear(2, 2).to("ocl")
        finally:
            switch(False)
        assert model.weight.device.type == "ocl" and isinstance(model.weight, nn.Parameter)


def test_parametrised_modules():
    model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)).to("ocl")
    out = model(torch.ones(2, 3, device="ocl"))
    out.sum().backward()
    assert out.device.type == "ocl"
    assert all(p.grad.device.type == "ocl" for p in model.parameters())


def test_views_of_the_old_parameter_stay():
    model = nn.Linear(2, 2)
    view = model.weight.detach()
    want = view.clone()
    model.to("ocl")
    assert view.device.type == "cpu"
    torch.testing.assert_close(view, want)


@pytest.mark.parametrize(
    "move", [lambda m: m.to("ocl"), lambda m: m.ocl(), lambda m: m.to("ocl").cpu()]
)
def test_lazy_modules(move):
    model = nn.Sequential(nn.LazyConv2d(3, 3), nn.Flatten(), nn.LazyLinear(4))
    parameters = list(model.parameters())
    model = move(model)
    device = next(model.parameters()).device
    image = torch.randn(2, 5, 8, 8)
    result = model(image.to(device))
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert all(p.device == device and p.numel() > 0 for p in parameters)
    assert_close(result.cpu(), model.cpu()(image))


class Loaded(nn.Module):
    """Moves by hand, as code that was written for CUDA does."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.register_buffer("scale", torch.tensor([2.0]))

    def load(self, device):
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.data = tensor.data.to(device)


def test_data_of_another_device():
    model = Loaded()
    weight = model.weight
    for device in ("ocl", "cpu", "ocl"):
        model.load(device)
        assert model.weight is weight and weight.is_leaf and weight.requires_grad
        assert weight.device.type == model.scale.device.type == device
        out = (weight * model.scale).sum()
        out.backward()
        assert weight.grad.device.type == device
        weight.grad = None
    assert weight.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("devices", [("cpu", "ocl"), ("ocl", "cpu"), ("ocl", "ocl")], ids=str)
def test_data_takes_shape_dtype_and_strides(devices):
    old, new = devices
    plain = torch.zeros(3, device=old)
    version = plain._version
    data = torch.arange(6, dtype=torch.int16, device=new).reshape(2, 3).t()
    plain.data = data
    assert plain.device == data.device and plain.dtype == torch.int16
    assert plain.stride() == (1, 3) and plain.data_ptr() == data.data_ptr()
    assert plain._version == version
    assert (plain + 1).cpu().equal(data.cpu() + 1)


def test_data_across_devices_keeps_views_and_graphs_of_the_old_one():
    weight = nn.Parameter(torch.ones(4))
    view = weight.detach()
    loss = (weight * 3).sum()
    weight.data = torch.full((4,), 2.0, device="ocl")
    assert view.tolist() == [1, 1, 1, 1] and view.device.type == "cpu"
    (weight * weight).sum().backward()
    assert weight.grad.tolist() == [4, 4, 4, 4]
    with pytest.raises(RuntimeError):
        loss.backward()  # the gradient is one of the old device


def test_data_under_inference_mode_and_no_grad():
    for context in (torch.inference_mode, torch.no_grad):
        with context():
            tensor = torch.zeros(2)
            tensor.data = torch.ones(2, device="ocl")
            assert tensor.tolist() == [1, 1] and tensor.device.type == "ocl"


def test_data_refuses_what_upstream_refuses():
    weight = nn.Parameter(torch.ones(2, device="ocl"))
    with pytest.raises(RuntimeError, match="floating point or complex"):
        weight.data = torch.ones(2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        weight.data = torch.ones(2).to_sparse()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        weight.data = torch.ones(2, device="meta")


class Quantised(nn.Parameter):
    """A parameter that is made smaller on its way to the device, as bitsandbytes' are."""

    def __new__(cls, data, scale=None):
        self = torch.Tensor._make_subclass(cls, data, False)
        self.scale = scale
        return self

    def to(self, *args, **kwargs):
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type == "cpu" or self.data.dtype == torch.int8:
            moved = super().to(*args, **kwargs)
            return Quantised(moved.data, self.scale)
        values = self.data.to(device)
        self.scale = values.abs().amax() / 127
        self.data = (values / self.scale).round().to(torch.int8)
        return self


def test_parameters_that_quantise_themselves():
    layer = nn.Linear(8, 4, bias=False)
    want = layer.weight.detach().clone()
    layer.weight = Quantised(layer.weight.detach())
    layer.to("ocl")
    assert layer.weight.dtype == torch.int8 and layer.weight.device.type == "ocl"
    got = layer.weight.data.float() * layer.weight.scale
    assert_close(got.cpu(), want, atol=0.01, rtol=0)


def test_modules_with_buffers_in_containers():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ParameterList(
                [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
            )
            self.names = nn.ParameterDict({"a": torch.ones(1)})
            self.empty = nn.Parameter(torch.empty(0))
            self.register_parameter("none", None)
            self.register_buffer("shared", self.parts[0].data)

    model = Odd()
    before = list(model.parameters())
    model.to("ocl").half().cpu().float().ocl()
    assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"ocl"}
