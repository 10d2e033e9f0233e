"""Several devices in one process: TORCH_OCL_PARTITION."""

import os
import textwrap

import pytest

from tests.fresh import run_script


def run(code, **environment):
    done = run_script(textwrap.dedent(code), environment=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_devices_have_everything_of_their_own():
    code = """
    import torch
    from torch import nn
    assert torch.ocl.device_count() == 2 and not torch.ocl.is_initialized()
    a = torch.randn(1000, device="ocl:0")
    b = a.to("ocl:1")
    assert b.device.index == 1 and torch.equal(a.cpu(), b.cpu())
    b.copy_(a * 2, non_blocking=True)
    assert torch.equal(b.cpu(), a.cpu() * 2)
    # Memory, streams, generators.
    assert torch.ocl.memory_allocated(0) >= 4000 and torch.ocl.memory_allocated(1) >= 4000
    with torch.ocl.device(1):
        assert torch.ones(1, device="ocl").device.index == 1
        assert torch.ocl.current_stream().device.index == 1
    torch.ocl.manual_seed_all(3)
    x, y = (torch.rand(4, device=f"ocl:{i}").cpu() for i in range(2))
    assert torch.equal(x, y)
    torch.rand(4, device="ocl:0")
    assert not torch.equal(torch.rand(4, device="ocl:0").cpu(), torch.rand(4, device="ocl:1").cpu())
    # A model over both, and its gradients.
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8).to("ocl:0"), nn.Linear(8, 8).to("ocl:1")
        def forward(self, x):
            return self.b(self.a(x).to("ocl:1"))
    net = Halves()
    net(torch.ones(2, 8, device="ocl:0")).sum().backward()
    assert net.a.weight.grad.device.index == 0 and net.b.weight.grad.device.index == 1
    try:
        a + b
    except RuntimeError as error:
        assert "same device" in str(error)
    print(torch.ocl.get_device_properties(0).multi_processor_count)
    """
    whole = "import torch; print(torch.ocl.get_device_properties(0).multi_processor_count)"
    device = {"TORCH_OCL_DEVICES": "0"}
    units, all_units = int(run(code, TORCH_OCL_PARTITION="2", **device)), int(run(whole, **device))
    assert units in (all_units // 2, all_units)


def test_a_device_that_cant_be_split_is_listed_several_times():
    code = """
    import torch
    count = torch.ocl.device_count()
    units = {torch.ocl.get_device_properties(i).multi_processor_count for i in range(count)}
    x = torch.arange(5, device=f"ocl:{count - 1}")
    assert (x.to("ocl:0") + 1).tolist() == [1, 2, 3, 4, 5]
    print(count, *units)
    """
    device = {"TORCH_OCL_DEVICES": "0"}
    count, units = run(code, **device).split()
    assert count == "1"
    parts = min(int(units) + 1, 64)  # more than it has compute units
    if int(units) < parts:
        assert run(code, TORCH_OCL_PARTITION=str(parts), **device).split() == [str(parts), units]


TWO = {"TORCH_OCL_PARTITION": "2", "TORCH_OCL_DEVICES": "0"}


def test_data_parallel_in_one_process():
    """Results and gradients are those of the module alone."""
    code = """
    import copy, warnings, torch
    from torch import nn
    from torch.nn import parallel
    warnings.simplefilter("error")
    alone = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).eval()
    net, x = copy.deepcopy(alone).to("ocl"), torch.randn(5, 3)
    alone(x).square().sum().backward()
    for call in (
        nn.DataParallel(net),
        nn.DataParallel(net, ["ocl:0", "ocl:1"]),
        nn.DataParallel(net, [0], 0),
        lambda x: parallel.data_parallel(net, x),
        lambda x: parallel.data_parallel(net, x, [0, 1]),
        lambda x: parallel.data_parallel(net, None, [0], module_kwargs={"input": x.to("ocl")}),
    ):
        for place in ("cpu", "ocl:0"):
            net.zero_grad()
            out = call(x.to(place))
            assert out.device == torch.device("ocl", 0)
            torch.testing.assert_close(out.cpu(), alone(x))
            out.square().sum().backward()
            for mine, expected in zip(net.parameters(), alone.parameters(), strict=True):
                torch.testing.assert_close(mine.grad.cpu(), expected.grad)
    with torch.autocast("ocl", dtype=torch.bfloat16):
        assert nn.DataParallel(net)(x).dtype == torch.bfloat16
    with torch.no_grad():
        assert nn.DataParallel(net, output_device=1)(x).device.index == 1
    print(*nn.DataParallel(net).device_ids)
    """
    assert run(code, **TWO).split() == ["0", "1"]


def test_devices_that_differ_are_not_taken_together():
    code = """
    import torch
    from torch_ocl.upstream import data_parallel
    kinds = {0: ("GPU", "a"), 1: ("CPU", "b"), 2: ("GPU", "a"), 3: ("GPU", "b")}
    class Properties:
        def __init__(self, index):
            self.name, self.platform_name = kinds[index]
    torch.ocl.get_device_properties = Properties
    print(data_parallel._alike(kinds))
    """
    assert run(code).strip() == "[0, 2]"


def test_sparse_tensors_of_another_device():
    code = """
    import torch
    x = torch.eye(3, device="ocl:0").to_sparse()
    rows = torch.eye(3, device="ocl:0").to_sparse_csr()
    there = torch.device("ocl", 1)
    for found in (
        torch.empty(2, 2, layout=torch.sparse_coo, device=there),
        torch.empty_like(x, device=there),
        torch.sparse_coo_tensor((2, 2), device=there),
        x.to(there),
        x.cpu().to(there),
        torch.zeros_like(x.to(there)),
        torch.empty(2, 2, layout=torch.sparse_csr, device=there),
        rows.to(there),
        torch.zeros_like(rows.to(there)),
    ):
        values = found.values() if found.layout == torch.sparse_csr else found._values()
        assert found.device == values.device == there, (found.device, values.device)
    assert torch.equal((x.to(there) + x.to(there)).to_dense().cpu(), 2 * torch.eye(3))
    """
    run(code, **TWO)


def test_copies_of_torch_cuda_comm():
    code = """
    import torch
    from torch.cuda import comm
    x = torch.arange(6.0, device="ocl:0").view(3, 2)
    def places(tensors):
        return [tensor.device.index for tensor in tensors]
    for source in (x, x.cpu()):
        copies = comm.broadcast(source, [0, 1])
        assert places(copies) == [0, 1] and all(torch.equal(c.cpu(), x.cpu()) for c in copies)
        parts = comm.scatter(source, ["ocl:0", "ocl:1"])
        assert places(parts) == [0, 1] and parts[1].tolist() == [[4, 5]]
        assert comm.scatter(source, [1, 0], [1, 2])[1].tolist() == [[2, 3], [4, 5]]
        assert comm.scatter(source, [0, 1], dim=1)[1].tolist() == [[1], [3], [5]]
        outs = [torch.empty(3, 1, device=f"ocl:{i}") for i in range(2)]
        assert comm.scatter(source, out=outs, dim=1)[1].tolist() == [[1], [3], [5]]
        outs = [torch.empty(3, 2, device=f"ocl:{i}") for i in range(2)]
        assert places(comm.broadcast(source, out=outs)) == [0, 1] and torch.equal(outs[0], x)
    for destination in (None, 1, "cpu"):
        whole = comm.gather(parts, destination=destination)
        assert whole.tolist() == x.tolist()
        assert whole.device == torch.device({None: "ocl:0", 1: "ocl:1"}.get(destination, "cpu"))
    assert comm.gather(parts, out=torch.empty(3, 2)).tolist() == x.tolist()
    mixed = [x, x.int(), x.t(), x * 1j, x.to_sparse()]
    first, second = comm.broadcast_coalesced(mixed, [0, 1], buffer_size=16)
    assert first[0] is x
    for mine, expected in zip(second, mixed, strict=True):
        assert mine.device.index == 1
        mine = torch.view_as_complex(mine) if expected.is_complex() else mine
        assert torch.equal(mine.cpu().to_dense(), expected.cpu().to_dense())
    assert comm.reduce_add(copies, 1).tolist() == (x * 2).tolist()
    (total,) = comm.reduce_add_coalesced([[copies[0]], [copies[1]]], 0)
    assert total.tolist() == (x * 2).tolist() and total.device.index == 0
    for wrong in (
        lambda: comm.broadcast_coalesced([x], [1, 0]),
        lambda: comm.broadcast(x, out=[torch.empty(2, device="ocl")]),
        lambda: comm.scatter(x, [0, 1], [1, 1]),
        lambda: comm.scatter(x, [0, 1], [3]),
        lambda: comm.gather([x, x.cpu()]),
    ):
        try:
            wrong()
        except RuntimeError:
            continue
        raise AssertionError
    """
    run(code, **TWO)


def test_data_parallel_of_a_program_that_says_cuda():
    code = """
    import torch, torch_ocl
    torch_ocl.cuda_to_ocl()
    net, x = torch.nn.Linear(2, 2), torch.ones(4, 2)
    expected = net(x)
    for ids in ([0], [torch.device("cuda:0")], ["cuda:0"]):
        out = torch.nn.DataParallel(net.cpu(), device_ids=ids)(x)
        assert out.is_cuda and next(net.parameters()).is_cuda
        torch.testing.assert_close(out.cpu(), expected)
    net = torch.nn.DataParallel(net).cuda()
    assert net.device_ids == [0, 1]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = net(x.cuda())
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert net.module.weight.grad.device == torch.device("cuda:0")
    """
    run(code, **TWO)


def test_data_parallel_of_a_program_on_the_cpu_is_upstreams():
    code = """
    import torch
    from torch import nn
    from torch.nn import parallel
    net, x = nn.Linear(2, 2), torch.ones(4, 2)
    assert torch.equal(nn.DataParallel(net)(x), net(x))
    for call in (lambda: parallel.data_parallel(net, x), lambda: parallel.replicate(net, [0])):
        try:
            call()
        except (RuntimeError, AssertionError) as error:
            assert "ocl" not in str(error)
        else:
            raise AssertionError
    assert not torch.ocl.is_initialized()
    """
    run(code)


@pytest.mark.parametrize("value", ["0", "x", "1000"])
def test_what_is_no_number_of_parts_is_warned_of(value):
    code = "import torch; torch.ones(1, device='ocl')"
    done = run_script(code, environment=os.environ | {"TORCH_OCL_PARTITION": value})
    assert done.returncode == 0 and "TORCH_OCL_PARTITION" in done.stderr


def test_copies_between_devices():
    """Copies of every layout and dtype. They are converted and laid out on the devices."""
    code = """
import itertools, torch
dtypes = torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64
layouts = {
    "plain": lambda t: t,
    "transposed": lambda t: t.mT,
    "part": lambda t: t[:, 1:, ::2],
    "expanded": lambda t: t[:, :1].expand(-1, 5, -1),
}
numbers = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0)).mul(5)
for a, b in itertools.product(dtypes, dtypes):
    if a.is_complex and not b.is_complex:
        continue
    for of, to in itertools.product(layouts, layouts):
        x = layouts[of](numbers.to(a))
        source = layouts[of](numbers.to(a).to("ocl:0"))
        target = torch.zeros(3, 6, 8, dtype=b)
        if to == "expanded":
            continue
        places = [layouts[to](t) for t in (target, target.to("ocl:1"))]
        shape = [min(sizes) for sizes in zip(*(t.shape for t in (x, places[0])))]
        cut = tuple(map(slice, shape))
        for t, values in zip(places, (x, source)):
            t[cut].copy_(values[cut])
        torch.testing.assert_close(places[1].cpu(), places[0], rtol=0, atol=0)
        assert source.to("ocl:1", b).cpu().equal(x.to(b))
z = torch.randn(4, 5, dtype=torch.complex64)
y = z.to("ocl:0")
assert y.conj().to("ocl:1").cpu().equal(z.conj()) and y.mT.imag.to("ocl:1").cpu().equal(z.mT.imag)
assert torch.empty(0, 3, device="ocl:0").to("ocl:1").shape == (0, 3)
large = torch.randn(3000, 2000)
assert large.to("ocl:0").mT.to("ocl:1", torch.float64).cpu().equal(large.mT.double())
assert not torch.ocl.host_staged_counts()
"""
    run(code, TORCH_OCL_PARTITION="2", TORCH_OCL_DEVICES="0")
