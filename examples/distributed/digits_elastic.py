"""Training that goes on where it was when a process dies: torchrun starts all of them again.

torchrun --standalone --nproc-per-node=2 --max-restarts=2 \\
    examples/distributed/digits_elastic.py --checkpoint /tmp/digits.pt

`--die-at STEP` kills a process, once, to see that.
"""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).resolve().parents[1]))
import digits_data  # noqa: E402

BATCH = 64  # of all processes together
SAVED_EVERY = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--die-at", type=int, default=-1)
    arguments = parser.parse_args()

    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(local)
    device = torch.device(torch.accelerator.current_accelerator().type, local)

    torch.manual_seed(0)
    batches, test = digits_data.load(BATCH, seed=0, shape=(64,))
    images, labels = batches.dataset.tensors
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    first = 0
    if os.path.exists(arguments.checkpoint):
        saved = torch.load(arguments.checkpoint, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    if rank == 0:
        print(f"restart {restarts}: from step {first}", flush=True)
    for step in range(first, arguments.steps):
        if step == arguments.die_at and restarts == 0 and rank == size - 1:
            os._exit(1)
        # The batch doesn't depend on what came before: a step's number is all that has to be
        # remembered.
        chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(step))
        mine = chosen[:BATCH].chunk(size)[rank]
        optimizer.zero_grad()
        scores = model(images[mine].to(device))
        nn.functional.cross_entropy(scores, labels[mine].to(device)).backward()
        optimizer.step()
        if (step + 1) % SAVED_EVERY == 0 and rank == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"step": step + 1}, arguments.checkpoint + ".new")
            os.replace(arguments.checkpoint + ".new", arguments.checkpoint)
    if rank == 0:
        print(f"test accuracy {digits_data.accuracy(model.module, test, device):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
