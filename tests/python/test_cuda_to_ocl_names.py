"""torch.cuda where "cuda" means `ocl`: a function does what CUDA's documentation says, or says what
is missing. Each is the first thing that its process asks."""

import pytest

from tests import fresh

HEAD = "import torch, torch_ocl\ntorch_ocl.cuda_to_ocl()\n"

#: Checks, each the first one of a process.
FIRST = {
    "cudart": """
        c = torch.cuda.cudart()
        assert torch.cuda.is_initialized() and torch.cuda._initialized
        torch.cuda.check_error(c.cudaProfilerStart())
        assert c.cudaProfilerStop() == 0 == c.cudaError.success
        free, total = c.cudaMemGetInfo(0)
        assert 0 < free <= total
        raises(AttributeError, "cudaMalloc", lambda: c.cudaMalloc)
        raises(torch.cuda.CudaError, "invalid argument", lambda: torch.cuda.check_error(1))
    """,
    "pinned by the program": """
        c, x = torch.cuda.cudart(), torch.arange(64.0)
        assert int(c.cudaHostRegister(x.data_ptr(), x.nbytes, 1)) == 0
        assert x.is_pinned() and x[8:].is_pinned() and not torch.ones(3).is_pinned()
        assert torch.equal(x.to("cuda", non_blocking=True).cpu(), x)
        assert c.cudaHostRegister(x[4:].data_ptr(), 8, 0) == 712
        assert c.cudaHostRegister(0, 8) == 1
        assert c.cudaHostUnregister(x.data_ptr()) == 0 and not x.is_pinned()
        assert c.cudaHostUnregister(x.data_ptr()) == 713
    """,
    "profiler": """
        torch.cuda.profiler.start()
        torch.cuda.profiler.stop()
        with torch.cuda.profiler.profile():
            torch.ones(2, device="cuda")
    """,
    "memory history": """
        memory = torch.cuda.memory
        assert memory._snapshot()["segments"] == []
        memory._record_memory_history(max_entries=100)
        x = torch.ones(3, device="cuda")
        found = memory._snapshot()
        assert found["segments"] and found["device_traces"][0]
        memory._dump_snapshot("snapshot.pickle")
        memory._record_memory_history(enabled=None)
        import pickle
        with open("snapshot.pickle", "rb") as file:
            assert pickle.load(file)["segments"]
    """,
    "streams": """
        lowest, highest = torch.cuda.Stream.priority_range()
        assert lowest == 0 > highest
        assert torch.cuda.Stream().priority == 0 == torch.cuda.current_stream().priority
        stream = torch.cuda.Stream(priority=highest)
        assert stream.priority == highest
        assert torch.cuda.current_stream().cuda_stream != stream.cuda_stream != 0
        assert stream._as_parameter_.value == stream.cuda_stream
        assert torch.cuda.get_stream_from_external(stream.cuda_stream) == stream
        assert torch.cuda.ExternalStream(stream.cuda_stream, device="cuda") == stream
    """,
    "capability": """
        assert torch.cuda.get_device_capability() == (8, 0) and torch.cuda.is_initialized()
        for ask in (torch.cuda.get_device_capability, torch.cuda.get_device_name,
                    torch.cuda.get_device_properties):
            assert ask("cuda:0") == ask(0) == ask(torch.device("cuda")) == ask()
            for index in (99, -1, "cuda:99"):
                raises(AssertionError, "Invalid device id", ask, index)
            raises(ValueError, "Expected a cuda device, but got: cpu", ask, "cpu")
        assert torch.cuda.can_device_access_peer(0, "cuda:0")
        raises(AssertionError, "Invalid device id", torch.cuda.can_device_access_peer, 99, 0)
        raises(AssertionError, "Invalid peer device id", torch.cuda.can_device_access_peer, 0, 99)
    """,
    "bfloat16": """
        assert torch.cuda.is_bf16_supported() and torch.cuda.is_initialized()
        assert not torch.cuda.is_bf16_supported(including_emulation=False)
    """,
    "sparse types": """
        kind = torch.cuda.sparse.FloatTensor
        i, v = torch.tensor([[0, 2], [1, 0]]), torch.tensor([3.0, 4.0])
        for given in ((i, v), (i, v, torch.Size([3, 2])), (i.cuda(), v.cuda(), (3, 2))):
            x = kind(*given)
            assert x.is_cuda and x.is_sparse and x.type() == "torch.cuda.sparse.FloatTensor"
            expected = torch.sparse.FloatTensor(i, v, torch.Size([3, 2]))
            assert torch.equal(x.to_dense().cpu(), expected.to_dense())
            assert isinstance(x, kind) and not isinstance(x, torch.cuda.FloatTensor)
            assert not isinstance(x.to_dense(), kind)
        for zeros in (kind(3, 2), kind(torch.Size([3, 2]))):
            assert zeros.shape == (3, 2) and zeros.is_cuda and zeros.is_sparse
            assert zeros._nnz() == 0
        assert torch.cuda.sparse.LongTensor(i, torch.tensor([1, 2])).dtype == torch.int64
        assert expected.type("torch.cuda.sparse.DoubleTensor").type() == (
            "torch.cuda.sparse.DoubleTensor")
        assert str(kind) == "<class 'torch.cuda.sparse.FloatTensor'>"
    """,
    "default generators": """
        generators = torch.cuda.default_generators
        assert len(generators) == torch.cuda.device_count() > 0
        generators[0].manual_seed(3)
        x = torch.rand(3, device="cuda")
        torch.cuda.manual_seed(3)
        assert torch.equal(torch.rand(3, device="cuda"), x)
        assert torch.cuda._get_generator(torch.device("cuda")).initial_seed() == 3
        assert torch.cuda._get_rng_state_offset() > 0
    """,
    "indices": """
        index = torch.cuda._utils._get_device_index
        assert index("cuda:0") == index("cuda", optional=True) == index(None, True) == 0
        assert index(torch.cuda.device(0)) == index(torch.device("cuda:0")) == 0 == index(0)
        assert index("cpu", allow_cpu=True) == -1
        raises(ValueError, "index", lambda: index("cuda"))
        raises(ValueError, "cuda device", lambda: index("cpu"))
        assert torch.cuda._get_device_index is index
    """,
    "storages": """
        storage = torch.UntypedStorage(4, device="cuda")
        assert storage.is_cuda and storage.device == torch.device("cuda:0") and len(storage) == 4
        assert not torch.UntypedStorage(4).is_cuda and len(torch.UntypedStorage([1, 2])) == 2
        assert torch.ones(2, device="cuda").untyped_storage().is_cuda
    """,
    "external streams": """
        for number in (1234, 2**47 - 8, id(torch), torch.ones(9).data_ptr()):
            raises(ValueError, "no command queue", torch.cuda.get_stream_from_external, number)
            raises(ValueError, "no command queue", torch.ocl.ExternalStream, number)
        raises(ValueError, "null", torch.cuda.get_stream_from_external, 0)
    """,
    "what has no counterpart": """
        cuda = torch.cuda
        raises(NotImplementedError, "matrix products are kernels", cuda.current_blas_handle)
        raises(NotImplementedError, "factorisations", cuda.current_solver_handle)
        raises(NotImplementedError, "clock", cuda._sleep, 100)
        for name in ("utilization", "temperature", "power_draw", "memory_usage", "clock_rate"):
            raises(NotImplementedError, name, getattr(cuda, name))
        raises(NotImplementedError, "NVIDIA", cuda.nccl.version)
        raises(NotImplementedError, "nested", cuda.nvtx.range_start, "a")
        raises(NotImplementedError, "OpenCL C", cuda._compile_kernel, "", "")
        raises(NotImplementedError, "allocator", cuda.memory.CUDAPluggableAllocator, "a", "b", "c")
        assert not cuda.nccl.is_available([torch.ones(2, device="cuda")])
    """,
    "tunable": """
        tunable = torch.cuda.tunable
        assert not tunable.is_enabled() and tunable.tuning_is_enabled()
        tunable.enable()
        assert tunable.is_enabled() and torch.ocl.tunable.is_enabled()
        raises(NotImplementedError, "untuned", tunable.record_untuned_enable)
    """,
    "calls that wait for CUDA": """
        called = []
        torch.cuda._lazy_call(lambda: called.append(1))
        assert called == [1]
    """,
    "types": """
        x = torch.ones(2, device="cuda")
        assert x.type() == "torch.cuda.FloatTensor" == torch.typename(x)
        assert torch.ones(2).type() == "torch.FloatTensor"
        assert x.to_sparse().type() == "torch.cuda.sparse.FloatTensor"
        for kind in ("torch.cuda.HalfTensor", torch.cuda.HalfTensor):
            assert torch.ones(2).type(kind).type() == "torch.cuda.HalfTensor"
            assert torch.nn.Linear(2, 2).type(kind).weight.type() == "torch.cuda.HalfTensor"
        assert torch.ones(2).type(x.type()).is_cuda
        assert isinstance(x, torch.cuda.FloatTensor) and not isinstance(x, torch.cuda.HalfTensor)
        assert str(torch.cuda.FloatTensor) == "<class 'torch.cuda.FloatTensor'>"
        assert torch.cuda.FloatTensor.is_cuda and torch.cuda.FloatTensor.dtype == torch.float32
    """,
    "autocast": """
        def state():
            return torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()

        assert state() == (False, torch.half)
        for context in (torch.autocast("cuda"), torch.cuda.amp.autocast()):
            with context:
                assert state() == (True, torch.half)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert state() == (True, torch.bfloat16) and not torch.is_autocast_cpu_enabled()
            with torch.autocast("cuda", enabled=False):
                assert not torch.is_autocast_enabled()
        with torch.autocast("cpu"):
            assert not torch.is_autocast_enabled()
        torch.set_autocast_enabled(True)
        torch.set_autocast_gpu_dtype(torch.bfloat16)
        x = torch.ones(2, 2, device="cuda")
        assert state() == (True, torch.bfloat16) and (x @ x).dtype == torch.bfloat16
        torch.set_autocast_enabled("cuda", False)
        assert not torch.is_autocast_enabled() and not torch.is_autocast_enabled("cuda")
    """,
    "autocast of compiled functions": """
        def step(x):
            enabled = torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
            return x + 1 if enabled else x - 1

        compiled = torch.compile(step, backend="eager", fullgraph=True)
        x = torch.zeros(1, device="cuda")
        with torch.autocast("cuda"):
            assert compiled(x).item() == 1
        assert compiled(x).item() == -1
    """,
}
RAISES = """
def raises(kind, text, function, *args):
    try:
        function(*args)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", FIRST)
def test_first_questions(tmp_path, what):
    lines = FIRST[what].strip("\n").splitlines()
    code = "\n".join(line[8:] for line in lines)
    done = fresh.run_script(HEAD + RAISES + code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
