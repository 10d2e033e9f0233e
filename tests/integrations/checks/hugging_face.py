"""transformers, accelerate, safetensors, peft, diffusers, sentence-transformers, torchao."""

import os
import tempfile

import torch

from tests.integrations import small
from tests.integrations.checklist import check

PROMPT = "the small cat sees"


def prompt(device):
    return {k: v.to(device) for k, v in small.tokenizer()(PROMPT, return_tensors="pt").items()}


# ---- safetensors ----


def tensors_file(folder):
    from safetensors.torch import save_file

    path = os.path.join(folder, "tensors.safetensors")
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.int64)}, path)
    return path


@check("safetensors", "load_file on a device", integration="safetensors", launches=False)
def _(device):
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        found = load_file(tensors_file(folder), device=device)
    assert all(tensor.device.type == device for tensor in found.values())
    return found


@check(
    "safetensors", "safe_open by a device with its index", integration="safetensors", launches=False
)
def _(device):
    from safetensors import safe_open

    place = torch.device("ocl", 0) if device == "ocl" else device
    with tempfile.TemporaryDirectory() as folder:
        path = tensors_file(folder)
        with safe_open(path, framework="pt", device=str(place)) as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            part = file.get_slice("a")[:, 1:]
        with safe_open(path, framework="pt", device=place) as file:
            assert file.get_tensor("a").device.type == device
    assert part.device.type == device
    return found, part


@check("safetensors", "save_file of tensors on a device")
def _(device):
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.safetensors")
        save_file({"x": torch.arange(5.0, device=device)}, path)
        return load_file(path)


# ---- transformers ----


@check("transformers", "generate, with a KV cache")
def _(device):
    model = small.llama().to(device)
    return model.generate(**prompt(device), max_new_tokens=12, do_sample=False)


@check("transformers", "generate with beams, static cache, sampling from one token")
def _(device):
    model = small.llama().to(device)
    beams = model.generate(**prompt(device), max_new_tokens=6, num_beams=3, do_sample=False)
    static = model.generate(
        **prompt(device), max_new_tokens=6, do_sample=False, cache_implementation="static"
    )
    top = model.generate(**prompt(device), max_new_tokens=6, do_sample=True, top_k=1)
    return beams, static, top


@check("transformers", "from_pretrained(device_map=device)")
def _(device):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(small.llama_folder(), device_map=device)
    assert next(model.parameters()).device.type == device
    return model(**prompt(device)).logits


@check("transformers", "device_map='auto'", integration="accelerate", mode="always")
def _():
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(small.llama_folder(), device_map="auto")
    assert {p.device.type for p in model.parameters()} == {"ocl"}
    expected = small.llama()(**prompt("cpu")).logits
    torch.testing.assert_close(model(**prompt("ocl")).logits.cpu(), expected, rtol=1e-3, atol=1e-4)


@check("transformers", "pipeline by device", tolerance=1e-2)
def _(device):
    from transformers import pipeline

    made = pipeline("text-generation", str(small.llama_folder()), device=device)
    assert made.device.type == device
    return prompt_ids(made(PROMPT, max_new_tokens=6, do_sample=False)[0]["generated_text"])


def prompt_ids(text):
    return small.tokenizer()(text)["input_ids"]


@check("transformers", "pipeline(device=0)", integration="transformers")
def _():
    from transformers import pipeline

    made = pipeline("text-generation", str(small.llama_folder()), device=0)
    assert made.device == torch.device("ocl", 0) and made.model.device.type == "ocl"
    assert made(PROMPT, max_new_tokens=2, do_sample=False)


@check(
    "transformers", "pipeline by itself", integration="transformers", mode="always", launches=False
)
def _():
    from transformers import pipeline

    made = pipeline("text-generation", model=small.llama(), tokenizer=small.tokenizer())
    assert made.device.type == "ocl" and made.model.device.type == "ocl"


def train(device, **arguments):
    """The losses of a Trainer."""
    from transformers import Trainer, TrainingArguments

    rows = [{"input_ids": row, "labels": row} for row in torch.arange(8 * 12).reshape(8, 12) % 20]
    os.environ["ACCELERATE_TORCH_DEVICE"] = device
    try:
        with tempfile.TemporaryDirectory() as folder:
            settings = TrainingArguments(
                folder,
                per_device_train_batch_size=4,
                logging_steps=1,
                learning_rate=1e-2,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                dataloader_pin_memory=False,
                **{"max_steps": 4, **arguments},
            )
            trainer = Trainer(small.llama().train(), settings, train_dataset=rows)
            trainer.train()
            assert trainer.model.device.type == device and settings.device.type == device
    finally:
        del os.environ["ACCELERATE_TORCH_DEVICE"]
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@check("transformers", "Trainer")
def _(device):
    return train(device)


@check("transformers", "Trainer, gradient checkpointing")
def _(device):
    return train(device, gradient_checkpointing=True)


def near(found, expected):
    assert len(found) == len(expected) > 0
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


@check("transformers", "Trainer in bfloat16, gradient checkpointing", integration="transformers")
def _():
    near(train("ocl", bf16=True, gradient_checkpointing=True), train("cpu"))


@check("transformers", "Trainer in float16", integration="accelerate")
def _():
    # The first scales are too large: their steps are left out.
    found = train("ocl", fp16=True, max_steps=16)
    assert abs(found[0] - train("cpu")[0]) < 0.05 and found[-1] < found[0] - 0.5


@check(
    "transformers", "Trainer by itself", integration="transformers", mode="always", launches=False
)
def _():
    from transformers import TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(folder, report_to=[])
        assert settings.device.type == "ocl" and settings.train_batch_size == 8
        assert TrainingArguments(folder, report_to=[], use_cpu=True).device.type == "cpu"


@check("transformers", "flex_attention")
def _():
    # The CPU's is compiled, which takes a minute: it is compared with other attention.
    found, expected = (
        small.llama(attn_implementation=name).to("ocl")(**prompt("ocl")).logits
        for name in ("flex_attention", "sdpa")
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


# ---- accelerate ----


def accelerated(device, precision):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState
    from torch.utils.data import DataLoader, TensorDataset

    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    os.environ["ACCELERATE_TORCH_DEVICE"] = device
    try:
        accelerator = Accelerator(mixed_precision=precision)
        assert accelerator.device.type == device
        model = small.perceptron()
        loader = DataLoader(TensorDataset(*small.points()), batch_size=16)
        model, optimizer, loader = accelerator.prepare(
            model, torch.optim.SGD(model.parameters(), 0.5), loader
        )
        found = []
        for x, labels in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), labels)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            found.append(loss.item())
        assert (accelerator.scaler is not None) == (precision == "fp16")
        assert not accelerator.optimizer_step_was_skipped
        return found
    finally:
        del os.environ["ACCELERATE_TORCH_DEVICE"]
        AcceleratorState._reset_state(True)


@check("accelerate", "Accelerator: prepare, accumulate, clip, step")
def _(device):
    return accelerated(device, "no")


@check("accelerate", "Accelerator in bfloat16")
def _():
    near(accelerated("ocl", "bf16"), accelerated("cpu", "no"))


@check("accelerate", "Accelerator in float16", integration="accelerate")
def _():
    near(accelerated("ocl", "fp16"), accelerated("cpu", "no"))


@check("accelerate", "the default device", integration="accelerate", mode="always", launches=False)
def _():
    from accelerate import PartialState
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    assert PartialState().device.type == "ocl"
    AcceleratorState._reset_state(True)
    assert PartialState(cpu=True).device.type == "cpu"
    AcceleratorState._reset_state(True)


@check("accelerate", "get_max_memory", integration="accelerate", mode="always", launches=False)
def _():
    import logging

    from accelerate.utils import get_max_memory

    found = get_max_memory()
    assert 0 < found[0] <= torch.ocl.mem_get_info(0)[1]
    shared = torch.ocl.get_device_properties(0).host_unified_memory
    assert ("cpu" in found) != shared
    said = []
    logging.getLogger("accelerate.utils.modeling").addFilter(lambda record: said.append(record))
    named = get_max_memory({"cpu": "2GB", 0: "1GB"})
    assert list(named.items()) == [(0, 10**9), ("cpu", 2 * 10**9)] and not said
    get_max_memory({10_000: 1})
    assert len(said) == 1


@check("accelerate", "dispatch_model over a device and the CPU", tolerance=1e-4)
def _(device):
    from accelerate import dispatch_model

    model = dispatch_model(
        small.perceptron(), {"0": device, "1": device, "2": "cpu"}, main_device=device
    )
    return model(small.points()[0].to(device))


@check("accelerate", "cpu_offload")
def _(device):
    from accelerate import cpu_offload

    return cpu_offload(small.perceptron(), device)(small.points()[0])


# ---- peft ----


@check("peft", "LoRA: training, merging, saving and loading")
def _(device):
    from peft import LoraConfig, PeftModel, get_peft_model

    settings = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])
    settings.init_lora_weights = True
    torch.manual_seed(0)
    model = get_peft_model(small.llama(), settings).to(device)
    ids = prompt(device)["input_ids"]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    found = small.fit(model, lambda m: m(input_ids=ids, labels=ids).loss, optimizer)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = PeftModel.from_pretrained(small.llama().to(device), folder)
        loaded = again(input_ids=ids).logits
    return found, model.merge_and_unload()(input_ids=ids).logits, loaded


@check("peft", "IA3 and prefix tuning")
def _(device):
    from peft import IA3Config, PrefixTuningConfig, get_peft_model

    ids = prompt(device)["input_ids"]
    found = []
    for settings in (
        IA3Config(task_type="CAUSAL_LM", target_modules=["k_proj"], feedforward_modules=[]),
        PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    ):
        torch.manual_seed(0)
        model = get_peft_model(small.llama(), settings).to(device)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
        found.append(
            small.fit(model, lambda m: m(input_ids=ids, labels=ids).loss, optimizer, count=2)
        )
    return found


# ---- sentence-transformers ----


def sentences(device):
    from sentence_transformers import SentenceTransformer

    with tempfile.TemporaryDirectory() as folder:
        small.bert().save_pretrained(folder)
        small.tokenizer().save_pretrained(folder)
        return SentenceTransformer(folder, device=device)


@check("sentence-transformers", "encode and similarity")
def _(device):
    model = sentences(device)
    found = model.encode(["the cat sees", "a dog likes it"], convert_to_tensor=True)
    assert found.device.type == device
    return found, model.similarity(found, found)


@check(
    "sentence-transformers",
    "the default device",
    integration="sentence_transformers",
    mode="always",
    launches=False,
)
def _():
    assert sentences(None).device.type == "ocl"


# ---- GGUF files ----


@check("transformers", "from_pretrained of a GGUF file, packed", integration="transformers")
def _(device):
    from transformers import AutoModelForCausalLM

    from tests.gguf_files import write_llama
    from torch_ocl.utils.gguf import GGUFTensor

    with tempfile.TemporaryDirectory() as folder:
        write_llama(os.path.join(folder, "model.gguf"))
        model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file="model.gguf", device_map=device
        )
    assert isinstance(model.lm_head.weight, GGUFTensor) == (device == "ocl")
    return model(torch.tensor([[1, 7, 3]], device=device)).logits


# ---- checkpoints of integers ----


def of_integers(method):
    import pathlib

    from transformers import AutoModelForCausalLM

    from tests.integer_checkpoints import write_llama
    from torch_ocl.utils.int4 import Int4Tensor

    tokens = torch.tensor([[1, 7, 3]])
    with tempfile.TemporaryDirectory() as folder:
        exact = write_llama(pathlib.Path(folder), method, order=method == "gptq")
        model = AutoModelForCausalLM.from_pretrained(folder, device_map="ocl", dtype=torch.float32)
    assert isinstance(model.model.layers[0].mlp.up_proj.weight, Int4Tensor)
    found = model(tokens.to("ocl")).logits.cpu().double()
    torch.testing.assert_close(found, exact(tokens).logits, rtol=1e-4, atol=1e-4)


@check("transformers", "from_pretrained of GPTQ's checkpoints, packed", integration="transformers")
def _():
    of_integers("gptq")


@check("transformers", "from_pretrained of AWQ's checkpoints, packed", integration="transformers")
def _():
    of_integers("awq")


@check("compressed_tensors", "pack-quantized weights in transformers", integration="transformers")
def _():
    of_integers("compressed-tensors")


# ---- torchao ----


def quantized(device, config, dtype=torch.float32, width=128):
    from torchao.quantization import quantize_

    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(width, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)
    )
    model = model.to(dtype).to(device)
    x = torch.randn(4, width, generator=torch.Generator().manual_seed(3)).to(dtype).to(device)
    exact = model(x)
    quantize_(model, config)
    return exact, model(x)


@check("torchao", "weights of 8 bits")
def _(device):
    from torchao.quantization import Int8WeightOnlyConfig

    return quantized(device, Int8WeightOnlyConfig())[1]


@check("torchao", "activations and weights of 8 bits", tolerance=2e-2)
def _(device):
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return quantized(device, Int8DynamicActivationInt8WeightConfig())[1]


@check("torchao", "weights of 4 bits", integration="torchao")
def _():
    from torchao.quantization import Int4WeightOnlyConfig

    config = Int4WeightOnlyConfig(group_size=32, int4_packing_format="tile_packed_to_4d")
    exact, found = quantized("ocl", config, torch.bfloat16)
    error = (found - exact).float().norm() / exact.float().norm()
    assert error < 0.15, error


@check("torchao", "AdamW with states of 8 bits")
def _():
    from torchao.optim import AdamW8bit

    model = torch.nn.Linear(256, 256).to("ocl")
    optimizer = AdamW8bit(model.parameters(), 1e-2)
    x = torch.ones(4, 256, device="ocl")
    small.fit(model, lambda m: m(x).square().mean(), optimizer, count=1)


# ---- diffusers ----


def unet(**arguments):
    from diffusers import UNet2DModel

    torch.manual_seed(1)
    config = dict(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        block_out_channels=(32, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
    )
    return UNet2DModel(**{**config, **arguments}).eval()


@check("diffusers", "a DDPM pipeline")
def _(device):
    from diffusers import DDIMPipeline, DDIMScheduler

    made = DDIMPipeline(unet(), DDIMScheduler(num_train_timesteps=50)).to(device)
    made.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(3)
    return torch.from_numpy(
        made(num_inference_steps=3, generator=generator, output_type="np").images
    )


@check("diffusers", "training of a UNet")
def _(device):
    from diffusers import DDPMScheduler

    model, schedule = unet().to(device).train(), DDPMScheduler(num_train_timesteps=50)
    clean = small.images(2, 16).to(device)
    noise = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(4)).to(device)
    times = torch.tensor([3, 30], device=device)
    noisy = schedule.add_noise(clean, noise, times)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    return small.fit(model, lambda m: (m(noisy, times).sample - noise).square().mean(), optimizer)


@check("diffusers", "schedulers", tolerance=5e-3)
def _(device):
    from diffusers import (
        DPMSolverMultistepScheduler,
        EulerDiscreteScheduler,
        HeunDiscreteScheduler,
        LMSDiscreteScheduler,
        PNDMScheduler,
        UniPCMultistepScheduler,
    )

    found = []
    for kind in (
        DPMSolverMultistepScheduler,
        EulerDiscreteScheduler,
        HeunDiscreteScheduler,
        LMSDiscreteScheduler,
        PNDMScheduler,
        UniPCMultistepScheduler,
    ):
        schedule = kind()
        schedule.set_timesteps(5, device=device)
        x = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(5)).to(device)
        x = x * schedule.init_noise_sigma
        for time in schedule.timesteps:
            x = schedule.step(torch.tanh(schedule.scale_model_input(x, time)), time, x).prev_sample
        found.append(x / x.abs().max())
    return found


@check("diffusers", "an autoencoder, in tiles", tolerance=5e-3)
def _(device):
    from diffusers import AutoencoderKL

    torch.manual_seed(1)
    model = AutoencoderKL(
        block_out_channels=(16, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        latent_channels=2,
    )
    model = model.eval().to(device)
    model.enable_tiling()
    with torch.no_grad():
        return model(small.images(1, 32).to(device)).sample


@check("diffusers", "group offloading of a model")
def _(device):
    model = unet()
    if device != "cpu":
        model.enable_group_offload(
            onload_device=torch.device(device),
            offload_device=torch.device("cpu"),
            offload_type="leaf_level",
        )
    with torch.no_grad():
        return model(small.images(1, 16).to(device), 10).sample
