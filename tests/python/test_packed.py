"""torch.ocl.pack_weights: linear layers with packed weights against plain ones."""

import copy
import io
import os
import warnings

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.testing import assert_close

from tests.fresh import run_script
from tests.ops.products import REAL, make, on_device

# Rows, inputs, outputs: tiles and their remainders, pairs that are not whole, several panels.
SHAPES = [(1, 1, 1), (3, 5, 7), (12, 64, 32), (13, 65, 33), (100, 31, 130), (1, 2000, 40)]


def linear(k, n, dtype=torch.float32, bias=True):
    """A layer on the device, and the same on the CPU."""
    layer = nn.Linear(k, n, bias=bias, dtype=dtype).requires_grad_(False)
    layer.weight.copy_(make(n, k, dtype=dtype))
    if bias:
        layer.bias.copy_(make(n, dtype=dtype))
    return copy.deepcopy(layer).to("ocl"), layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_agrees_with_linear(shape, dtype, bias):
    m, k, n = shape
    layer, reference = linear(k, n, dtype, bias)
    packed = torch.ocl.pack_weights(layer)
    assert type(packed) is torch.ocl.PackedLinear
    assert_close(packed.weight.cpu(), reference.weight, rtol=0, atol=0)
    x = make(m, k, dtype=dtype)
    assert_close(packed(on_device(x)).cpu(), reference(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(40,), (0, 40), (2, 3, 40), (2, 0, 40), (6, 1, 2, 40)], ids=str)
def test_shapes_and_layouts(shape, dtype):
    layer, reference = linear(40, 70, dtype)
    packed = torch.ocl.pack_weights(layer)
    x = make(*shape, dtype=dtype)
    out = packed(on_device(x))
    assert out.shape == (*shape[:-1], 70) and out.is_contiguous()
    assert_close(out.cpu(), reference(x))
    if len(shape) == 3:
        for other in (x.transpose(0, 1), x[:, ::2], x.flip(0)):
            assert_close(packed(on_device(other)).cpu(), reference(other))


@pytest.mark.parametrize("features", [(0, 4), (4, 0), (0, 0)], ids=str)
def test_no_features(features):
    layer, reference = linear(*features)
    x = torch.ones(3, features[0])
    assert_close(torch.ocl.pack_weights(layer)(on_device(x)).cpu(), reference(x))


def test_not_finite_inputs_and_weights():
    layer, reference = linear(33, 40)
    for weight in (layer.weight, reference.weight):
        weight[3, 5], weight[39, 32] = torch.nan, torch.inf
    x = make(14, 33, dtype=torch.float32)
    x[2, 2], x[13, 0] = -torch.inf, torch.nan
    assert_close(torch.ocl.pack_weights(layer)(on_device(x)).cpu(), reference(x), equal_nan=True)


def test_large_products_agree_with_unpacked_ones():
    layer, reference = linear(700, 900)
    x = make(600, 700, dtype=torch.float32)
    assert_close(torch.ocl.pack_weights(layer)(on_device(x)).cpu(), reference(x))


def test_what_runs_is_traced():
    script = """
import torch
layer = torch.ocl.pack_weights(torch.nn.Linear(2, 3).to("ocl"))
layer(torch.ones(1, 2, device="ocl"))
"""
    environment = {**os.environ, "TORCH_OCL_VERBOSE": "dispatch"}
    done = run_script(script, environment=environment)
    assert done.returncode == 0, done.stderr
    runs = ": packed runs" in done.stderr
    assert runs == (torch.ops.torch_ocl.pack_linear_weight(torch.ones(3, 2).to("ocl")).dim() > 2)


def test_model_is_changed_in_place_and_keeps_its_state_dict():
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Sequential(nn.Linear(30, 5))).to("ocl")
    plain = copy.deepcopy(model)
    assert torch.ocl.pack_weights(model) is model
    assert [type(m) for m in model.modules()].count(torch.ocl.PackedLinear) == 2
    x = torch.randn(7, 20, device="ocl")
    assert_close(model(x), plain(x))
    state = model.state_dict()
    assert list(state) == list(plain.state_dict())
    assert_close(dict(state), dict(plain.state_dict()), rtol=0, atol=0)
    other = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Sequential(nn.Linear(30, 5)))
    model.load_state_dict(other.state_dict())
    assert_close(model(x).cpu(), other(x.cpu()))
    other.load_state_dict(state)


def test_state_dicts_that_do_not_fit():
    packed = torch.ocl.pack_weights(linear(4, 3)[0])
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        packed.load_state_dict({"weight": torch.ones(3, 5), "bias": torch.ones(3)})
    with pytest.raises(RuntimeError, match='Missing key.*"weight"'):
        packed.load_state_dict({"bias": torch.ones(3)})
    with pytest.raises(RuntimeError, match='Unexpected key.*"scale"'):
        packed.load_state_dict({**packed.state_dict(), "scale": torch.ones(1)})


def test_moves_converts_copies_and_pickles():
    layer, reference = linear(40, 33)
    packed = torch.ocl.pack_weights(layer)
    x = make(5, 40, dtype=torch.float32)
    expected = reference(x)
    assert_close(copy.deepcopy(packed)(on_device(x)).cpu(), expected)
    file = io.BytesIO()
    torch.save(packed, file)
    file.seek(0)
    assert_close(torch.load(file, weights_only=False)(on_device(x)).cpu(), expected)
    assert_close(packed.cpu()(x), expected)
    assert_close(packed.to("ocl")(on_device(x)).cpu(), expected)
    assert_close(packed.double()(on_device(x).double()).cpu(), expected.double())
    half = packed.bfloat16()
    assert half.weight.dtype == torch.bfloat16
    assert_close(half(on_device(x).bfloat16()).cpu(), reference.bfloat16()(x.bfloat16()))


def test_gradients_reach_the_input():
    layer, reference = linear(40, 33)
    x = make(5, 40, dtype=torch.float32)
    ours, theirs = on_device(x).requires_grad_(), x.clone().requires_grad_()
    torch.ocl.pack_weights(layer)(ours).square().sum().backward()
    reference(theirs).square().sum().backward()
    assert_close(ours.grad.cpu(), theirs.grad)


def test_autocast():
    layer, _ = linear(40, 33)
    x = torch.randn(5, 40, device="ocl")
    with torch.autocast("ocl", torch.bfloat16):
        expected = layer(x)
        actual = torch.ocl.pack_weights(layer)(x)
    assert_close(actual, expected)


def test_compiles():
    layer, reference = linear(40, 33)
    model = nn.Sequential(torch.ocl.pack_weights(layer), nn.ReLU())
    model = torch.compile(model, backend="aot_eager")
    x = make(5, 40, dtype=torch.float32)
    with torch.no_grad():
        assert_close(model(on_device(x)).cpu(), reference(x).relu())


def test_what_stays_as_it_is():
    class Head(nn.Linear):
        pass

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.tied = nn.Linear(4, 10)
            self.tied.weight = self.embedding.weight
            self.head = Head(4, 4)
            self.hooked = nn.Linear(4, 4)
            self.hooked.register_forward_hook(lambda module, inputs, output: output + 1)
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
            self.plain = nn.Linear(4, 4)
            self.same = self.plain

    model = torch.ocl.pack_weights(Model().to("ocl"))
    packed = [n for n, m in model.named_children() if type(m) is torch.ocl.PackedLinear]
    assert packed == ["plain"] and model.same is model.plain
    on_cpu = nn.Linear(3, 3)
    assert torch.ocl.pack_weights(on_cpu) is on_cpu


def test_bad_input():
    packed = torch.ocl.pack_weights(linear(4, 3)[0])
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        packed(torch.ones(2, 5, device="ocl"))
    with pytest.raises(RuntimeError, match="same dtype"):
        packed(torch.ones(2, 4, device="ocl", dtype=torch.float64))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        packed(torch.ones(2, 4))
    pack, multiply = torch.ops.torch_ocl.pack_linear_weight, torch.ops.torch_ocl.packed_linear
    with pytest.raises(RuntimeError, match="2 dimensions"):
        pack(torch.ones(4, device="ocl"))
    with pytest.raises(TypeError, match="floating-point"):
        pack(torch.ones(4, 4, device="ocl", dtype=torch.int32))
    panels = pack(torch.ones(3, 4, device="ocl"))
    x = torch.ones(2, 4, device="ocl")
    for arguments in [
        (torch.ones(2, 5, device="ocl"), panels, None, 3),
        (x, panels, None, 1000),
        (x, panels[:, :2], None, 3),
        (x, panels.double(), None, 3),
        (x, panels.int(), None, 3),
        (x.double(), panels, None, 3),
        (x, panels, torch.ones(4, device="ocl"), 3),
        (x, panels, torch.ones(3, device="ocl", dtype=torch.float64), 3),
        (x, panels, None, -1),
        (torch.ones((), device="ocl"), panels, None, 3),
    ]:
        with pytest.raises(RuntimeError, match="packed_linear"):
            multiply(*arguments)


@pytest.mark.parametrize("wrong", [None, torch.zeros(3), "linear"], ids=repr)
def test_takes_modules_only(wrong):
    with pytest.raises(TypeError, match="takes a torch.nn.Module"):
        torch.ocl.pack_weights(wrong)


def test_differentiated_forward():
    layer, reference = linear(20, 30)
    packed = torch.ocl.pack_weights(layer)
    x, t = make(6, 20, dtype=torch.float32), make(6, 20, dtype=torch.float32)
    x_here, t_here = on_device(x), on_device(t)
    wanted = torch.func.jvp(reference, (x,), (t,))[1]
    assert_close(torch.func.jvp(packed, (x_here,), (t_here,))[1].cpu(), wanted)
    assert_close(torch.func.linearize(packed, x_here)[1](t_here).cpu(), wanted)
    assert_close(torch.func.jacfwd(packed)(x_here[0]).cpu(), reference.weight)
    with forward_ad.dual_level():
        result = packed(forward_ad.make_dual(x_here, t_here))
        assert_close(forward_ad.unpack_dual(result).tangent.cpu(), wanted)
    assert_close(packed(x_here).cpu(), reference(x))


@pytest.mark.parametrize("in_dim", [0, 1, 2])
def test_vmap(in_dim):
    layer, reference = linear(20, 30)
    packed = torch.ocl.pack_weights(layer)
    x = make(5, 6, 20, dtype=torch.float32)
    given = x.movedim(0, in_dim) if in_dim < 2 else x.permute(1, 2, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = torch.vmap(packed, in_dims=in_dim)(on_device(given))
    assert_close(got.cpu(), reference(x))
