"""The examples of examples/distributed with torchrun and two processes."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "distributed"


def torchrun(script: str, *arguments: str, options: tuple = (), **environment: str) -> str:
    """The output of the processes, one after the other."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*launcher, f"--log-dir={folder}", "--redirects=1", *options]
            + [str(EXAMPLES / script), *arguments],
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"} | environment,
            capture_output=True,
            text=True,
            timeout=150,
        )
        output = "".join(path.read_text() for path in sorted(Path(folder).rglob("stdout.log")))
    assert done.returncode == 0, output + done.stdout + done.stderr
    return output


@pytest.mark.slow
def test_data_parallel_on_parts_of_a_device():
    output = torchrun("digits_ddp.py", "--epochs=5", TORCH_OCL_PARTITION="2")
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss (\S+)", output)]
    assert losses[-1] < losses[0] / 2
    found = re.findall(r"rank (\d) of 2 on (ocl:\d): test accuracy (\S+)", output)
    assert sorted(rank + device for rank, device, _ in found) == ["0ocl:0", "1ocl:1"]
    assert len({accuracy for *_, accuracy in found}) == 1 and float(found[0][2]) > 0.9


@pytest.mark.slow
def test_sharded_transformer(tmp_path):
    output = torchrun("characters_fsdp.py", "--steps=30", f"--save={tmp_path / 'saved'}")
    first, last = map(float, re.search(r"loss (\S+) -> (\S+)", output).groups())
    assert last < first - 0.5
    assert len(list((tmp_path / "saved").glob("*.distcp"))) == 2


@pytest.mark.slow
def test_it_goes_on_after_a_process_died(tmp_path):
    arguments = (f"--checkpoint={tmp_path / 'digits.pt'}", "--die-at=35", "--steps=60")
    output = torchrun(
        "digits_elastic.py",
        *arguments,
        options=("--max-restarts=1",),
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )
    assert "restart 0: from step 0" in output and "restart 1: from step 30" in output
    assert float(re.search(r"test accuracy (\S+)", output).group(1)) > 0.9
