"""Recurrent networks against CPU torch: modules, cells, packed sequences, forward and backward."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import rnn

from tests.as_gpu import run_as_gpu
from tests.refusals import raise_the_same

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "tanh": nn.RNN, "relu": nn.RNN}


def made(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def network(kind, *sizes, **options):
    if kind in ("tanh", "relu"):
        options["nonlinearity"] = kind
    torch.manual_seed(0)
    return KINDS[kind](*sizes, dtype=torch.float64, **options)


def leaves_of(value):
    """The tensors of nested tuples; of a packed sequence its data."""
    if isinstance(value, rnn.PackedSequence):
        return [value.data]
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value for leaf in leaves_of(item)]


def results(call, module, inputs, device, dtype):
    """The outputs and the gradients of inputs and parameters. The values are those of `dtype`
    whatever device and dtype they are given to."""
    wide = torch.float64 if device is None else dtype

    def moved(tensor):
        return tensor.to(dtype).to(device or "cpu", wide, copy=True)

    module = copy.deepcopy(module).to(dtype).to(device or "cpu", wide)
    given = [moved(t).requires_grad_() for t in inputs]
    outputs = leaves_of(call(module, *given))
    pairs = [(o, moved(made(o.shape, 90 + i))) for i, o in enumerate(outputs)]
    torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
    return [o.detach() for o in outputs], [t.grad for t in (*given, *module.parameters())]


def check(call, module, inputs, dtype):
    """Compares with CPU torch in double, allowing four times the error that CPU torch has in the
    dtype itself."""
    actual = [t for part in results(call, module, inputs, "ocl", dtype) for t in part]
    expected = [t for part in results(call, module, inputs, None, dtype) for t in part]
    in_dtype = [t for part in results(call, module, inputs, "cpu", dtype) for t in part]
    for i, (a, e, same) in enumerate(zip(actual, expected, in_dtype, strict=True)):
        assert (a is None) == (same is None), f"result {i}"
        if a is None:
            continue
        assert a.device.type == "ocl" and a.dtype == same.dtype and a.shape == same.shape
        assert a.stride() == same.stride(), f"result {i}"
        scale = e.abs().max().item()
        eps = torch.finfo(dtype).eps
        allowed = 4 * (same.double() - e).abs().max().item() + 8 * eps * max(scale, 1)
        if dtype == torch.float64:
            allowed = 1e-11 * max(scale, 1)
        assert (a.cpu().double() - e).abs().max().item() <= allowed, f"result {i}"


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_one_layer(kind, dtype):
    check(lambda m, x: m(x), network(kind, 5, 37), [made((4, 3, 5), 1)], dtype)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_layers_and_directions(kind, dtype):
    module = network(kind, 6, 16, num_layers=2, bidirectional=True, batch_first=True)
    check(lambda m, x: m(x), module, [made((3, 5, 6), 1)], dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_options(kind):
    dtype = torch.float32
    check(lambda m, x: m(x), network(kind, 6, 8, bias=False), [made((3, 2, 6), 1)], dtype)
    check(lambda m, x: m(x), network(kind, 6, 8), [made((3, 6), 1)], dtype)  # no batch
    # All of the first layer's output is dropped: what is left isn't random.
    dropped = network(kind, 6, 8, num_layers=2, dropout=1.0)
    check(lambda m, x: m(x), dropped, [made((3, 2, 6), 1)], dtype)
    kept = network(kind, 6, 8, num_layers=2, dropout=0.5).eval()
    check(lambda m, x: m(x), kept, [made((3, 2, 6), 1)], dtype)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize(
    "steps, batch, size", [(1, 1, 16), (3, 4, 64), (2, 17, 32), (5, 6, 128), (4, 9, 20)]
)
def test_lstm_sizes(steps, batch, size, dtype):
    inputs = [made((steps, batch, 7), 1), made((1, batch, size), 2), made((1, batch, size), 3)]
    check(lambda m, x, h, c: m(x, (h, c)), network("LSTM", 7, size), inputs, dtype)


@pytest.mark.parametrize("bias", [True, False])
def test_lstm_without_bias_both_ways(bias):
    inputs = [made((3, 5, 4), 1), made((2, 5, 32), 2), made((2, 5, 32), 3)]
    module = network("LSTM", 4, 32, bias=bias, bidirectional=True)
    check(lambda m, x, h, c: m(x, (h, c)), module, inputs, torch.float32)


def test_lstm_gradients_of_some_results():
    inputs = [made((3, 5, 4), 1), made((1, 5, 32), 2), made((1, 5, 32), 3)]
    module = network("LSTM", 4, 32)
    for dtype in (torch.float32, torch.float64):
        check(lambda m, x, h, c: m(x, (h, c))[0], module, inputs, dtype)
        check(lambda m, x, h, c: m(x, (h, c))[1][0], module, inputs, dtype)
        check(lambda m, x, h, c: m(x, (h, c))[1][1], module, inputs, dtype)
        check(lambda m, x, h, c: m(x, (h, c))[0].sum(0), module, inputs, dtype)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_projections(dtype):
    module = network("LSTM", 6, 16, num_layers=2, proj_size=5, bidirectional=True)
    check(lambda m, x: m(x), module, [made((3, 4, 6), 1)], dtype)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences(kind, ordered):
    lengths = torch.tensor([5, 4, 2, 1]) if ordered else torch.tensor([2, 5, 1, 4])
    module = network(kind, 6, 16, num_layers=2, bidirectional=True)

    def call(m, x):
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=ordered)
        output, state = m(packed)
        padded, back = rnn.pad_packed_sequence(output, padding_value=-1.0)
        assert torch.equal(back, lengths)
        return padded, state

    for dtype in (torch.float32, torch.float64):
        check(call, module, [made((5, 4, 6), 1)], dtype)


@pytest.mark.parametrize("batch_first", [True, False])
def test_packing(batch_first):
    lengths = torch.tensor([4, 3, 3, 1])

    def call(m, x):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=batch_first)
        return packed, rnn.pad_packed_sequence(packed, batch_first=batch_first, total_length=6)[0]

    shape = (4, 4, 3)
    check(call, nn.Identity(), [made(shape, 1)], torch.float32)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_cells(bias, dtype):
    torch.manual_seed(0)
    x, h, c = made((3, 6), 1), made((3, 21), 2), made((3, 21), 3)
    wide = {"bias": bias, "dtype": torch.float64}
    check(lambda m, x, h, c: m(x, (h, c)), nn.LSTMCell(6, 21, **wide), [x, h, c], dtype)
    check(lambda m, x, h: m(x, h), nn.GRUCell(6, 21, **wide), [x, h], dtype)
    check(lambda m, x, h: m(x, h), nn.RNNCell(6, 21, **wide), [x, h], dtype)
    check(lambda m, x: m(x), nn.GRUCell(6, 21, **wide), [x], dtype)


def test_cells_take_any_strides():
    dtype = torch.float32
    torch.manual_seed(0)
    lstm, gru = nn.LSTMCell(6, 8, dtype=torch.float64), nn.GRUCell(6, 8, dtype=torch.float64)
    inputs = [made((6, 3), 1), made((8, 3), 2), made((3, 16), 3)]

    # Results have the strides of the state on the CPU, but are contiguous on a GPU and here.
    def lstm_cell(m, x, h, c):
        return [t.contiguous() for t in m(x.t(), (h.t(), c[:, ::2]))]

    check(lstm_cell, lstm, inputs, dtype)
    check(lambda m, x, h: m(x.t(), h.t()).contiguous(), gru, inputs[:2], dtype)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_second_derivatives(kind):
    def second(device):
        module = network(kind, 3, 16).to(device)
        x = made((3, 2, 3), 1).to(device).requires_grad_()
        (first,) = torch.autograd.grad(module(x)[0].square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [x, *module.parameters()])

    for a, e in zip(second("ocl"), second("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), e)


@pytest.mark.parametrize("kind", KINDS)
def test_without_gradients(kind):
    module = network(kind, 6, 16, bidirectional=True)
    x = made((3, 2, 6), 1)
    expected = leaves_of(module(x))
    module, x = copy.deepcopy(module).to("ocl"), x.to("ocl")
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for a, e in zip(leaves_of(module(x)), expected, strict=True):
                torch.testing.assert_close(a.cpu(), e.detach())


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_autocast(kind):
    module, x = network(kind, 6, 16), made((3, 2, 6), 1)
    expected, _ = module(x)
    module, x = copy.deepcopy(module).float().to("ocl"), x.float().to("ocl")
    with torch.autocast("ocl", dtype=torch.bfloat16):
        output, _ = module(x)
    assert output.dtype == torch.bfloat16
    output.float().sum().backward()
    assert (output.cpu().double() - expected).abs().max() < 0.05
    assert all(p.grad.dtype == torch.float32 for p in module.parameters())


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_vmap_and_functional_gradients(kind):
    module, x = network(kind, 4, 16), made((3, 2, 4), 1)

    def loss(x, module):
        return module(x)[0].square().sum()

    expected = torch.func.grad(loss)(x, module)
    actual = torch.func.grad(loss)(x.to("ocl"), copy.deepcopy(module).to("ocl"))
    torch.testing.assert_close(actual.cpu(), expected)


CELLS = {"LSTMCell": nn.LSTMCell, "GRUCell": nn.GRUCell}


def of_one_tensor(kind):
    """A function of an input, which gives the first output, by device; and the input."""
    torch.manual_seed(0)
    module = CELLS[kind](4, 6) if kind in CELLS else KINDS[kind](4, 6)
    module = module.double()

    def on(device):
        copied = copy.deepcopy(module).to(device)
        return lambda x: leaves_of(copied(x))[0]

    return on, made((3, 4) if kind in CELLS else (5, 3, 4), 1)


@pytest.mark.parametrize("kind", [*CELLS, "LSTM", "GRU"])
def test_forward_derivatives(kind):
    on, x = of_one_tensor(kind)
    tangent = made(x.shape, 2)
    # CPU torch has no forward derivative of an LSTM layer, but all have backward ones.
    jacobian = torch.func.jacrev(on("cpu"))(x)
    expected = (jacobian * tangent).sum(tuple(range(-x.dim(), 0)))
    network, x, tangent = on("ocl"), x.to("ocl"), tangent.to("ocl")
    output, actual = torch.func.jvp(network, (x,), (tangent,))
    torch.testing.assert_close(actual.cpu(), expected)
    torch.testing.assert_close(output, network(x).detach())
    with forward_ad.dual_level():
        dual = network(forward_ad.make_dual(x, tangent))
        assert torch.equal(forward_ad.unpack_dual(dual).tangent, actual)
    torch.testing.assert_close(torch.func.jacfwd(network)(x).cpu(), jacobian)


@pytest.mark.parametrize("kind", [*CELLS, "GRU"])
def test_forward_derivatives_of_gradients(kind):
    on, x = of_one_tensor(kind)

    def results(device):
        network, leaf = on(device), x.to(device).requires_grad_()
        hessian = torch.func.hessian(lambda x: network(x).square().sum())(leaf.detach())
        output = network(leaf)
        with forward_ad.dual_level():
            cotangent = forward_ad.make_dual(output.detach(), output.detach().cos())
            (gradient,) = torch.autograd.grad(output, leaf, cotangent)
            return hessian.cpu(), forward_ad.unpack_dual(gradient).tangent.cpu()

    for actual, expected in zip(results("ocl"), results("cpu"), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("kind", [*CELLS, "GRU"])
def test_vmap_without_a_loop(kind):
    on, x = of_one_tensor(kind)
    expected = torch.func.jacrev(on("cpu"))(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(torch.func.jacrev(on("ocl"))(x.to("ocl")).cpu(), expected)


@pytest.mark.parametrize("name, gates", [("lstm", 4), ("gru", 3)])
def test_vmap_of_cells(name, gates):
    cell = getattr(torch.ops.aten, f"_thnn_fused_{name}_cell")
    shapes = [(2, 3, 4 * gates), (2, 3, 4 * gates), (2, 3, 4)]
    operands = [made(shape, i).to("ocl") for i, shape in enumerate(shapes)]
    actual = torch.func.vmap(cell)(*operands)
    for i, results in enumerate(zip(*actual, strict=True)):
        torch.testing.assert_close(results, cell(*(t[i] for t in operands)))


def test_wrong_arguments_raise_what_the_cpu_raises():
    cases = [
        lambda d: nn.LSTM(4, 8, device=d)(torch.ones(2, 3, 5, device=d)),
        lambda d: nn.LSTM(4, 8, device=d)(
            torch.ones(2, 3, 4, device=d), (torch.ones(1, 2, 8, device=d),) * 2
        ),
        lambda d: nn.GRU(4, 8, device=d)(torch.ones(0, 3, 4, device=d)),
        lambda d: nn.LSTM(4, 8, device=d)(torch.ones(0, 3, 4, device=d)),
        lambda d: nn.LSTMCell(4, 8, device=d)(torch.ones(3, 5, device=d)),
    ]
    raise_the_same(cases)
    gates, state = torch.ones(2, 8, device="ocl"), torch.ones(2, 2, device="ocl")
    with pytest.raises(RuntimeError, match="of the same size"):
        torch.ops.aten._thnn_fused_lstm_cell(gates, gates[:, :4], state)
    with pytest.raises(RuntimeError, match="expected a state"):
        torch.ops.aten._thnn_fused_lstm_cell(gates, gates, state[:1])
    with pytest.raises(RuntimeError, match="of one dtype"):
        torch.ops.aten._thnn_fused_lstm_cell(gates, gates, state.double())
    with pytest.raises(NotImplementedError, match="Int"):
        torch.ops.aten._thnn_fused_gru_cell(gates.int(), gates.int(), state.int())


@pytest.mark.slow
@pytest.mark.as_gpu
def test_as_a_gpu():
    run_as_gpu(__file__, "-k", "one_layer or lstm or cells or second")
