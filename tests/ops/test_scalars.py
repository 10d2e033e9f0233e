"""Numbers beyond a dtype's range: infinite, wrapped or an error, as on CPU torch."""

import os

import pytest
import torch
import torch.nn.functional as F

from tests.fresh import run_script

BEYOND = [
    (torch.float16, 1e5),
    (torch.float16, 1e300),
    (torch.float16, 2**40),
    (torch.bfloat16, 1e300),
    (torch.float32, 1e300),
    (torch.int8, 300),
    (torch.float16, 65504.0),
    (torch.float32, float("inf")),
    (torch.complex64, 1e300),
]


def _set(index):
    def call(h, v):
        h = h.clone()
        h[index(h)] = v
        return h

    return call


def _host(v):
    return torch.tensor(v, dtype=None if isinstance(v, int) else torch.float64)


CALLS = {
    "set mask": _set(lambda h: h < 0),
    "set row": _set(lambda h: 0),
    "set rows": _set(lambda h: slice(0, 1)),
    "set indices": _set(lambda h: torch.tensor([0, 2], device=h.device)),
    "set element": _set(lambda h: (1, 2)),
    "set mask to tensor": lambda h, v: _set(lambda h: h < 0)(h, _host(v)),
    "where": lambda h, v: torch.where(h < 0, h, -v),
    "where tensor": lambda h, v: torch.where(h < 0, _host(v), h),
    "fill": lambda h, v: h.clone().fill_(v),
    "fill one": lambda h, v: h[0, :1].clone().fill_(v),
    "fill tensor": lambda h, v: h.clone().fill_(_host(v)),
    "fill strided": lambda h, v: h.clone().t()[1:].fill_(_host(v)),
    "fill device tensor": lambda h, v: h.clone().fill_(_host(v).to(h.device)),
    "functional fill": lambda h, v: torch.fill(h, _host(v)),
    "full": lambda h, v: torch.full((3,), v, dtype=h.dtype, device=h.device),
    "full scalar": lambda h, v: torch.full((), v, dtype=h.dtype, device=h.device),
    "masked_fill": lambda h, v: h.masked_fill(h < 0, v),
    "index_fill": lambda h, v: h.index_fill(0, torch.tensor([0], device=h.device), v),
    "scatter": lambda h, v: h.scatter(0, torch.tensor([[0]], device=h.device), v),
    "scatter reduce": lambda h, v: h.scatter(
        0, torch.tensor([[0]], device=h.device), v, reduce="add"
    ),
    "clamp max": lambda h, v: h.clamp(max=v),
    "clamp min": lambda h, v: h.clamp(min=-v),
    "clamp": lambda h, v: h.clamp(-v, v),
    "threshold": lambda h, v: F.threshold(h, 0, v),
    "threshold at": lambda h, v: F.threshold(h, v, 0),
    "hardtanh": lambda h, v: F.hardtanh(h, -v, v),
    "hardshrink": lambda h, v: F.hardshrink(h, v),
    "add": lambda h, v: torch.add(h, h, alpha=v),
    "sub": lambda h, v: torch.sub(h, h, alpha=v),
    "addcmul": lambda h, v: torch.addcmul(h, h, h, value=v),
    "addcdiv": lambda h, v: torch.addcdiv(h, h, h + 20, value=v),
    "lerp": lambda h, v: torch.lerp(h, h, v),
    "elu": lambda h, v: F.elu(h, v),
    "elu in place": lambda h, v: F.elu(h.clone(), v, inplace=True),
    "elu scale": lambda h, v: torch.ops.aten.elu(h, 1, v),
    "elu input_scale": lambda h, v: torch.ops.aten.elu(h, 1, 1, v),
    "elu_backward": lambda h, v: torch.ops.aten.elu_backward(h, v, 1, 1, False, h + 1),
    "celu": lambda h, v: F.celu(h, v),
    "leaky_relu": lambda h, v: F.leaky_relu(h, v),
    "leaky_relu_backward": lambda h, v: torch.ops.aten.leaky_relu_backward(h, h, v, False),
    "softplus": lambda h, v: F.softplus(h, v),
    "softplus threshold": lambda h, v: F.softplus(h, 1, v),
    "softplus_backward": lambda h, v: torch.ops.aten.softplus_backward(h, h, v, 20),
    "softshrink": lambda h, v: F.softshrink(h, v),
    "softshrink_backward": lambda h, v: torch.ops.aten.softshrink_backward(h, h, v),
    "hardshrink_backward": lambda h, v: torch.ops.aten.hardshrink_backward(h, h, v),
    "hardtanh_backward": lambda h, v: torch.ops.aten.hardtanh_backward(h, h, -v, v),
    "logit": lambda h, v: torch.logit(h, v),
    "logit_backward": lambda h, v: torch.ops.aten.logit_backward(h, h, v),
    "_add_relu": lambda h, v: torch.ops.aten._add_relu(h.abs() + 1, h.abs() + 1, alpha=v),
    "foreach add": lambda h, v: torch._foreach_add([h, h], [h, h], alpha=v)[1],
    "foreach sub": lambda h, v: torch._foreach_sub([h, h], [h, h], alpha=v)[1],
    "foreach add scalar": lambda h, v: torch._foreach_add([h, h], v)[1],
    "foreach mul scalars": lambda h, v: torch._foreach_mul([h, h], [1, v])[1],
    "foreach lerp": lambda h, v: torch._foreach_lerp([h, h], [h, h], v)[1],
    "foreach addcmul": lambda h, v: torch._foreach_addcmul([h, h], [h, h], [h, h], v)[1],
    "foreach addcdiv": lambda h, v: torch._foreach_addcdiv([h], [h], [h + 20], [v])[0],
    "plus": lambda h, v: h + v,
    "times": lambda h, v: h * v,
}


@pytest.mark.parametrize("dtype, value", BEYOND)
@pytest.mark.parametrize("name", CALLS)
def test_numbers_beyond_the_dtype(device, name, dtype, value):
    x = torch.tensor([[1, -1, 2], [0, -3, 4], [5, 6, -7]]).to(dtype)
    try:
        expected = CALLS[name](x, value)
    except Exception as error:
        with pytest.raises(type(error)):
            CALLS[name](x.to(device), value)
    else:
        torch.testing.assert_close(CALLS[name](x.to(device), value).cpu(), expected, equal_nan=True)


def test_fill_takes_a_tensor_without_dimensions(device):
    with pytest.raises(RuntimeError, match="0-dimension"):
        torch.zeros(2, device=device).fill_(torch.ones(1))
    x = torch.arange(4.0, device=device)
    assert x.fill_(x[2]).tolist() == [2.0] * 4
    z = torch.zeros(2, dtype=torch.complex64, device=device)
    assert z.conj().fill_(torch.tensor(1 + 2j)).tolist() == [1 + 2j] * 2
    assert z.tolist() == [1 - 2j] * 2


@pytest.mark.parametrize("base", [2.5, 2, 1.0, -2.0, 1 + 2j])
def test_a_scalar_to_the_power_of_a_tensor(base):
    exponent = torch.tensor([0.0, 1.0, -2.0, 3.0, float("nan"), float("inf")])
    torch.testing.assert_close((base ** exponent.to("ocl")).cpu(), base**exponent, equal_nan=True)
    out = torch.empty(0, device="ocl", dtype=(base**exponent).dtype)
    torch.pow(base, exponent.to("ocl"), out=out)
    torch.testing.assert_close(out.cpu(), base**exponent, equal_nan=True)


def test_a_scalar_to_the_power_of_a_tensor_needs_no_double():
    code = """
import torch
exponent = torch.arange(4.0)
assert torch.allclose((10000.0 ** (exponent.to("ocl") / 8)).cpu(), 10000.0 ** (exponent / 8))
"""
    done = run_script(code, environment={**os.environ, "TORCH_OCL_WITHOUT": "fp64"})
    assert done.returncode == 0, done.stdout + done.stderr
