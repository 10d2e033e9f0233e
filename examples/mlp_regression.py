"""A perceptron of three layers, 300 -> 300 -> 300 -> 1, fitted to a function of 300 variables."""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from training import Record, main, train

EPOCHS = 10
STEPS_PER_EPOCH = 40
BATCH = 100


def data(generator: torch.Generator) -> TensorDataset:
    inputs = torch.randn(STEPS_PER_EPOCH * BATCH, 300, generator=generator)
    directions = torch.randn(300, 2, generator=generator) / 300**0.5
    first, second = (inputs @ directions).unbind(1)
    return TensorDataset(inputs, (torch.sin(first) + second).unsqueeze(1))


def run(
    device: str, epochs: int = EPOCHS, on_step: Callable[[], None] | None = None, seed: int = 0
) -> Record:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    batches = DataLoader(data(generator), batch_size=BATCH, shuffle=True, generator=generator)
    model = nn.Sequential(
        nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 1)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    return train(model, optimizer, nn.MSELoss(), batches, epochs, device, on_step)


if __name__ == "__main__":
    main(__doc__, run, EPOCHS)
