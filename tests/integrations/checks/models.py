"""Graphs, and networks for images, each tiny and with random weights."""

import torch
from torch.nn import functional

from tests.integrations import small
from tests.integrations.checklist import check
from tests.integrations.small import noise, seeded

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
