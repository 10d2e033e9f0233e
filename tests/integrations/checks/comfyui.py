"""ComfyUI, a program: tried where COMFYUI names a folder with it."""

import tempfile
from pathlib import Path

import torch

from tests.integrations import comfyui
from tests.integrations.checklist import check


@check(
    "ComfyUI",
    "an image over HTTP, without flags",
    integration="comfyui",
    mode="auto",
    launches=False,
)
def _():
    """Beside that of `--cpu`, from the same seed: no pixel differs by more than 2 of 255."""
    folder = comfyui.checkout()
    images = {}
    with tempfile.TemporaryDirectory() as base:
        comfyui.make_checkpoint(folder, Path(base))
        for device, flags in (("cpu", ["--cpu"]), ("ocl", [])):
            with comfyui.Server(folder, Path(base), *flags) as server:
                assert server.device()["type"] == device
                images[device] = server.image(comfyui.workflow())
                if device == "ocl":
                    _used(server)
    assert images["cpu"].float().std() > 10, "an image of one colour shows nothing"
    torch.testing.assert_close(images["ocl"].int(), images["cpu"].int(), rtol=0, atol=2)


def _used(server):
    """The weights lay on the device, and it took PyTorch's attention."""
    device = server.device()
    assert device["torch_vram_total"] > 20e6, device
    assert 0 < device["vram_free"] <= device["vram_total"]
    assert device["name"].startswith(f"ocl:{torch.ocl.current_device()} ")
    assert "Using pytorch attention" in server.log()
