"""Programs that say "cuda" and manage models, as ComfyUI and whisper do: what they call of torch,
after torch_ocl.cuda_to_ocl()."""

import textwrap

import torch

from tests import fresh


def run(code, cwd=None):
    script = "import torch, torch_ocl\ntorch_ocl.cuda_to_ocl()\n" + textwrap.dedent(code)
    done = fresh.run_script(script, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_manager_of_models_learns_what_it_asks():
    """The device, its memory, what it can: without any of it ComfyUI does not start."""
    run("""
    assert torch.cuda.is_available()
    device = torch.device(torch.cuda.current_device())
    assert device == torch.device("cuda", 0)
    assert torch.cuda.get_device_name(device) and torch.cuda.get_allocator_backend()
    properties = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    assert 0 < free <= total == properties.total_memory
    counts = torch.cuda.memory_stats(device)
    assert 0 <= counts["active_bytes.all.current"] <= counts["reserved_bytes.all.current"] <= total
    assert properties.major >= 8 and torch.cuda.is_bf16_supported()
    assert not hasattr(properties, "gcnArchName"), "AMD's name would choose AMD's ways"
    assert not torch.version.hip
    for switch in ("enable_math_sdp", "enable_flash_sdp", "enable_mem_efficient_sdp",
                   "allow_fp16_bf16_reduction_math_sdp"):
        getattr(torch.backends.cuda, switch)(True)
    assert torch.backends.cuda.is_built()
    plans = torch.backends.cuda.cufft_plan_cache
    assert plans.size == 0 and plans[0].max_size == 4096
    plans.max_size = 16
    plans.clear()
    assert plans.max_size == 16
    """)


def test_a_manager_of_models_loads_and_unloads():
    """A model as a whole, whose memory the device has back, and an error for too large a tensor."""
    run("""
    device = torch.device(torch.cuda.current_device())
    def in_use():
        return torch.cuda.memory_stats(device)["active_bytes.all.current"]
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    x = torch.randn(3, 256)
    expected = model(x)
    model.to(device)
    loaded = in_use()
    assert loaded >= size
    assert torch.allclose(model(x.to(device)).cpu(), expected, atol=1e-4)
    model.to("cpu")
    torch.cuda.synchronize(); torch.cuda.empty_cache(); torch.cuda.ipc_collect()
    assert in_use() <= loaded - size
    counts = torch.cuda.memory_stats(device)
    assert counts["reserved_bytes.all.current"] == counts["active_bytes.all.current"]
    try:
        torch.empty(2**46, device=device)
    except torch.cuda.OutOfMemoryError as error:
        assert str(error).startswith("CUDA out of memory. Tried to allocate")
    else:
        raise AssertionError
    """)


def test_a_manager_of_models_streams_weights():
    """Layers whose weights come from pinned memory, on streams other than the computing one. The
    program keeps its own things at a stream."""
    run("""
    device = torch.device("cuda", 0)
    streams = [torch.cuda.Stream(device=device, priority=0) for _ in range(2)]
    for stream in streams:
        stream.enter = torch.cuda.stream
    layer, x = torch.nn.Linear(64, 32), torch.randn(3, 64)
    pinned = [p.detach().pin_memory() for p in layer.parameters()]
    for i in range(4):
        stream = streams[i % 2]
        with stream.enter(stream):
            there = [torch.empty_like(p, device=device) for p in pinned]
            for target, source in zip(there, pinned):
                target.copy_(source, non_blocking=True)
        torch.cuda.current_stream(device).wait_stream(stream)
        out = torch.nn.functional.linear(x.to(device), *there)
        assert torch.allclose(out.cpu(), layer(x), atol=1e-4)
        stream.wait_stream(torch.cuda.current_stream(device))
    """)


def test_a_checkpoint_is_loaded_as_whisper_loads_it(tmp_path):
    """Written on the CPU, read to "cuda" where that is said to be there, from a file and a buffer.
    make integrations has whisper's own load_model()."""
    layers = torch.nn.Conv1d(4, 8, 3), torch.nn.Flatten(), torch.nn.Linear(48, 3)
    model = torch.nn.Sequential(*layers)
    checkpoint = {"dims": {"n_mels": 4}, "model_state_dict": model.half().state_dict()}
    torch.save(checkpoint, tmp_path / "tiny.pt")
    run(
        """
        import io
        for in_memory in (False, True):
            device = "cuda" if torch.cuda.is_available() else "cpu"
            data = open("tiny.pt", "rb").read() if in_memory else "tiny.pt"
            with io.BytesIO(data) if in_memory else open(data, "rb") as fp:
                checkpoint = torch.load(fp, map_location=device, weights_only=True)
            width = checkpoint["dims"]["n_mels"]
            assert all(t.is_cuda for t in checkpoint["model_state_dict"].values())
            layers = torch.nn.Conv1d(width, 8, 3), torch.nn.Flatten(), torch.nn.Linear(48, 3)
            model = torch.nn.Sequential(*layers)
            model.load_state_dict(checkpoint["model_state_dict"])
            model = model.to(device)
            x = torch.ones(2, width, 8, device=device)
            with torch.no_grad():
                out = model(x).float().cpu()
                expected = model.cpu()(x.cpu())
            assert torch.allclose(out, expected, atol=1e-3)
        """,
        tmp_path,
    )
