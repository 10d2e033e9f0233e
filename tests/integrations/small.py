"""Small models and data that several checks use."""

import tempfile
from pathlib import Path

import torch
from torch import nn

WORDS = (
    "a the cat dog bird tree sees likes chases small old and but red green of in on it she he is"
).split()


#: Sizes of a transformer.
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def llama(**arguments):
    """A Llama of two layers with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = dict(
        vocab_size=len(WORDS) + 4,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(LlamaConfig(**{**config, **arguments})).eval()


def tokenizer():
    """One token for each of WORDS, between special ones."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<s>", "</s>", "<unk>", *WORDS]
    words = models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="<unk>")
    made = Tokenizer(words)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", **special)


def llama_folder() -> Path:
    """A folder as `from_pretrained` reads it. It lasts as long as the process."""
    global _folder
    if _folder is None:
        _folder = tempfile.TemporaryDirectory()
        llama().save_pretrained(_folder.name)
        tokenizer().save_pretrained(_folder.name)
    return Path(_folder.name)


_folder = None


def bert(**arguments):
    from transformers import BertConfig, BertModel

    torch.manual_seed(1)
    config = dict(
        vocab_size=len(WORDS) + 4,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    return BertModel(BertConfig(**{**config, **arguments})).eval()


def perceptron(inputs=8, outputs=3, width=16):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))


def convolutions(classes=3):
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, classes),
    )


def points(count=48, inputs=8, classes=3):
    """(x, labels) that can be learnt."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(count, inputs, generator=generator)
    return x, (x[:, :classes]).argmax(1)


def images(count=2, size=32, channels=3):
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(2))


def losses(step, count=4):
    """The numbers that `step` returned."""
    return [float(step()) for _ in range(count)]


def fit(model, loss_of, optimizer, count=4):
    """The losses of some steps."""

    def step():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return losses(step, count)


def noise(*sizes, seed=1):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def seeded(make, *args, **kwargs):
    """An object with random weights, the same every time."""
    torch.manual_seed(1)
    return make(*args, **kwargs)


def tokens(count=12, top=20):
    return torch.arange(2 * count).view(2, count) % top + 3
