"""Writes a tiny checkpoint with random weights, such as ComfyUI takes for Stable Diffusion 1's:

    PYTHONPATH=folder of ComfyUI python tests/integrations/comfyui_checkpoint.py FILE.safetensors

ComfyUI reads sizes from the weights' shapes. Two levels of 320 channels are the least U-Net that it
takes for one of this family. The text encoder's sizes are fixed. The autoencoder is its smallest.
"""

import json
import math
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

UNET = dict(
    image_size=32,
    in_channels=4,
    out_channels=4,
    model_channels=320,
    channel_mult=[1, 1],
    num_res_blocks=[1, 1],
    transformer_depth=[1, 1],
    transformer_depth_middle=1,
    transformer_depth_output=[1, 1, 1, 1],
    use_spatial_transformer=True,
    context_dim=768,
    num_heads=8,
    legacy=False,
)


def random(shape, generator):
    """Weights that keep what passes them at its size; vectors near 1 or 0."""
    if len(shape) > 1:
        return torch.randn(shape, generator=generator) / math.sqrt(math.prod(shape[1:]))
    return torch.randn(shape, generator=generator) / 16


def weights(prefix, module, generator):
    made = {}
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            value = random(tensor.shape, generator)
            if tensor.dim() == 1 and name.endswith("weight"):  # a norm's
                value += 1
            made[prefix + name] = value.half().contiguous()
    return made


def main():
    import comfy.cli_args

    comfy.cli_args.args.cpu = True  # whatever device there is
    import comfy.clip_model
    import comfy.ops
    import comfy.sd1_clip
    import comfy.taesd.taesd
    from comfy.ldm.modules.diffusionmodules.openaimodel import UNetModel

    sizes = Path(comfy.sd1_clip.__file__).with_name("sd1_clip_config.json")
    config = json.loads(sizes.read_text(encoding="utf-8"))
    parts = {
        "model.diffusion_model.": UNetModel(**UNET),
        "cond_stage_model.transformer.": comfy.clip_model.CLIPTextModel(
            config, torch.float32, "cpu", comfy.ops.disable_weight_init
        ),
        "first_stage_model.": comfy.taesd.taesd.TAESD(),
    }
    generator = torch.Generator().manual_seed(1)
    made = {}
    for prefix, module in parts.items():
        made |= weights(prefix, module, generator)
    # Sums over the residual blocks are large: without this all pixels are black or white.
    last = f"first_stage_model.taesd_decoder.{len(parts['first_stage_model.'].taesd_decoder) - 1}."
    made[last + "weight"] /= 16
    made[last + "bias"].fill_(0.5)
    save_file(made, sys.argv[1])


if __name__ == "__main__":
    main()
