"""A transformer that learns to write English, letter by letter, from scikit-learn's descriptions of
its data sets."""

from collections.abc import Callable
from pathlib import Path

import sklearn
import torch
from torch import nn

from training import Record, main, train

EPOCHS = 4
BATCH = 16
LENGTH = 64  # letters that the model sees
WIDTH = 64


class Writer(nn.Module):
    """The scores of the next letter after each of a text's, from those up to it."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(
            layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False
        )
        self.scores = nn.Linear(WIDTH, letters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device)
        hidden = self.layers(self.letters(text) + self.places(places), mask, is_causal=True)
        return self.scores(hidden).flatten(0, 1)


def texts() -> str:
    folder = Path(sklearn.__file__).parent / "datasets" / "descr"
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.rst")))


def run(
    device: str, epochs: int = EPOCHS, on_step: Callable[[], None] | None = None, seed: int = 0
) -> Record:
    torch.manual_seed(seed)
    text = texts()
    alphabet = sorted(set(text))
    codes = {letter: code for code, letter in enumerate(alphabet)}
    encoded = torch.tensor([codes[letter] for letter in text])
    pieces = encoded[: len(encoded) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(seed))
    batches = [(p[:, :-1], p[:, 1:].flatten()) for p in pieces[order].split(BATCH)]
    model = Writer(len(alphabet)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    record = train(model, optimizer, nn.CrossEntropyLoss(), batches, epochs, device, on_step)

    model.eval()
    with torch.no_grad():
        inputs, targets = batches[0]
        scores = model(inputs.to(device))
        record.metrics["loss after training"] = nn.functional.cross_entropy(
            scores, targets.to(device)
        ).item()
    return record


if __name__ == "__main__":
    main(__doc__, run, EPOCHS)
