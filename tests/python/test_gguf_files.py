"""torch_ocl.gguf: files whose tensors stay packed, and what can be done with such a tensor."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from tests.gguf_files import FORMATS, blocks, numbers, write
from torch_ocl import gguf
from torch_ocl.utils.gguf import GGUFTensor


def packed(name="Q4_K", n=6, k=512, device="ocl"):
    """A packed matrix, and its numbers in double."""
    made = blocks(name, n, k)
    return GGUFTensor(torch.from_numpy(made).to(device), name), numbers(name, made)


def layers(features=256, tokens=12):
    """A small network whose weights are packed, and the same of their numbers."""
    made, plain = nn.Sequential(), nn.Sequential()
    torch.manual_seed(0)
    for name, n in (("Q6_K", tokens), ("Q4_K", features), ("Q8_0", 5)):
        weight, exact = packed(name, n, features)
        exact = exact.float().to("ocl")
        if not made:
            pair = (nn.Embedding(n, features), nn.Embedding(n, features))
        else:
            pair = (nn.Linear(features, n), nn.Linear(features, n))
            pair[1].bias.data.copy_(pair[0].bias.data)
        pair[0].weight, pair[1].weight = nn.Parameter(weight, False), nn.Parameter(exact, False)
        made.append(pair[0].to("ocl"))
        plain.append(pair[1].to("ocl"))
    return made, plain


def test_load(tmp_path):
    path = tmp_path / "model.gguf"
    made = {name: blocks(name, 3, 2 * size) for name, (size, _) in FORMATS.items()}
    plain = torch.randn(4, 8)
    halves = plain.bfloat16().view(torch.uint8).numpy()
    files = {name: (name, data) for name, data in made.items()}
    files |= {"f32": ("F32", plain.numpy()), "f16": ("F16", plain.half().numpy())}
    write(path, files | {"bf16": ("BF16", halves)})
    state = gguf.load(path, device="ocl")
    assert set(state) == {*made, "f32", "f16", "bf16"}
    for name, data in made.items():
        tensor = state[name]
        assert isinstance(tensor, GGUFTensor) and tensor.device == torch.device("ocl", 0)
        assert tensor.shape == (3, 2 * FORMATS[name][0]) and tensor.dtype == torch.float32
        assert torch.equal(tensor.blocks.cpu(), torch.from_numpy(data))
        assert torch.equal(tensor.dequantize().cpu().double(), numbers(name, data))
    for name, dtype in (("f32", torch.float32), ("f16", torch.half), ("bf16", torch.bfloat16)):
        assert torch.equal(state[name].cpu(), plain.to(dtype)) and type(state[name]) is torch.Tensor
    state = gguf.load(str(path), "cpu", torch.bfloat16)
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}
    assert {tensor.device.type for tensor in state.values()} == {"cpu"}


def test_a_type_that_is_not_supported(tmp_path):
    path = tmp_path / "model.gguf"
    write(path, {"blk.0.ffn_up.weight": ("Q2_K", np.zeros((2, 84), np.uint8))})
    with pytest.raises(
        ValueError, match="blk.0.ffn_up.weight: .*Q2_K are not .*Q4_0, .*Q8_0, BF16"
    ):
        gguf.load(path)
    with pytest.raises(ValueError, match="Q2_K can't stay packed"):
        GGUFTensor(torch.zeros(2, 84, dtype=torch.uint8), "Q2_K")
    with pytest.raises(ValueError, match="multiple of 18 bytes"):
        GGUFTensor(torch.zeros(2, 19, dtype=torch.uint8), "Q4_0")


def test_layers():
    """The numbers are never in memory, and nothing is computed on the host."""
    made, plain = layers()
    tokens = torch.tensor([[3, 11, 0], [1, 1, 2]], device="ocl")
    with torch.no_grad():
        assert_close(made(tokens), plain(tokens), rtol=1e-5, atol=1e-4)
        assert_close(made[1:](torch.randn(2, 9, 256).ocl()).shape, torch.Size([2, 9, 5]))
    assert not torch.ocl.fallback_counts() and not torch.ocl.host_staged_counts()


def test_gradients_go_through():
    made, plain = layers()
    results = []
    x = torch.randn(3, 256)
    for network in (made, plain):
        leaf = x.to("ocl").requires_grad_()
        network[1:](leaf).pow(2).sum().backward()
        results.append((leaf.grad, network[2].bias.grad, network[1].weight.grad))
    assert_close(results[0][:2], results[1][:2], rtol=1e-4, atol=1e-3)
    assert results[0][2] is None
    # Twice differentiated, and in a vector.
    weight, exact = packed()
    vector = torch.randn(512, device="ocl", requires_grad=True)

    def norm(w):
        out = F.linear(vector, w)
        (first,) = torch.autograd.grad(out.pow(3).sum(), vector, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), vector)[0]

    wanted = norm(exact.float().to("ocl"))
    # Sums of large terms: what cancels is as far off as the largest element.
    assert_close(norm(weight), wanted, rtol=1e-4, atol=2e-6 * wanted.abs().max().item())


def test_a_low_rank_matrix_trains_beside_a_packed_one():
    made, _ = layers()
    up, down = torch.zeros(256, 4).ocl().requires_grad_(), torch.randn(4, 256).ocl() * 0.05
    down.requires_grad_()
    tokens, wanted = torch.arange(12).ocl(), torch.randint(0, 5, (12,)).ocl()
    optimizer = torch.optim.Adam([up, down], lr=1e-2)
    losses = []
    for _ in range(20):
        x = made[0](tokens)
        x = made[1](x) + x @ down.t() @ up.t()
        loss = F.cross_entropy(made[2](x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_autocast():
    weight, exact = packed()
    x, bias = torch.randn(3, 512), torch.randn(6)
    with torch.autocast("ocl", dtype=torch.bfloat16):
        found = F.linear(x.to("ocl"), weight, bias.to("ocl"))
    assert found.dtype == torch.bfloat16
    wanted = x.bfloat16().double() @ exact.t() + bias.bfloat16().double()
    assert_close(found.cpu().double(), wanted, rtol=1e-2, atol=1e-2)


def test_moves_and_dtypes():
    weight, exact = packed(device="cpu")
    moved = weight.to("ocl")
    assert isinstance(moved, GGUFTensor) and moved.device.type == moved.blocks.device.type == "ocl"
    back = moved.cpu()
    assert isinstance(back, GGUFTensor) and torch.equal(back.blocks, weight.blocks)
    for dtype in (torch.float16, torch.bfloat16):
        half = moved.to(dtype)
        assert isinstance(half, GGUFTensor) and half.dtype == dtype
        assert torch.equal(half.dequantize().cpu(), exact.to(dtype))
    assert moved.double().dtype == torch.double and type(moved.double()) is torch.Tensor
    layer = nn.Linear(512, 6, bias=False)
    layer.weight = nn.Parameter(weight, False)
    layer.to("ocl").half()
    assert isinstance(layer.weight, GGUFTensor) and isinstance(layer.weight, nn.Parameter)
    assert layer(torch.randn(2, 512).half().ocl()).dtype == torch.half


def test_copies_and_rows():
    weight, exact = packed()
    for twin in (weight.clone(), copy.deepcopy(weight), copy.copy(weight), weight.detach()):
        assert isinstance(twin, GGUFTensor) and torch.equal(twin.blocks.cpu(), weight.blocks.cpu())
    assert weight.clone().blocks.data_ptr() != weight.blocks.data_ptr()
    assert weight.detach().blocks.data_ptr() == weight.blocks.data_ptr()
    order = torch.tensor([3, 1, 1], device="ocl")
    chosen = [(weight[1:4], exact[1:4]), (weight[::2], exact[::2]), (weight[...], exact)]
    chosen += [(weight[2], exact[2]), (weight.index_select(0, order), exact[order.cpu()])]
    chosen += [(weight.view(6, -1), exact)]
    for part, wanted in chosen:
        assert isinstance(part, GGUFTensor) and part.shape == wanted.shape
        assert torch.equal(part.dequantize().cpu().double(), wanted)
    other = GGUFTensor(torch.zeros_like(weight.blocks), "Q4_K")
    other.copy_(weight)
    assert torch.equal(other.blocks.cpu(), weight.blocks.cpu())


def test_other_operations_take_the_numbers():
    weight, exact = packed()
    x = torch.randn(3, 512)
    assert_close(
        (x.ocl() @ weight.t()).cpu().double(), x.double() @ exact.t(), rtol=1e-4, atol=1e-3
    )
    assert_close((weight + 1).cpu().double(), exact + 1)
    assert weight[:, 5].shape == (6,) and type(weight[:, 5]) is torch.Tensor
    plain = torch.empty(6, 512, device="ocl").copy_(weight)
    assert torch.equal(plain.cpu().double(), exact)
    assert "GGUFTensor(Q4_K, shape=(6, 512)" in repr(weight)
    for write_to in (lambda: weight.mul_(2), lambda: weight.copy_(plain), lambda: weight.zero_()):
        with pytest.raises(NotImplementedError, match="can't be written"):
            write_to()
    with pytest.raises(NotImplementedError, match="max_norm"):
        F.embedding(torch.tensor([1], device="ocl"), weight, max_norm=1.0)


@pytest.mark.parametrize("weights_only", [True, False])
def test_saved_and_loaded(weights_only):
    made, _ = layers()
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    assert file.tell() < 60_000  # the numbers alone would take 280,000 bytes
    for place in ("cpu", "ocl"):
        file.seek(0)
        state = torch.load(file, weights_only=weights_only, map_location=place)
        assert state["1.weight"].device.type == place
        fresh, _ = layers()
        fresh.load_state_dict(state, assign=True)
        assert isinstance(fresh[1].weight, GGUFTensor)
        assert isinstance(fresh[1].weight, nn.Parameter)
        assert torch.equal(fresh[1].weight.blocks.cpu(), made[1].weight.blocks.cpu())
    fresh, _ = layers()
    fresh[1].weight.blocks.zero_()
    fresh.load_state_dict(made.state_dict())
    assert torch.equal(fresh[1].weight.blocks.cpu(), made[1].weight.blocks.cpu())


def test_pickled_and_copied_parameters():
    made, _ = layers()
    for twin in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        weight = twin[1].weight
        assert isinstance(weight, GGUFTensor) and isinstance(weight, nn.Parameter)
        assert not weight.requires_grad
        assert torch.equal(weight.blocks.cpu(), made[1].weight.blocks.cpu())


def test_compiled():
    made, plain = layers()
    compiled = torch.compile(made, fullgraph=True)
    tokens = torch.tensor([[3, 11, 0], [1, 1, 2]], device="ocl")
    with torch.no_grad():
        assert_close(compiled(tokens), plain(tokens), rtol=1e-5, atol=1e-4)
    leaf = torch.randn(9, 256, device="ocl", requires_grad=True)
    step = torch.compile(lambda x: made[1:](x).pow(2).sum(), fullgraph=True)
    (found,) = torch.autograd.grad(step(leaf), leaf)
    (wanted,) = torch.autograd.grad(plain[1:](leaf).pow(2).sum(), leaf)
    assert_close(found, wanted, rtol=1e-4, atol=1e-2)
