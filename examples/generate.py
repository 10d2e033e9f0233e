"""Writes text with a language model from a local folder, in the format of Hugging Face.

    python examples/generate.py --model FOLDER --prompt "Once upon a time"
    python examples/generate.py --model FOLDER --dtype bfloat16 --quantize int8

Needs transformers and accelerate, and torchao for --quantize. Text is shown as it comes. At the end
stand the tokens per second, without the first one, whose time goes into the prompt and into kernels
that are compiled once, and the memory that tensors took.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, TextStreamer


class TimedStreamer(TextStreamer):
    """Prints tokens as they come, and remembers when each did."""

    def __init__(self, tokenizer, **kwargs) -> None:
        super().__init__(tokenizer, skip_prompt=True, **kwargs)
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        # The first value is the prompt.
        if not self.next_tokens_are_prompt:
            self.times.append(time.perf_counter())
        super().put(value)

    def rate(self) -> float:
        """Tokens per second after the first; 0 if there are none."""
        seconds = self.times[-1] - self.times[0] if self.times else 0.0
        return (len(self.times) - 1) / seconds if seconds > 0 else 0.0


def quantize(model: PreTrainedModel, bits: str) -> None:
    """Replaces the weights of the linear layers by such of 8 or 4 bits; int4 needs bfloat16."""
    from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

    if bits == "int8":
        quantize_(model, Int8WeightOnlyConfig())
    else:
        # The layout of PyTorch's own kernels.
        quantize_(model, Int4WeightOnlyConfig(32, int4_packing_format="tile_packed_to_4d"))


def load(
    folder: str, device: str, dtype: torch.dtype, bits: str | None = None
) -> tuple[PreTrainedModel, object]:
    """A model on the device, ready to generate, and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map=device).eval()
    if bits:
        quantize(model, bits)
    return model, AutoTokenizer.from_pretrained(folder)


def encode(tokenizer, prompt: str, chat: bool) -> dict[str, torch.Tensor]:
    if not chat:
        return tokenizer(prompt, return_tensors="pt")
    messages = [{"role": "user", "content": prompt}]
    return tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="the folder with config.json")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--chat", action="store_true", help="the prompt is a message")
    parser.add_argument("--tokens", type=int, default=100, help="at most so many new ones")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token")
    parser.add_argument("--device", default="ocl")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--quantize", choices=["int8", "int4"], help="needs torchao")
    options = parser.parse_args(arguments)
    if options.quantize == "int4" and options.dtype != "bfloat16":
        parser.error("--quantize int4 needs --dtype bfloat16")
    if not Path(options.model).is_dir():
        parser.error(f"--model: no such folder: {options.model}")

    dtype = getattr(torch, options.dtype)
    model, tokenizer = load(options.model, options.device, dtype, options.quantize)
    inputs = encode(tokenizer, options.prompt, options.chat)
    # Some tokenizers begin each text with a token: for them an empty prompt is one.
    if inputs["input_ids"].numel() == 0:
        parser.error("--prompt: it has no tokens to begin with")
    streamer = TimedStreamer(tokenizer)
    sampling = {"temperature": options.temperature} if options.temperature > 0 else {}
    with torch.inference_mode():
        model.generate(
            **{name: tensor.to(options.device) for name, tensor in inputs.items()},
            max_new_tokens=options.tokens,
            do_sample=bool(sampling),
            streamer=streamer,
            **sampling,
        )
    print(f"{len(streamer.times)} tokens, {streamer.rate():.1f} tokens/s", end="")
    if options.device != "cpu":
        peak = torch.accelerator.max_memory_allocated(options.device)
        print(f", {peak / 2**20:.0f} MiB at most", end="")
    print()


if __name__ == "__main__":
    main()
