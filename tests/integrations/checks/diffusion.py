"""Models and pipelines of diffusers, each tiny and with random weights."""

import torch

from tests.integrations import small
from tests.integrations.checklist import check
from tests.integrations.small import SMALL, noise, seeded


def unet(**arguments):
    from diffusers import UNet2DConditionModel

    sizes = dict(
        sample_size=8,
        block_out_channels=(16, 32),
        layers_per_block=1,
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    return seeded(UNet2DConditionModel, **{**sizes, **arguments}).eval()


@check("diffusers", "a UNet with text, and a ControlNet", tolerance=5e-3)
def _(device):
    from diffusers import ControlNetModel

    model = unet().to(device)
    control = ControlNetModel.from_unet(model).to(device)
    x, text = noise(2, 4, 8, 8).to(device), noise(2, 5, 32, seed=2).to(device)
    with torch.no_grad():
        down, middle = control(x, 10, text, small.images(2, 64).to(device), return_dict=False)
        return model(
            x, 10, text, down_block_additional_residuals=down, mid_block_additional_residual=middle
        ).sample


def stable_diffusion():
    """Its pipeline, without what reads texts and judges pictures."""
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline
    from transformers import CLIPTextConfig, CLIPTextModel

    text = CLIPTextConfig(**SMALL, intermediate_size=64, vocab_size=40, max_position_embeddings=8)
    vae = seeded(
        AutoencoderKL,
        block_out_channels=[16, 16],
        norm_num_groups=8,
        latent_channels=4,
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
    )
    pipeline = StableDiffusionPipeline(
        vae=vae.eval(),
        text_encoder=seeded(CLIPTextModel, text).eval(),
        tokenizer=None,
        unet=unet(),
        scheduler=DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def picture(pipeline, device):
    words = noise(1, 5, 32, seed=3).to(device)
    return pipeline(
        prompt_embeds=words,
        negative_prompt_embeds=words * 0,
        latents=noise(1, 4, 8, 8).to(device),
        num_inference_steps=2,
        output_type="pt",
        height=16,
        width=16,
    ).images


@check("diffusers", "Stable Diffusion's pipeline", tolerance=2e-2)
def _(device):
    return picture(stable_diffusion().to(device), device)


@check("diffusers", "enable_model_cpu_offload: a model at a time on the device", tolerance=2e-2)
def _(device):
    pipeline = stable_diffusion()
    if device == "cpu":
        return picture(pipeline, device)
    pipeline.enable_model_cpu_offload(device=device)
    assert pipeline._execution_device == torch.device(device, 0)
    places = set()
    pipeline.unet.register_forward_hook(
        lambda model, *_: places.add(next(model.parameters()).device.type)
    )
    found = picture(pipeline, device)
    assert found.device.type == device and places == {device}
    # All are back on the CPU in the end.
    assert {next(m.parameters()).device.type for m in (pipeline.unet, pipeline.vae)} == {"cpu"}
    return found


@check("diffusers", "enable_sequential_cpu_offload: a layer at a time on it", tolerance=2e-2)
def _(device):
    pipeline = stable_diffusion()
    if device == "cpu":
        return picture(pipeline, device)
    torch.ocl.empty_cache()
    pipeline.enable_sequential_cpu_offload(device=device)
    assert pipeline._execution_device == torch.device(device, 0)
    found = picture(pipeline, device)
    assert found.device.type == device
    assert next(pipeline.unet.parameters()).device.type == "meta"
    return found


@check("diffusers", "offload to the device that it chooses itself", mode="always")
def _():
    for name in ("enable_model_cpu_offload", "enable_sequential_cpu_offload"):
        pipeline = stable_diffusion()
        getattr(pipeline, name)()
        assert picture(pipeline, "ocl").device == torch.device("ocl", 0)


@check("diffusers", "a Flux transformer", tolerance=5e-3)
def _(device):
    from diffusers import FluxTransformer2DModel

    model = (
        seeded(
            FluxTransformer2DModel,
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=[4, 4, 8],
        )
        .eval()
        .to(device)
    )
    with torch.no_grad():
        return model(
            hidden_states=noise(1, 16, 4).to(device),
            encoder_hidden_states=noise(1, 6, 32, seed=2).to(device),
            pooled_projections=noise(1, 32, seed=3).to(device),
            timestep=torch.tensor([0.5], device=device),
            img_ids=torch.zeros(16, 3, device=device),
            txt_ids=torch.zeros(6, 3, device=device),
        ).sample


@check("diffusers", "a Stable Diffusion 3 transformer", tolerance=5e-3)
def _(device):
    from diffusers import SD3Transformer2DModel

    model = (
        seeded(
            SD3Transformer2DModel,
            sample_size=8,
            patch_size=1,
            in_channels=4,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            joint_attention_dim=32,
            caption_projection_dim=32,
            pooled_projection_dim=16,
            out_channels=4,
        )
        .eval()
        .to(device)
    )
    with torch.no_grad():
        return model(
            hidden_states=noise(1, 4, 8, 8).to(device),
            encoder_hidden_states=noise(1, 6, 32, seed=2).to(device),
            pooled_projections=noise(1, 16, seed=3).to(device),
            timestep=torch.tensor([10.0], device=device),
        ).sample


@check("diffusers", "a Wan transformer, of videos", tolerance=5e-3)
def _(device):
    from diffusers import WanTransformer3DModel

    model = (
        seeded(
            WanTransformer3DModel,
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=12,
            in_channels=4,
            out_channels=4,
            text_dim=16,
            freq_dim=32,
            ffn_dim=32,
            num_layers=2,
            cross_attn_norm=True,
        )
        .eval()
        .to(device)
    )
    with torch.no_grad():
        return model(
            hidden_states=noise(1, 4, 2, 8, 8).to(device),
            encoder_hidden_states=noise(1, 6, 16, seed=2).to(device),
            timestep=torch.tensor([10], device=device),
        ).sample
