"""Regression on scikit-learn's diabetes data: 10 measurements of 442 patients, one outcome."""

from collections.abc import Callable

import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from training import Record, main, train

EPOCHS = 60
BATCH = 32


def run(
    device: str, epochs: int = EPOCHS, on_step: Callable[[], None] | None = None, seed: int = 0
) -> Record:
    torch.manual_seed(seed)
    inputs, targets = load_diabetes(return_X_y=True)
    inputs = torch.tensor(inputs / inputs.std(axis=0), dtype=torch.float32)
    targets = torch.tensor((targets - targets.mean()) / targets.std(), dtype=torch.float32)
    train_inputs, test_inputs, train_targets, test_targets = train_test_split(
        inputs, targets.unsqueeze(1), test_size=0.2, random_state=seed
    )
    batches = DataLoader(
        TensorDataset(train_inputs, train_targets),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(seed),
    )
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-2)
    loss_function = nn.MSELoss()
    record = train(model, optimizer, loss_function, batches, epochs, device, on_step)

    model.eval()
    with torch.no_grad():
        loss = loss_function(model(test_inputs.to(device)), test_targets.to(device)).item()
    # Relative to predicting the mean: 0 explains nothing, 1 everything.
    record.metrics["test R2"] = 1 - loss / test_targets.var(unbiased=False).item()
    return record


if __name__ == "__main__":
    main(__doc__, run, EPOCHS)
