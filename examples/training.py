"""The examples share this: a plain training loop that keeps the loss of every step."""

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import nn

# Left out of the time per step: the first ones load or build what later ones reuse.
WARM_UP_STEPS = 10


@dataclass
class Record:
    """The results of a run. `metrics` are the example's own figures, such as an accuracy."""

    losses: list[float]
    seconds_per_step: float
    metrics: dict[str, float] = field(default_factory=dict)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_function: nn.Module,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    epochs: int,
    device: str | torch.device,
    on_step: Callable[[], None] | None = None,
) -> Record:
    """Trains `model`, which is on `device`, for `epochs` passes over `batches` (CPU tensors)."""
    model.train()
    losses: list[torch.Tensor] = []
    start = time.perf_counter()
    timed_from = 0
    for _ in range(epochs):
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = loss_function(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            # Reading the loss would make the host wait for the device in every step.
            losses.append(loss.detach())
            if len(losses) == WARM_UP_STEPS:
                loss.item()  # waits
                start, timed_from = time.perf_counter(), len(losses)
            if on_step is not None:
                on_step()
    curve = torch.stack(losses).tolist()  # waits
    seconds = (time.perf_counter() - start) / max(1, len(losses) - timed_from)
    return Record(curve, seconds)


def named_device(text: str) -> torch.device:
    """The device of that name, for argparse."""
    try:
        return torch.device(text)
    except RuntimeError:
        raise argparse.ArgumentTypeError(
            f"there is no device {text!r}: say cpu, ocl, ocl:1, cuda, ..."
        ) from None


def positive(text: str) -> int:
    """A number above 0, for argparse."""
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


def main(description: str, run: Callable[..., Record], epochs: int) -> None:
    """The command line of an example: runs it and prints what came out."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--device",
        default="ocl",
        type=named_device,
        help="cpu, ocl, ocl:1, cuda, ... (%(default)s)",
    )
    parser.add_argument("--epochs", type=positive, default=epochs, help="(%(default)s)")
    arguments = parser.parse_args()
    record = run(arguments.device, arguments.epochs)
    print(f"loss {record.losses[0]:.4f} -> {record.losses[-1]:.4f}")
    for name, value in record.metrics.items():
        print(f"{name} {value:.4f}")
    print(f"{1e3 * record.seconds_per_step:.3f} ms per step")
