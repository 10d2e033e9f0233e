"""Trains a tiny model with a library's own loop, as a program that knows nothing of `ocl`.

    torchrun --nproc-per-node=2 tests/distributed/libraries.py FOLDER BATCH DEVICE [LIBRARY]

Writes the parameters and what the library says of the device to FOLDER, a file for each library and
rank. BATCH is that of a process: a single process with twice the batch has to come to the same."""

import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 6
#: The samples of all processes together.
BATCH = 8
RATE = 0.2


class Net(nn.Module):
    """A classifier that transformers' Trainer takes, too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x, labels):
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(STEPS * BATCH, 6, generator=generator)
    return TensorDataset(x, torch.randint(0, 4, (len(x),), generator=generator))


def with_trainer(batch: int, folder: str, device: str):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=batch,
        max_steps=STEPS,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        use_cpu=device == "cpu",
    )
    rows = [{"x": x, "labels": y} for x, y in data()]
    net = Net()
    Trainer(net, arguments, train_dataset=rows).train()
    return net, arguments.device, arguments.world_size


def with_accelerate(batch: int, folder: str, device: str):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=device == "cpu")
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data(), batch))
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(net(x, y)["loss"])
        optimizer.step()
    return accelerator.unwrap_model(net), accelerator.device, accelerator.num_processes


def with_lightning(batch: int, folder: str, device: str):
    from lightning.pytorch import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, rows, index):
            self.seen = self.device
            return self.net(*rows)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=RATE)

    processes, rank = (int(os.environ.get(n, d)) for n, d in (("WORLD_SIZE", 1), ("RANK", 0)))
    # Its own sampler would shuffle.
    sampler = DistributedSampler(data(), processes, rank, shuffle=False)
    trainer = Trainer(
        accelerator=device,
        devices=processes,
        use_distributed_sampler=False,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    module = Module()
    trainer.fit(module, DataLoader(data(), batch, sampler=sampler))
    return module.net, module.seen, trainer.world_size


LIBRARIES = {
    "transformers": with_trainer,
    "accelerate": with_accelerate,
    "lightning": with_lightning,
}


def main() -> None:
    folder, batch, device = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    rank = os.environ.get("RANK", "0")
    for name in sys.argv[4:] or LIBRARIES:
        net, where, size = LIBRARIES[name](batch, folder, device)
        found = {
            "parameters": {key: value.cpu() for key, value in net.state_dict().items()},
            "device": str(where),
            "size": size,
        }
        torch.save(found, f"{folder}/{name}.{rank}")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
