"""litgpt: its commands leave the device to Lightning, `LLM` chooses one itself."""

import dataclasses
import json
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch

from tests.integrations import small
from tests.integrations.checklist import check


@contextmanager
def folder():
    """One as litgpt reads it, with a model of two layers and data to finetune it on."""
    import yaml
    from litgpt.config import Config
    from litgpt.model import GPT

    config = Config(
        name="tiny",
        block_size=64,
        vocab_size=64,
        padded_vocab_size=64,
        n_layer=2,
        n_head=4,
        n_embd=64,
        bias=False,
        rotary_percentage=1.0,
        parallel_residual=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
        intermediate_size=128,
    )
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        torch.save(small.seeded(GPT, config).state_dict(), made / "lit_model.pth")
        (made / "model_config.yaml").write_text(yaml.dump(dataclasses.asdict(config)))
        small.tokenizer().save_pretrained(made)
        tokens = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": ""}
        (made / "tokenizer_config.json").write_text(json.dumps(tokens))
        row = {"instruction": "the cat sees", "input": "", "output": "a red dog"}
        (made / "data.json").write_text(json.dumps([row] * 20))
        yield made


@check("litgpt", "LLM.load and distribute", integration="litgpt", mode="always")
def _():
    from litgpt import LLM

    with folder() as made:
        loaded = LLM.load(made)
        assert loaded.fabric.device.type == "ocl"
        assert isinstance(loaded.generate("the cat", max_new_tokens=4, top_k=1), str)
        later = LLM.load(made, distribute=None)
        found = {}
        for accelerator in ("cpu", "auto", "ocl"):
            later.distribute(accelerator=accelerator, precision="32-true")
            kind = "cpu" if accelerator == "cpu" else "ocl"
            assert later.fabric.device.type == kind, accelerator
            with torch.no_grad():
                tokens = small.tokens().to(later.fabric.device)
                found[accelerator] = later.model(tokens).cpu()
    for accelerator in ("auto", "ocl"):
        torch.testing.assert_close(found[accelerator], found["cpu"], rtol=1e-4, atol=1e-4)


@check("litgpt", "finetuning", integration="lightning", mode="always")
def _(device):
    """The weights after three steps. litgpt has no parameter for the device."""
    from litgpt.args import EvalArgs, TrainArgs
    from litgpt.data import JSON
    from litgpt.finetune.full import setup

    os.environ["TORCH_OCL_INTEGRATIONS"] = "explicit" if device == "cpu" else "always"
    steps = TrainArgs(
        save_interval=100,
        log_interval=1,
        global_batch_size=4,
        micro_batch_size=2,
        lr_warmup_steps=1,
        epochs=1,
        max_steps=3,
        max_seq_length=32,
    )
    # litgpt reads the command line again, to keep it beside the weights.
    with folder() as made, mock.patch.object(sys, "argv", ["litgpt", str(made)]):
        setup(
            made,
            out_dir=made / "out",
            precision="32-true",
            data=JSON(made / "data.json", val_split_fraction=0.2, num_workers=0),
            train=steps,
            eval=EvalArgs(interval=100, max_new_tokens=2, max_iters=1),
            optimizer={"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5}},
        )
        return torch.load(made / "out" / "final" / "lit_model.pth")["model"]
