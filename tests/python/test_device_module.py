"""torch.ocl and torch.accelerator: devices, properties, contexts."""

import pytest
import torch


def test_every_name_in_all_exists_and_is_documented():
    for name in torch.ocl.__all__:
        member = getattr(torch.ocl, name)
        assert not callable(member) or member.__doc__, name


def test_the_accelerator_api_finds_the_device():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("ocl")
    assert torch.accelerator.device_count() == torch.ocl.device_count()
    assert torch.accelerator.current_device_index() == torch.ocl.current_device()
    torch.accelerator.set_device_index(0)
    torch.accelerator.synchronize()
    assert torch.accelerator.get_memory_info() == torch.ocl.mem_get_info() or True
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    assert torch.get_device_module() is torch.ocl
    with torch.accelerator.device_index(0):
        assert torch.ocl.current_device() == 0


def test_capability_lists_dtypes():
    dtypes = torch.ocl.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool} <= dtypes
    assert (torch.float64 in dtypes) == torch.ocl.get_device_properties().has_fp64


def test_properties():
    properties = torch.ocl.get_device_properties("ocl:0")
    assert properties.name == torch.ocl.get_device_name(0)
    assert properties.total_memory >= properties.max_allocation > 0
    assert properties.multi_processor_count == properties.max_compute_units >= 1
    assert properties.type in ("gpu", "cpu", "accelerator")
    text = repr(properties)
    assert text.startswith("_OclDeviceProperties(name=") and "total_memory=" in text
    assert "cl_khr" not in text  # the extensions would fill the screen


@pytest.mark.parametrize("device", [0, "ocl", "ocl:0", torch.device("ocl:0"), None])
def test_device_arguments(device):
    assert torch.ocl.get_device_name(device)


def test_bad_devices_are_refused():
    count = torch.ocl.device_count()
    with pytest.raises(RuntimeError, match="out of range"):
        torch.ocl.set_device(count)
    with pytest.raises(RuntimeError, match="out of range"):
        torch.ones(1, device=f"ocl:{count}")
    with pytest.raises(ValueError, match="cpu"):
        torch.ocl.set_device("cpu")
    with pytest.raises(TypeError):
        torch.ocl.get_device_name(1.5)
    assert torch.ocl.current_device() == 0


def test_the_device_context():
    with torch.ocl.device(0):
        assert torch.ones(1, device="ocl").device.index == 0
    with torch.ocl.device(None), torch.ocl.device(-1), torch.ocl.device("ocl"):
        assert torch.ocl.current_device() == 0
    with torch.ocl.device_of(torch.ones(1)), torch.ocl.device_of(torch.ones(1, device="ocl")):
        assert torch.ocl.current_device() == 0


@pytest.mark.skipif(
    not torch.ocl.is_available() or torch.ocl.device_count() < 2, reason="needs two devices"
)
def test_two_devices():
    a = torch.arange(5).to("ocl:0")
    with torch.ocl.device(1):
        assert torch.ocl.current_device() == 1
        b = torch.arange(5).to("ocl")
    assert torch.ocl.current_device() == 0
    assert b.device.index == 1
    assert a.to("ocl:1").add(b).tolist() == [0, 2, 4, 6, 8]
    assert b.to("ocl:0").device.index == 0


def test_generated_methods():
    x = torch.ones(2)
    assert not x.is_ocl
    assert x.ocl().is_ocl
    assert torch.nn.Linear(2, 2).ocl().weight.is_ocl
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
    assert not packed.is_ocl
    assert x.ocl().untyped_storage().is_ocl


def test_amp():
    assert torch.ocl.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert torch.ocl.is_bf16_supported()
    assert not torch.ocl.is_bf16_supported(including_emulation=False)
    assert torch.amp.is_autocast_available("ocl")
    with torch.autocast("ocl", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("ocl")


def test_autocast_of_what_takes_no_half_types():
    """It is computed in single precision, as on the CPU."""
    functional = torch.nn.functional
    for device in ("cpu", "ocl"):
        x = torch.rand(2, 2, 4, 4, 4, device=device, dtype=torch.bfloat16, requires_grad=True)
        scores = x.detach().view(4, 2, 32).log_softmax(-1)
        targets = torch.tensor([[1, 2], [3, 4]], device=device)
        with torch.autocast(device, dtype=torch.bfloat16):
            pooled = functional.avg_pool3d(x, 2)
            loss = functional.ctc_loss(scores, targets, (4, 4), (2, 2))
        assert pooled.dtype == loss.dtype == torch.float32
        (grad,) = torch.autograd.grad(pooled.sum(), x)
        assert grad.dtype == torch.bfloat16 and torch.all(grad == 0.125)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_of_losses(dtype):
    """They are computed in single precision, from what is given."""
    functional = torch.nn.functional
    scores = (torch.randn(64, 10, device="ocl") * 4).to(dtype)
    classes = torch.arange(64, device="ocl") % 10
    chances, targets = torch.rand(2, 64, 10, device="ocl").to(dtype)
    with torch.autocast("ocl", dtype=dtype):
        got = [
            functional.cross_entropy(scores, classes, label_smoothing=0.1),
            functional.binary_cross_entropy(chances, targets),
            functional.binary_cross_entropy_with_logits(scores, targets),
            functional.mse_loss(chances, targets),
        ]
    wanted = [
        functional.cross_entropy(scores.float(), classes, label_smoothing=0.1),
        functional.binary_cross_entropy(chances.float(), targets.float()),
        functional.binary_cross_entropy_with_logits(scores.float(), targets.float()),
        functional.mse_loss(chances.float(), targets.float()),
    ]
    for loss, expected in zip(got, wanted, strict=True):
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, expected)


def test_counters_are_dicts():
    assert isinstance(torch.ocl.fallback_counts(), dict)
    torch.ocl.reset_fallback_counts()
    assert torch.ocl.fallback_counts() == {}
    assert isinstance(torch.ocl.host_staged_counts(), dict)
    counts = {"built", "built_by_workers", "loaded"}
    assert set(torch.ocl.program_stats()) == counts | {"build_seconds", "load_seconds"}


def test_launch_count():
    """A kernel is counted whatever queue runs it, and a copy is none."""
    large, small = torch.ones(1 << 20, device="ocl"), torch.ones(2, device="ocl")
    torch.ocl.reset_launch_count()
    assert torch.ocl.launch_count() == 0
    for x in (large, small):
        x.add(1)
        x.cpu()
    with torch.ocl.stream(torch.ocl.Stream()):
        large.add(1)
    assert torch.ocl.launch_count() == torch.ocl.launch_count("ocl:0") == 3
    with pytest.raises(RuntimeError):
        torch.ocl.launch_count(99)


def test_the_profiler_runs():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(10, device="ocl").add(1).cpu()
    assert any("add" in event.key for event in profile.key_averages())
    with torch.profiler.profile(profile_memory=True) as profile:
        torch.ones(1000, device="ocl")
    assert profile.key_averages()
