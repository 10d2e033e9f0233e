"""A convolutional network on scikit-learn's handwritten digits: 1797 images of 8 x 8 pixels."""

from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

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
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, torch.tensor(labels), test_size=0.2, random_state=seed, stratify=labels
    )
    batches = DataLoader(
        TensorDataset(train_images, train_labels),
        batch_size=BATCH,
        shuffle=True,
        generator=torch.Generator().manual_seed(seed),
    )
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

    model.eval()
    with torch.no_grad():
        predicted = model(test_images.to(device)).argmax(dim=1)
        correct = predicted == test_labels.to(device)
        record.metrics["test accuracy"] = correct.float().mean().item()
    return record


if __name__ == "__main__":
    main(__doc__, run, EPOCHS)
