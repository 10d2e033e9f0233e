"""Each change of torch that `import torch_ocl` makes is needed: without it, its program fails.

A program that fails here says that this version of torch does without a change. Those of Inductor
are in tests/compile/test_upstream.py. torch_ocl/upstream/README.md lists all, and
tests/packaging/test_tables_of_changes.py reads its table.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest

#: Each by the function that makes the change, with a program that passes with it.
PROGRAMS = {
    "compile.fake_tensors._install_convolution_format": """
        x = torch.ones(1, 3, 5, 5).to(memory_format=torch.channels_last)
        with FakeTensorMode() as mode:
            y = torch.conv2d(mode.from_tensor(x).ocl(), torch.ones(4, 3, 3, 3, device="ocl"))
        assert y.is_contiguous(memory_format=torch.channels_last)
    """,
    "compile.fake_tensors._install_device_hint": """
        x = torch.ones(3, 4, device="ocl")
        with FakeTensorMode() as mode:
            y = torch.nonzero_static(mode.from_tensor(x), size=4)
        assert y.stride() == torch.nonzero_static(x, size=4).stride()
    """,
    "compile.fake_tensors._install_norm_statistics": """
        x = torch.ones(3, 4, device="ocl", dtype=torch.half)
        with FakeTensorMode() as mode:
            results = torch.native_layer_norm(mode.from_tensor(x), [4], None, None, 1e-5)
        assert results[1].dtype == torch.native_layer_norm(x, [4], None, None, 1e-5)[1].dtype
    """,
    "compile.fake_tensors._install_results_like_input": """
        x = torch.ones(2, 4, 4, 4, device="ocl").to(memory_format=torch.channels_last)
        with FakeTensorMode() as mode:
            y = torch.nn.functional.max_pool3d(mode.from_tensor(x), 2)
        assert y.stride() == torch.nn.functional.max_pool3d(x, 2).stride()
    """,
    "compile.flex_attention._flex_attention": """
        from torch.nn.attention.flex_attention import flex_attention
        flex_attention(*[torch.ones(1, 1, 4, 8, device="ocl")] * 3)
    """,
    "compile.tensor_types.change_builtins": """
        kinds = lambda x: x + isinstance(x, torch.FloatTensor)
        x = torch.ones(3, device="ocl")
        assert torch.equal(torch.compile(kinds, backend="eager", fullgraph=True)(x), kinds(x))
    """,
    "cross_entropy.install": """
        from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions as kind
        assert kind._resolve_auto_acc_dtype(torch.half, torch.device("ocl")) == torch.float32
    """,
    "data_parallel.install": """
        torch.nn.DataParallel(torch.nn.Linear(2, 2))(torch.ones(1, 2))
        assert not torch.ocl.is_initialized()
    """,
    "device_lists._accelerator_snapshot": """
        x = torch.ones(3, device="ocl")
        assert torch.accelerator.memory._snapshot()["segments"]
    """,
    "device_lists._bfloat16_hooks": """
        group()
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).ocl())
        model.register_comm_hook(None, bf16_compress_hook)
    """,
    "device_lists._configuration": """
        assert "torch_ocl" in torch.__config__.show()
    """,
    "device_lists._dlpack_device": """
        torch.from_dlpack(torch.ones(3, device="ocl"))
    """,
    "device_lists._generators_without_graphs": """
        import torch._dynamo.convert_frame
        compiled = []
        hook = lambda code, new: compiled.append(code.co_filename)
        torch._dynamo.convert_frame.register_bytecode_hook(hook)
        def forks(x):
            with torch.random.fork_rng(device_type="ocl"):
                return x + 1
        torch.compile(forks, backend="eager")(torch.ones(3, device="ocl"))
        assert not any("torch_ocl" in name for name in compiled), compiled
    """,
    "device_lists._inductor_before_its_caches": """
        assert torch._TorchCompileInductorWrapper.__call__.__wrapped__
    """,
    "distributed.nccl.install": """
        group()
        try:
            dist.new_group(backend="cpu:gloo,ocl:nccl")
        except RuntimeError as error:
            assert "NCCL for ocl tensors needs a PyTorch" in str(error)
    """,
    "distributed.process_groups.install": """
        group("gloo")
        x = torch.ones(3, device="ocl")
        dist.all_reduce(x)
        assert x.sum() == 3
    """,
    "distributed.quantization_hooks.change_hooks": """
        group()
        from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as hooks
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).ocl())
        model.register_comm_hook(None, hooks.quantization_pertensor_hook)
        model(torch.ones(1, 2, device="ocl")).sum().backward()
    """,
    "distributed.rpc.change_calls": """
        import torch.distributed.rpc as rpc
        options = rpc.TensorPipeRpcBackendOptions(init_method="file:///tmp/" + str(os.getpid()))
        options.set_device_map("a", {"ocl:0": "ocl:0"})
        rpc.init_rpc("a", rank=0, world_size=1, rpc_backend_options=options)
        assert rpc.rpc_sync("a", torch.add, (torch.ones(2, device="ocl"), 1)).device.type == "ocl"
        rpc.shutdown()
    """,
    "distributed.sharded_attention.add_strategies": """
        group()
        from torch.distributed.tensor import DTensor, Shard
        mesh = init_device_mesh("ocl", (1,))
        parts = [DTensor.from_local(torch.ones(1, 2, 4, 8, device="ocl"), mesh, [Shard(1)])] * 3
        torch.nn.functional.scaled_dot_product_attention(*parts)
    """,
    "distributed.sharded_random.change_tracker": """
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, rand
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("cpu:fake,ocl:fake", store=FakeStore(), rank=1, world_size=2)
        torch.manual_seed(3)
        one = torch.rand(8, device="ocl")
        torch.manual_seed(3)
        mine = rand(8, device_mesh=init_device_mesh("ocl", (2,)), placements=[Shard(0)])
        assert torch.equal(mine.to_local(), one[4:])
    """,
    "distributed.symmetric_memory.change_module": """
        group()
        import torch.distributed._symmetric_memory
        x = torch.ones(2, 2, device="ocl")
        group = dist.group.WORLD.group_name
        torch.ops.symm_mem.fused_matmul_reduce_scatter(x, x, "sum", 0, group)
    """,
    "grad_scaler.install": """
        assert torch.amp.GradScaler().scale(torch.ones(1, device="ocl")).item() == 65536
    """,
    "harmless._fork_rng": """
        os.environ["TORCH_OCL_PARTITION"] = "2"
        with warnings.catch_warnings(action="error"), torch.random.fork_rng():
            pass
    """,
    "harmless._fully_shard": """
        group()
        from torch.distributed.fsdp import fully_shard
        layer = fully_shard(torch.nn.Linear(2, 2))
        assert layer.weight.device.type == "cpu"
    """,
    "harmless._optimizers": """
        torch.optim.Adam([torch.ones(1, requires_grad=True)]).step()
        x = torch.ones(3, device="ocl", requires_grad=True)
        step = torch.optim.Adam([x]).step
        x.grad = x.detach().clone()
        with torch.ocl.graph(torch.ocl.OclGraph()):
            try:
                step()
            except RuntimeError as error:
                assert "capturable" in str(error)
            else:
                raise AssertionError
    """,
    "harmless._pin_memory": """
        list(torch.utils.data.DataLoader(torch.arange(4), pin_memory=True))
        assert not torch.ocl.is_initialized()
    """,
    "harmless._process_groups": """
        group()
        dist.all_reduce(torch.ones(3))
    """,
    "jagged_attention._sdpa": """
        parts = [torch.ones(3, 8), torch.ones(2, 8)]
        x = torch.nested.nested_tensor(parts, layout=torch.jagged, device="ocl")
        x = x.unflatten(-1, [2, 4]).transpose(1, 2)
        torch.ocl.reset_launch_count()
        torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    """,
    "lbfgs.install": """
        x = torch.ones(3, device="ocl", requires_grad=True)
        optimizer = torch.optim.LBFGS([x], lr=0.1, max_iter=15)
        def closure():
            optimizer.zero_grad()
            loss = (x**4).sum()
            loss.backward()
            return loss
        optimizer.step(closure)
        before = torch.ocl.launch_count()
        optimizer.step(closure)
        assert torch.ocl.launch_count() - before < 15 * 20
    """,
    "multiprocessing.install": """
        from multiprocessing.reduction import ForkingPickler
        try:
            ForkingPickler.dumps(torch.ones(3, device="ocl"))
        except RuntimeError as error:
            assert "can't be sent to another process" in str(error)
    """,
    "optimizers.install": """
        parameters = [torch.ones(3, device="ocl", requires_grad=True) for _ in range(4)]
        optimizer = torch.optim.Adam(parameters)
        for p in parameters:
            p.grad = p.detach().clone()
        optimizer.step()
        torch.ocl.reset_launch_count()
        optimizer.step()
        assert torch.ocl.launch_count() <= 2
    """,
    "printing.install": """
        os.environ["TORCH_OCL_WITHOUT"] = "fp64"
        assert repr(torch.ones(1, device="ocl")) == "tensor([1.], device='ocl:0')"
    """,
    "profiled_imports.install": """
        import py_compile, tempfile
        folder = tempfile.mkdtemp()
        sys.path.insert(0, folder)
        names = [f"imported_{i}" for i in range(40)]
        for name in names:
            path = os.path.join(folder, name + ".py")
            open(path, "w").close()
            py_compile.compile(path)
        with torch.profiler.profile(with_stack=True) as profiled:
            for name in names:
                __import__(name)
            others = [bytes([0x8F]) * n for n in range(20, 90) for _ in range(3000)]
        found = [event.name() for event in profiled.profiler.kineto_results.events()]
        found = [name.split(".py(")[0] for name in found if name.endswith(": <module>")]
        assert not set(names) - set(found)
    """,
    "registration._add_names": """
        from torch.backends.ocl import matmul
        assert torch.version.ocl and matmul is torch.backends.ocl.matmul
    """,
    "registration._move_lazy_modules": """
        assert torch.nn.LazyLinear(3).ocl().weight.device.type == "ocl"
    """,
    "sparse_files.install": """
        import tempfile
        x = torch.arange(3.0, device="ocl")
        for kind in (x.to_sparse(), x.diag().to_sparse_csr()):
            with tempfile.TemporaryFile() as file:
                torch.save(kind, file, _use_new_zipfile_serialization=False)
                file.seek(0)
                read = torch.load(file, map_location=lambda storage, place: storage)
            assert read.device.type == "cpu" and read.layout == kind.layout
            assert torch.equal(read.to_dense(), kind.cpu().to_dense())
    """,
}
# Imports torch once, and tries each program in a child: with the change, and without.
SERVER = r"""
import importlib.abc, importlib.util, json, os, sys, traceback, warnings
os.environ["TORCH_OCL_AUTOLOAD"] = "never"
import torch

def group(*backend):
    global dist, init_device_mesh
    import tempfile
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    store = dist.FileStore(tempfile.mktemp(), 1)
    dist.init_process_group(*backend, store=store, rank=0, world_size=1)

class Leaves(importlib.abc.MetaPathFinder):
    def __init__(self, change):
        self.module, _, self.function = change.rpartition(".")

    def find_spec(self, name, path=None, target=None):
        if name != "torch_ocl.upstream." + self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        upstream = spec.loader.exec_module
        def exec_module(module):
            upstream(module)
            assert callable(getattr(module, self.function))
            def nothing(*args):
                pass
            setattr(module, self.function, nothing)
            for name, patch in getattr(module, "PATCHES", {}).items():
                if patch.__name__ == self.function:
                    module.PATCHES[name] = nothing
        spec.loader.exec_module = exec_module
        return spec

for change, program in json.load(sys.stdin).items():
    for without in (False, True):
        if os.fork() == 0:
            out = "passed"
            try:
                if without:
                    sys.meta_path.insert(0, Leaves(change))
                from torch._subclasses import FakeTensorMode
                import torch_ocl
                exec(compile(program, change, "exec"))
            except BaseException as error:
                out = f"{type(error).__name__}: {error}"
            print(json.dumps([change, without, out]), flush=True)
            os._exit(0)
        os.wait()
"""


@pytest.fixture(scope="module")
def outcomes():
    """The outcome of each program, by its change and whether that was left out."""
    programs = {name: textwrap.dedent(program) for name, program in PROGRAMS.items()}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVER],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"TORCH_OCL_NOTICES": "0"},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert lines, done.stderr
    return {(change, without): out for change, without, out in lines}


@pytest.mark.slow
@pytest.mark.parametrize("change", PROGRAMS)
def test_a_change_is_needed(outcomes, change):
    assert outcomes[change, False] == "passed"
    assert outcomes[change, True] != "passed"
