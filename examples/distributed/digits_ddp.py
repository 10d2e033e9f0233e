"""scikit-learn's digits, learned by several processes with DistributedDataParallel.

torchrun --standalone --nproc-per-node=2 examples/distributed/digits_ddp.py
"""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

sys.path.append(str(Path(__file__).resolve().parents[1]))
import digits_data  # noqa: E402

BATCH = 64  # of all processes together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs

    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    # A process takes a device of its own where there are as many.
    local = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    device = torch.device(torch.accelerator.current_accelerator().type, local)
    torch.accelerator.set_device_index(local)

    torch.manual_seed(0)
    batches, test = digits_data.load(BATCH, seed=0, shape=(64,))
    data: TensorDataset = batches.dataset
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, BATCH // size, sampler=sampler)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / len(loader) / size:.4f}")
    accuracy = digits_data.accuracy(model.module, test, device)
    print(f"rank {rank} of {size} on {device}: test accuracy {accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
