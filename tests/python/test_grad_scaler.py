"""torch.amp.GradScaler() without a device, in programs that use `ocl`."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch

from tests.fresh import run_script

DISABLED = "CUDA is not available"


def train(scaler, device, steps=3):
    """A float16 training whose gradients are below float16's range unless they are scaled."""
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    inputs = torch.randn(8, 16) * 1e-3
    model, inputs = model.to(device), inputs.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e4)
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            loss = model(inputs).square().mean() * 1e-3
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return model.weight.detach().cpu(), model.weight.grad.cpu()


def test_it_scales_as_one_of_the_device():
    torch.ones(1, device="ocl")
    scaler, named = (torch.amp.GradScaler(*device, growth_interval=2) for device in ((), ("ocl",)))
    assert scaler.is_enabled()
    weights, gradients = train(scaler, "ocl")
    expected_weights, expected_gradients = train(named, "ocl")
    assert torch.equal(weights, expected_weights)
    assert torch.equal(gradients, expected_gradients)
    assert scaler.state_dict() == named.state_dict()
    assert scaler.state_dict()["scale"] == 2.0**17
    unscaled = train(torch.amp.GradScaler(enabled=False), "ocl")[1]
    assert gradients.count_nonzero() > unscaled.count_nonzero()


def test_other_devices_and_tensors():
    torch.ones(1, device="ocl")
    with pytest.warns(UserWarning, match=DISABLED):
        assert not torch.amp.GradScaler("cuda").is_enabled()
    assert torch.amp.GradScaler("cpu").is_enabled()
    assert not torch.amp.GradScaler(enabled=False).is_enabled()
    scaler, loss = torch.amp.GradScaler(), torch.ones(())
    with pytest.warns(UserWarning, match=DISABLED):
        assert scaler.scale(loss) is loss
    assert not scaler.is_enabled() and scaler._device == "cuda"


def test_one_made_before_the_first_use():
    code = """
    import copy, pickle, warnings, torch
    warnings.simplefilter("error")
    scaler = torch.amp.GradScaler()
    assert not scaler.is_enabled() and scaler.state_dict() == {} and scaler.get_scale() == 1.0
    state = {"scale": 512.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3,
             "_growth_tracker": 1}
    scaler.load_state_dict(state)
    scaler = pickle.loads(pickle.dumps(copy.deepcopy(scaler)))
    assert not torch.ocl.is_initialized()
    x = torch.ones(2, device="ocl")
    assert scaler.is_enabled() and scaler.state_dict() == state
    a, (b,) = scaler.scale([x, [x * 2]])
    print(a.tolist(), b.tolist(), scaler._device)
    """
    done = run_script(textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[512.0, 512.0] [1024.0, 1024.0] ocl"


def test_a_scaler_can_be_copied():
    torch.ones(1, device="ocl")
    scaler = torch.amp.GradScaler()
    train(scaler, "ocl")
    for other in (copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))):
        assert other.is_enabled() and other.state_dict() == scaler.state_dict()


def test_a_device_without_double_precision(monkeypatch):
    monkeypatch.setattr(torch.ocl, "get_device_properties", lambda device: without_double)
    without_double = type("Properties", (), {"has_fp64": False})
    scaled = train(torch.amp.GradScaler("ocl"), "ocl")
    monkeypatch.undo()
    expected = train(torch.amp.GradScaler("ocl"), "ocl")
    assert all(torch.equal(a, b) for a, b in zip(scaled, expected, strict=True))


def test_what_is_undecided_stays_here(tmp_path):
    """Where the package is missing, a scaler of no device is disabled, and so is one from here."""
    file = tmp_path / "scaler"
    save = f"import pickle, torch; pickle.dump(torch.amp.GradScaler(), open({str(file)!r}, 'wb'))"
    load = f"import pickle, torch; scaler = pickle.load(open({str(file)!r}, 'rb'))"
    here = load + "\nassert not scaler.is_enabled(); torch.ones(1, device='ocl')"
    here += "\nassert scaler.is_enabled()"
    command = [sys.executable, "-c"]
    subprocess.run([*command, save], check=True)
    subprocess.run([*command, here], check=True)
    missing = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run(
        [*command, load + "\nassert scaler.is_enabled() is False"], check=True, env=missing
    )


def test_it_is_disabled_for_the_cpu_whoever_uses_the_device():
    torch.ones(1, device="ocl")
    scaler = torch.amp.GradScaler()
    assert scaler.get_scale() == 65536.0 and scaler.state_dict()
    with pytest.warns(UserWarning, match=DISABLED):
        assert scaler.scale(torch.ones(1)).item() == 1.0
    assert not scaler.is_enabled()
