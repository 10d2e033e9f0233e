"""bitsandbytes, by itself and below transformers and peft."""

import torch

from tests.integrations import small
from tests.integrations.checklist import check


@check("bitsandbytes", "optimizers with states of 8 bits")
def _():
    """Beside the same with states of 32 bits."""
    from bitsandbytes import optim

    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)).to("ocl")
    for small_states, full in (
        (optim.AdamW8bit, optim.AdamW32bit),
        (optim.Lion8bit, optim.Lion32bit),
        (optim.SGD8bit, optim.SGD32bit),
        (optim.RMSprop8bit, optim.RMSprop32bit),
    ):
        ends = []
        for make in (small_states, full):
            torch.manual_seed(1)
            model = torch.nn.Linear(256, 256).to("ocl")
            extra = {"momentum": 0.9} if "SGD" in make.__name__ else {}
            optimizer = make(model.parameters(), 1e-3, **extra)
            ends.append(small.fit(model, lambda m: m(x).square().mean(), optimizer, 8))
            states = optimizer.state[model.weight]
            assert states["state1"].dtype == (torch.uint8 if make is small_states else torch.float)
        torch.testing.assert_close(*ends, rtol=2e-2, atol=1e-3)


@check("bitsandbytes", "blocks of 4 bits and back, as the CPU's")
def _(device):
    from bitsandbytes import functional as bits

    found = []
    for kind in ("nf4", "fp4"):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for size in (64, 4096):
                x = torch.randn(70, 97, generator=torch.Generator().manual_seed(1)).to(dtype)
                four, state = bits.quantize_4bit(x.to(device), blocksize=size, quant_type=kind)
                nested, outer = bits.quantize_4bit(
                    x.to(device), blocksize=size, quant_type=kind, compress_statistics=True
                )
                assert four.device.type == nested.device.type == device
                found += [four.int(), state.absmax, nested.int(), bits.dequantize_4bit(four, state)]
                # The library for CPUs rounds the nested scales' mean in another order.
                assert outer.absmax.dtype == torch.uint8
    return found


@check("bitsandbytes", "blocks of 8 bits and back, never further off than the CPU's")
def _():
    """Its library for CPUs doesn't always find the nearest number."""
    from bitsandbytes import functional as bits

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.randn(64, 96, generator=torch.Generator().manual_seed(1)).to(dtype)
        for size in (64, 4096):
            errors, scales = [], []
            for device in ("ocl", "cpu"):
                eight, state = bits.quantize_blockwise(x.to(device), blocksize=size)
                back = bits.dequantize_blockwise(eight, state)
                assert eight.device.type == back.device.type == device and back.dtype == dtype
                scales.append(state.absmax.cpu())
                errors.append((back.cpu().float() - x.float()).abs())
            torch.testing.assert_close(*scales, rtol=0, atol=0)
            assert (errors[0] <= errors[1] + 1e-6 + x.abs() * torch.finfo(dtype).eps).all()


@check("bitsandbytes", "Linear4bit, with gradients through it", tolerance=1e-2)
def _(device):
    from bitsandbytes.nn import Linear4bit

    torch.manual_seed(1)
    plain = torch.nn.Linear(128, 64)
    x = torch.randn(3, 128, generator=torch.Generator().manual_seed(2)).to(device).requires_grad_()
    found = []
    for nested in (False, True):
        layer = Linear4bit(
            128, 64, quant_type="nf4", compute_dtype=torch.float32, compress_statistics=nested
        )
        layer.load_state_dict(plain.state_dict())
        layer = layer.to(device)
        y = layer(x)
        found += [y, *torch.autograd.grad(y.square().sum(), x)]
        with torch.no_grad():
            found += [layer(x[:1]), layer(x.repeat(9, 1))]
    return found


@check("bitsandbytes", "Linear8bitLt, with outliers and gradients", tolerance=2e-2)
def _(device):
    from bitsandbytes.nn import Linear8bitLt

    torch.manual_seed(1)
    plain = torch.nn.Linear(128, 64).half()
    x = torch.randn(3, 128, generator=torch.Generator().manual_seed(2)).half()
    x[:, 5] *= 20
    x = x.to(device).requires_grad_()
    found = []
    for threshold in (0.0, 6.0):
        layer = Linear8bitLt(128, 64, has_fp16_weights=False, threshold=threshold)
        layer.load_state_dict(plain.state_dict())
        layer = layer.to(device).eval()
        assert layer.weight.dtype == torch.int8
        y = layer(x)
        found += [y, *torch.autograd.grad(y.float().sum(), x)]
    return found


@check("bitsandbytes", "Linear8bitLt of float16 weights, trained", tolerance=2e-2)
def _(device):
    from bitsandbytes.nn import Linear8bitLt

    torch.manual_seed(1)
    layer = Linear8bitLt(64, 32, has_fp16_weights=True).half().to(device)
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(2)).half()
    x = x.to(device).requires_grad_()
    y = layer(x)
    y.float().square().sum().backward()
    return y, x.grad, layer.weight.grad, layer.bias.grad


@check("bitsandbytes", "AdEMAMix with states of 8 bits, as the CPU's")
def _(device):
    from bitsandbytes.optim import AdEMAMix8bit

    torch.manual_seed(1)
    model = torch.nn.Linear(100, 77).to(device)
    optimizer = AdEMAMix8bit(model.parameters(), 1e-2, weight_decay=0.1, min_8bit_size=16)
    x = torch.randn(8, 100, generator=torch.Generator().manual_seed(2)).to(device)
    losses = small.fit(model, lambda m: m(x).square().mean(), optimizer, 4)
    assert optimizer.state[model.weight]["state1"].dtype == torch.uint8
    # An element says little: a small state goes to either of two numbers.
    return losses, [p.abs().mean() for p in model.parameters()]


def _loaded(device, **how):
    """A model that is quantised on its way from a folder."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    model = AutoModelForCausalLM.from_pretrained(
        small.llama_folder(), device_map=device, quantization_config=BitsAndBytesConfig(**how)
    )
    assert {p.device.type for p in model.parameters()} == {device}
    return model


_FOUR_BITS = {
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
    "bnb_4bit_compute_dtype": torch.float32,
}


@check("bitsandbytes", "transformers' BitsAndBytesConfig, 4 and 8 bits", tolerance=2e-2)
def _(device):
    found, ids = [], torch.arange(20, device=device)[None]
    for how in (_FOUR_BITS, {"load_in_8bit": True}):
        model = _loaded(device, **how)
        with torch.no_grad():
            found.append(model(ids).logits.float())
        found.append(model.generate(ids[:, :5], max_new_tokens=4, do_sample=False))
    return found


@check("bitsandbytes", "a quantised model by itself", integration="transformers", mode="always")
def _():
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    for how in (_FOUR_BITS, {"load_in_8bit": True}):
        model = AutoModelForCausalLM.from_pretrained(
            small.llama_folder(), quantization_config=BitsAndBytesConfig(**how)
        )
        assert model.device.type == "ocl"
        with torch.no_grad():
            assert model(torch.arange(5, device="ocl")[None]).logits.isfinite().all()


@check("bitsandbytes", "QLoRA with peft and an optimizer of 8 bits", tolerance=2e-2)
def _(device):
    from bitsandbytes.optim import AdamW8bit
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    ids = torch.arange(20, device=device)[None]
    model = prepare_model_for_kbit_training(_loaded(device, **_FOUR_BITS))
    torch.manual_seed(1)
    model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    optimizer = AdamW8bit([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    return small.fit(model, lambda m: m(ids, labels=ids).loss, optimizer, 5)
