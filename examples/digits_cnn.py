"""A convolutional network on scikit-learn's handwritten digits: 1797 images of 8 x 8 pixels."""

from collections.abc import Callable

import torch
from torch import nn

import digits_data
from training import Record, main, train

EPOCHS = 15
BATCH = 64


def block(inputs: int, outputs: int) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]


def run(
    device: str, epochs: int = EPOCHS, on_step: Callable[[], None] | None = None, seed: int = 0
) -> Record:
    torch.manual_seed(seed)
    batches, test = digits_data.load(BATCH, seed, shape=(1, 8, 8))
    model = nn.Sequential(
        *block(1, 32),
        *block(32, 32),
        nn.MaxPool2d(2),
        *block(32, 64),
        *block(64, 64),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)
    record = train(model, optimizer, nn.CrossEntropyLoss(), batches, epochs, device, on_step)
    record.metrics["test accuracy"] = digits_data.accuracy(model, test, device)
    return record


if __name__ == "__main__":
    main(__doc__, run, EPOCHS)
