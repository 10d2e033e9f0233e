"""scikit-learn's handwritten digits, as the classifiers' examples use them."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load(batch: int, seed: int, shape: tuple[int, ...]) -> tuple[DataLoader, TensorDataset]:
    """Batches to train with, and a fifth of the 1797 images for the test.

    Images are float32 of `shape`, of 64 pixels from 0 to 1; labels are int64 from 0 to 9.
    """
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).view(-1, *shape)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, torch.tensor(labels), test_size=0.2, random_state=seed, stratify=labels
    )
    batches = DataLoader(
        TensorDataset(train_images, train_labels),
        batch_size=batch,
        shuffle=True,
        generator=torch.Generator().manual_seed(seed),
    )
    return batches, TensorDataset(test_images, test_labels)


def accuracy(model: nn.Module, test: TensorDataset, device: str) -> float:
    """The share of images that the model labels right, from 0 to 1."""
    images, labels = (tensor.to(device) for tensor in test.tensors)
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()
