"""transformers, accelerate and Lightning train on two ranks what a single process trains."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import fresh
from tests.distributed.libraries import BATCH, LIBRARIES

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
SCRIPT = str(Path(__file__).with_name("libraries.py"))


def start(command, *arguments, **environment):
    ours = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_OCL_DEVICES": "0"}
    return subprocess.Popen(
        [sys.executable, *command, SCRIPT, *map(str, arguments)],
        env=ours | os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_two_ranks_train_what_one_process_does(tmp_path):
    folders = {name: tmp_path / name for name in ("alone", "together")}
    for folder in folders.values():
        folder.mkdir()
    running = [
        start((), folders["alone"], BATCH, "cpu"),
        start(TORCHRUN, folders["together"], BATCH // 2, "ocl", ACCELERATE_TORCH_DEVICE="ocl"),
    ]
    for process in running:
        output, _ = process.communicate(timeout=200)
        assert process.returncode == 0, output
    for name in LIBRARIES:
        alone = torch.load(folders["alone"] / f"{name}.0")
        assert alone["device"] == "cpu" and alone["size"] == 1
        for rank in range(2):
            found = torch.load(folders["together"] / f"{name}.{rank}")
            assert found["device"].startswith("ocl:") and found["size"] == 2, name
            for key, value in alone["parameters"].items():
                torch.testing.assert_close(found["parameters"][key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_library_that_would_train_alone_is_warned_of(tmp_path):
    """accelerate as upstream wrote it: `ocl` is not on its list of devices."""
    process = start(
        TORCHRUN,
        tmp_path,
        BATCH,
        "ocl",
        "accelerate",
        ACCELERATE_TORCH_DEVICE="ocl",
        TORCH_OCL_INTEGRATIONS="off",
    )
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output
    assert torch.load(tmp_path / "accelerate.0")["size"] == 1
    assert output.count("trains a model of its own") == 2  # once on each rank
    assert "docs/user/distributed.md" in output


FSDP = """
import warnings
import accelerate
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    accelerator = accelerate.Accelerator()
assert accelerator.device.type == "ocl", accelerator.device
print(*(str(warning.message) for warning in found))
"""


@pytest.mark.parametrize("asked", ["true", "false"])
def test_sharding_by_accelerate_is_warned_of(asked):
    variables = {"ACCELERATE_USE_FSDP": asked, "ACCELERATE_TORCH_DEVICE": "ocl"}
    done = fresh.run_script(FSDP, environment=os.environ | variables)
    assert done.returncode == 0, done.stderr
    assert ("nothing is sharded" in done.stdout) == (asked == "true")


SPAWNED = """
import os

import lightning, torch

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def on_train_end(self):
        said = ("END", self.global_rank, self.trainer.world_size, self.device, chr(10))
        os.write(1, " ".join(map(str, said)).encode())  # at once: others write, too

if __name__ == "__main__":
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    lightning.Trainer(
        accelerator="ocl", devices=2, strategy="ddp_spawn", max_epochs=1, **quiet
    ).fit(Module(), torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=4))
"""


@pytest.mark.slow
def test_lightning_spawns(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SPAWNED)
    variables = {"TORCH_OCL_PARTITION": "2", "TORCH_OCL_DEVICES": "0,1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"END {rank} 2 ocl:{rank}" in done.stdout
