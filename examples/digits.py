"""A classifier of scikit-learn's handwritten digits: 1797 images of 8 x 8 pixels."""

from collections.abc import Callable

import torch
from torch import nn

import digits_data
from training import Record, main, train

EPOCHS = 20
BATCH = 64


def run(
    device: str, epochs: int = EPOCHS, on_step: Callable[[], None] | None = None, seed: int = 0
) -> Record:
    torch.manual_seed(seed)
    batches, test = digits_data.load(BATCH, seed, shape=(64,))
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    record = train(model, optimizer, nn.CrossEntropyLoss(), batches, epochs, device, on_step)
    record.metrics["test accuracy"] = digits_data.accuracy(model, test, device)
    return record


if __name__ == "__main__":
    main(__doc__, run, EPOCHS)
