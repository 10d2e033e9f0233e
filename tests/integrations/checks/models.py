"""More models and pipelines, each tiny and with random weights."""

import torch
from torch.nn import functional

from tests.integrations import small
from tests.integrations.checklist import check


def noise(*sizes, seed=1):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def seeded(make, *args, **kwargs):
    """An object with random weights, the same every time."""
    torch.manual_seed(1)
    return make(*args, **kwargs)


def tokens(count=12, top=20):
    return torch.arange(2 * count).view(2, count) % top + 3


# ---- transformers ----


def transformer(config, model, device, **sizes):
    import transformers

    made = seeded(getattr(transformers, model), getattr(transformers, config)(**sizes))
    return made.eval().to(device)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


@check("transformers", "BERT: training of a classifier", tolerance=5e-3)
def _(device):
    model = transformer(
        "BertConfig",
        "BertForSequenceClassification",
        device,
        **SMALL,
        intermediate_size=64,
        vocab_size=40,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ).train()
    batch = {"input_ids": tokens().to(device), "labels": torch.tensor([0, 2], device=device)}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    return small.fit(model, lambda m: m(**batch).loss, optimizer)


@check("transformers", "ViT", tolerance=5e-3)
def _(device):
    model = transformer(
        "ViTConfig",
        "ViTForImageClassification",
        device,
        **SMALL,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=3,
    )
    return model(small.images().to(device)).logits


@check("transformers", "CLIP", tolerance=5e-3)
def _(device):
    from transformers import CLIPConfig

    sizes = {**SMALL, "intermediate_size": 64}
    config = CLIPConfig(
        text_config={**sizes, "vocab_size": 40, "eos_token_id": 2},
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    from transformers import CLIPModel

    model = seeded(CLIPModel, config).eval().to(device)
    found = model(input_ids=tokens(8).to(device), pixel_values=small.images().to(device))
    return found.logits_per_image, found.text_embeds


@check("transformers", "T5: generate with an encoder", tolerance=5e-3)
def _(device):
    model = transformer(
        "T5Config",
        "T5ForConditionalGeneration",
        device,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        vocab_size=40,
        decoder_start_token_id=0,
    )
    return model.generate(tokens().to(device), max_new_tokens=6, do_sample=False, num_beams=2)


@check("transformers", "Whisper: generate", tolerance=5e-3)
def _(device):
    model = transformer(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        device,
        vocab_size=60,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=30,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    sound = noise(1, 16, 60).to(device)
    start = torch.tensor([[1, 5]], device=device)
    return model(input_features=sound, decoder_input_ids=start).logits


@check("transformers", "Wav2Vec2", tolerance=5e-3)
def _(device):
    model = transformer(
        "Wav2Vec2Config",
        "Wav2Vec2Model",
        device,
        **SMALL,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
    )
    return model(noise(2, 800).to(device)).last_hidden_state


@check("transformers", "Mixtral: a mixture of experts", tolerance=5e-3)
def _(device):
    model = transformer(
        "MixtralConfig",
        "MixtralForCausalLM",
        device,
        **SMALL,
        intermediate_size=48,
        vocab_size=40,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
    )
    return model(tokens().to(device)).logits


@check("transformers", "Mamba", tolerance=5e-3)
def _(device):
    model = transformer(
        "MambaConfig",
        "MambaForCausalLM",
        device,
        hidden_size=32,
        num_hidden_layers=2,
        vocab_size=40,
        state_size=8,
    )
    return model(tokens().to(device)).logits


@check("transformers", "GPT-2: training under autocast of bfloat16", tolerance=5e-2)
def _(device):
    model = transformer(
        "GPT2Config",
        "GPT2LMHeadModel",
        device,
        n_embd=32,
        n_layer=2,
        n_head=2,
        vocab_size=40,
        n_positions=64,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    ).train()
    x = tokens().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def loss(m):
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            return m(x, labels=x).loss

    return small.fit(model, loss, optimizer)


@check("transformers", "SAM: masks from points", tolerance=5e-3)
def _(device):
    from transformers import SamConfig, SamModel

    vision = {
        **SMALL,
        "output_channels": 16,
        "image_size": 64,
        "patch_size": 8,
        "mlp_dim": 64,
        "window_size": 4,
        "global_attn_indexes": [1],
        "num_pos_feats": 8,
    }
    prompt = {"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4}
    decoder = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "mlp_dim": 32,
        "iou_head_hidden_dim": 16,
    }
    config = SamConfig(
        vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder
    )
    model = seeded(SamModel, config).eval().to(device)
    points = torch.tensor([[[[20.0, 30.0]]]], device=device)
    with torch.no_grad():
        found = model(pixel_values=small.images(1, 64).to(device), input_points=points)
    return found.pred_masks, found.iou_scores


@check("transformers", "a cache of fixed size, and one with a sliding window", tolerance=5e-3)
def _(device):
    model = small.llama().to(device)
    settings = {"max_new_tokens": 6, "do_sample": False}
    x = tokens(6).to(device)
    return [
        model.generate(x, **settings, cache_implementation="static"),
        model.generate(x, **settings, cache_implementation="dynamic"),
    ]


# ---- diffusers ----


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


@check("diffusers", "Stable Diffusion's pipeline", tolerance=2e-2)
def _(device):
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
    ).to(device)
    pipeline.set_progress_bar_config(disable=True)
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


# ---- Graphs ----


def graph(device):
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(0, 12, (2, 40), generator=generator)
    return edges.to(device), torch.randn(12, 8, generator=generator).to(device)


@check("torch-geometric", "spmm with COO and CSR, and its reductions")
def _(device):
    from torch_geometric.utils import spmm, to_torch_coo_tensor, to_torch_csr_tensor

    edges, x = graph(device)
    coo = to_torch_coo_tensor(edges, size=12)
    csr = to_torch_csr_tensor(edges, size=12)
    return [
        spmm(coo, x),
        *(spmm(csr, x, reduce) for reduce in ("sum", "mean", "min", "max")),
    ]


@check("torch-geometric", "convolutions of a sparse adjacency, with gradients", tolerance=5e-3)
def _(device):
    from torch_geometric.nn import GCNConv, GINConv, SAGEConv
    from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

    edges, x = graph(device)
    found = []
    for make in (
        # GCNConv marks the tensor that it is given as coalesced: each layer has its own.
        lambda: to_torch_coo_tensor(edges, size=12).t(),
        lambda: to_torch_csr_tensor(edges.flip(0), size=12),
    ):
        for kind in (
            lambda: GCNConv(8, 4),
            lambda: SAGEConv(8, 4),
            lambda: GINConv(torch.nn.Linear(8, 4)),
        ):
            layer = seeded(kind).to(device)
            result = layer(x, make())
            result.square().sum().backward()
            found.append((result, [p.grad for p in layer.parameters()]))
    return found


@check("torch-geometric", "EdgeIndex: products with gradients")
def _(device):
    from torch_geometric import EdgeIndex

    edges, x = graph(device)
    order = (edges[0] * 12 + edges[1]).argsort()
    index = EdgeIndex(edges[:, order], sparse_size=(12, 12), sort_order="row")
    x = x.requires_grad_()
    found = [index.matmul(x, reduce=reduce) for reduce in ("sum", "mean", "amin", "amax")]
    torch.stack(found).square().sum().backward()
    return *found, x.grad


@check("torch-geometric", "batches of graphs, a pooling, a transformer layer", tolerance=5e-3)
def _(device):
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import TopKPooling, TransformerConv, global_max_pool

    edges, x = graph("cpu")
    batch = Batch.from_data_list([Data(x=x, edge_index=edges), Data(x=-x, edge_index=edges)])
    batch = batch.to(device)
    layer = seeded(TransformerConv, 8, 8, heads=2, concat=False).to(device)
    pool = seeded(TopKPooling, 8, ratio=0.5).to(device)
    y = layer(batch.x, batch.edge_index)
    y, _, _, groups, _, _ = pool(y, batch.edge_index, batch=batch.batch)
    return global_max_pool(y, groups)


# ---- Images ----


@check("kornia", "losses and metrics")
def _(device):
    from kornia import losses, metrics

    a, b = small.images(2).to(device), small.images(2).flip(0).to(device)
    return losses.ssim_loss(a, b, 5), losses.total_variation(a), metrics.psnr(a, b, 1.0)


@check("kornia", "augmentation", tolerance=5e-3)
def _(device):
    from kornia import augmentation

    # With parameters that are drawn on the CPU: devices draw others.
    flip = augmentation.RandomHorizontalFlip(p=1.0)
    turn = augmentation.RandomAffine((20.0, 20.0), p=1.0)
    x = small.images().to(device)
    return flip(x), turn(x)


@check("timm", "features, and a Swin transformer", tolerance=5e-3)
def _(device):
    import timm

    model = seeded(timm.create_model, "test_resnet", features_only=True).eval().to(device)
    swin = (
        seeded(
            timm.create_model,
            "swin_tiny_patch4_window7_224",
            img_size=32,
            window_size=4,
            embed_dim=16,
            depths=(1, 1),
            num_heads=(2, 4),
            num_classes=3,
        )
        .eval()
        .to(device)
    )
    with torch.no_grad():
        return model(small.images(1, 64).to(device)), swin(small.images().to(device))


@check("torchvision", "detectors: Faster R-CNN, RetinaNet, SSD, FCOS, Mask R-CNN")
def _():
    from torchvision.models import detection

    for make in (
        detection.fasterrcnn_mobilenet_v3_large_320_fpn,
        detection.retinanet_resnet50_fpn,
        detection.ssdlite320_mobilenet_v3_large,
        detection.fcos_resnet50_fpn,
        detection.maskrcnn_resnet50_fpn,
    ):
        model = (
            seeded(
                make, weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=64
            )
            if "ssd" not in make.__name__
            else seeded(make, weights=None, weights_backbone=None, num_classes=3)
        )
        model = model.eval().to("ocl")
        with torch.no_grad():
            found = model([small.images(1, 64)[0].to("ocl")])[0]
        assert found["boxes"].device.type == "ocl" and found["boxes"].isfinite().all()


@check("torchvision", "video, segmentation and optical flow", tolerance=5e-3)
def _(device):
    from torchvision.models import segmentation, video

    clips = noise(1, 3, 4, 32, 32).to(device)
    network = seeded(video.r3d_18, num_classes=3).eval().to(device)
    masks = (
        seeded(
            segmentation.lraspp_mobilenet_v3_large,
            weights=None,
            weights_backbone=None,
            num_classes=3,
        )
        .eval()
        .to(device)
    )
    with torch.no_grad():
        return network(clips), masks(small.images(1, 64).to(device))["out"]


@check("segmentation-models-pytorch", "FPN and DeepLabV3+, training", tolerance=1e-2)
def _(device):
    import segmentation_models_pytorch as smp

    model = seeded(smp.FPN, "resnet18", encoder_weights=None, classes=1, decoder_dropout=0.0)
    model = model.to(device)
    target = (small.images(2, 32, 1) > 0.5).float().to(device)
    loss = smp.losses.DiceLoss("binary")
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    found = small.fit(
        model, lambda m: loss(m(small.images(2, 32).to(device)), target), optimizer, 2
    )
    other = seeded(smp.DeepLabV3Plus, "resnet18", encoder_weights=None, classes=1).eval().to(device)
    return found, other(small.images(1, 64).to(device))


@check("open-clip-torch", "the contrastive loss and its gradients", tolerance=5e-3)
def _(device):
    import open_clip

    vision = dict(image_size=32, layers=1, width=64, patch_size=8)
    text = dict(context_length=8, vocab_size=50, width=64, heads=2, layers=1)
    model = seeded(open_clip.CLIP, 32, vision, text).to(device)
    images, words = small.images().to(device), torch.arange(16, device=device).reshape(2, 8)
    loss = open_clip.ClipLoss()(*model(images, words))
    loss.backward()
    return loss, model.visual.conv1.weight.grad


@check("monai", "inference by windows, and metrics", tolerance=5e-3)
def _(device):
    from monai.inferers import sliding_window_inference
    from monai.metrics import DiceMetric
    from monai.networks.nets import UNETR, SegResNet

    x = torch.rand(1, 1, 24, 24, 24, generator=torch.Generator().manual_seed(1)).to(device)
    model = seeded(SegResNet, init_filters=8, out_channels=2).eval().to(device)
    with torch.no_grad():
        found = sliding_window_inference(x, (16, 16, 16), 2, model, overlap=0.25)
        network = (
            seeded(
                UNETR, 1, 2, (16, 16, 16), feature_size=4, hidden_size=24, mlp_dim=32, num_heads=2
            )
            .eval()
            .to(device)
        )
        other = network(x[..., :16, :16, :16])
    hot = functional.one_hot(found.argmax(1), 2).movedim(-1, 1)
    return found, other, DiceMetric()(hot, (x > 0.5).long())


@check("vit-pytorch", "other vision transformers", tolerance=5e-3)
def _(device):
    from vit_pytorch.cct import CCT
    from vit_pytorch.max_vit import MaxViT

    cct = (
        seeded(
            CCT,
            img_size=32,
            embedding_dim=32,
            n_conv_layers=1,
            kernel_size=3,
            num_layers=2,
            num_heads=2,
            mlp_ratio=2,
            num_classes=3,
        )
        .eval()
        .to(device)
    )
    maximal = (
        seeded(
            MaxViT, num_classes=3, dim=16, dim_conv_stem=16, depth=(1, 1), dim_head=8, window_size=4
        )
        .eval()
        .to(device)
    )
    x = small.images().to(device)
    return cct(x), maximal(x)
