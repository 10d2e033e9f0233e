"""Numbers beyond a dtype's range: infinite, wrapped or an error, as on CPU torch."""

import pytest
import torch
import torch.nn.functional as F

BEYOND = [
    (torch.float16, 1e5),
    (torch.float16, 1e300),
    (torch.float16, 2**40),
    (torch.bfloat16, 1e300),
    (torch.float32, 1e300),
    (torch.int8, 300),
    (torch.float16, 65504.0),
    (torch.float32, float("inf")),
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
