"""Images: torchvision, timm, kornia and others."""

import torch

from tests.integrations import small
from tests.integrations.checklist import check


@check("torchvision", "a ResNet and transforms of tensors")
def _(device):
    from torchvision.models import resnet18
    from torchvision.transforms import v2

    torch.manual_seed(1)
    model = resnet18(num_classes=5).eval().to(device)
    prepare = v2.Compose(
        [v2.Resize(40, antialias=True), v2.CenterCrop(32), v2.Normalize([0.5] * 3, [0.2] * 3)]
    )
    return model(prepare(small.images().to(device)))


@check("torchvision", "nms, roi_align, deform_conv2d")
def _():
    from torchvision import ops

    # Torchvision's own functions for the CPU can't be loaded everywhere.
    from tests.ops import vision_reference

    generator = torch.Generator().manual_seed(3)
    corners = torch.rand(20, 2, generator=generator) * 20
    boxes = torch.cat([corners, corners + 4 + 8 * torch.rand(20, 2, generator=generator)], 1)
    scores, image = torch.rand(20, generator=generator), small.images(1)
    offsets = torch.randn(1, 18, 30, 30, generator=generator)
    weight = torch.randn(4, 3, 3, 3, generator=generator)

    kept = ops.nms(boxes.ocl(), scores.ocl(), 0.3).cpu()
    torch.testing.assert_close(kept, vision_reference.nms(boxes, scores, 0.3))
    groups = torch.arange(20) % 3
    alone = torch.cat(
        [
            k[vision_reference.nms(boxes[k], scores[k], 0.3)]
            for k in ((groups == g).nonzero()[:, 0] for g in range(3))
        ]
    )
    kept = ops.batched_nms(boxes.ocl(), scores.ocl(), groups.ocl(), 0.3).cpu()
    torch.testing.assert_close(kept.sort().values, alone.sort().values)
    numbered = torch.cat([torch.zeros(20, 1), boxes], 1)
    torch.testing.assert_close(
        ops.roi_align(image.ocl(), [boxes.ocl()], 4).cpu(),
        vision_reference.roi_align(image, numbered, 1.0, (4, 4)),
    )
    torch.testing.assert_close(
        ops.deform_conv2d(image.ocl(), offsets.ocl(), weight.ocl()).cpu(),
        vision_reference.deform_conv2d(image, offsets, weight, None, (1, 1), (0, 0), (1, 1), None),
        atol=1e-4,
        rtol=1e-4,
    )


@check("torchvision", "boxes, masks, losses")
def _(device):
    from torchvision import ops

    a = torch.tensor([[0.0, 0, 4, 4], [2, 2, 6, 6], [5, 5, 9, 9]], device=device)
    masks = (small.images(3, 8, 1)[:, 0] > 0.8).to(device)
    x = small.points()[0].to(device)
    return (
        ops.box_iou(a, a.flip(0)),
        ops.generalized_box_iou(a, a.flip(0)),
        ops.box_convert(a, "xyxy", "cxcywh"),
        ops.masks_to_boxes(masks),
        ops.sigmoid_focal_loss(x, (x > 0).float(), reduction="mean"),
    )


def timm_model(name, device, **arguments):
    import timm

    torch.manual_seed(1)
    return timm.create_model(name, num_classes=5, **arguments).eval().to(device)


@check("timm", "networks", tolerance=5e-3)
def _(device):
    with torch.no_grad():
        return [
            timm_model("test_resnet", device)(small.images(2, 64).to(device)),
            timm_model("test_vit", device, img_size=64)(small.images(2, 64).to(device)),
            timm_model("test_convnext", device)(small.images(2, 64).to(device)),
            timm_model("test_efficientnet", device)(small.images(2, 64).to(device)),
        ]


@check("timm", "training with mixup and an average of the model", tolerance=5e-3)
def _(device):
    import numpy as np
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.utils import ModelEmaV3

    np.random.seed(0)
    model = small.convolutions().to(device)
    average = ModelEmaV3(model, decay=0.5)
    mix = Mixup(mixup_alpha=0.8, num_classes=3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for _ in range(3):
        x, soft = mix(small.images(4).to(device), torch.tensor([0, 1, 2, 0], device=device))
        loss = SoftTargetCrossEntropy()(model(x), soft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
        found.append(loss)
    return found, average.module(small.images().to(device))


@check("kornia", "filters and colours")
def _(device):
    from kornia import color, filters, morphology

    x = small.images().to(device)
    return (
        filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)),
        filters.sobel(x),
        filters.median_blur(x, (3, 3)),
        color.rgb_to_hsv(x),
        color.rgb_to_lab(x),
        morphology.dilation(x, torch.ones(3, 3, device=device)),
    )


@check("kornia", "geometry", tolerance=5e-3)
def _(device):
    from kornia import geometry

    x = small.images().to(device)
    angle = torch.tensor([20.0, -35.0], device=device)
    corners = torch.tensor([[[0.0, 0], [31, 0], [31, 31], [0, 31]]], device=device)
    moved = corners + torch.tensor([[[2.0, 1], [-3, 2], [-1, -4], [3, -2]]], device=device)
    matrix = geometry.get_perspective_transform(corners, moved)
    return (
        geometry.rotate(x, angle),
        geometry.warp_perspective(x[:1], matrix, (32, 32)),
        geometry.pyrdown(x),
    )


@check("segmentation-models-pytorch", "a U-Net and its losses", tolerance=5e-3)
def _(device):
    import segmentation_models_pytorch as smp

    torch.manual_seed(1)
    model = smp.Unet("resnet18", encoder_weights=None, classes=2).eval().to(device)
    found = model(small.images(1, 64).to(device))
    target = (small.images(1, 64, 1)[:, 0] > 0.5).long().to(device)
    return found, smp.losses.DiceLoss("multiclass")(found, target)


YOLO = "yolo11n.yaml"


def with_nms_on_cpu():
    """Torchvision's library for the CPU can't be loaded everywhere."""
    import torchvision  # noqa: F401 - which declares the op

    from tests.ops import vision_reference

    if not torch._C._dispatch_has_kernel_for_dispatch_key("torchvision::nms", "CPU"):
        torch.library.impl("torchvision::nms", "CPU", vision_reference.nms)


def yolo_data(folder):
    """Eight images of bright squares, with their boxes."""
    from PIL import Image

    for part in ("images", "labels"):
        (folder / part).mkdir()
    generator = torch.Generator().manual_seed(0)
    for index in range(8):
        x, y = (int(v) for v in torch.randint(4, 36, (2,), generator=generator))
        pixels = torch.zeros(64, 64, 3, dtype=torch.uint8)
        pixels[y : y + 24, x : x + 24] = 255
        Image.fromarray(pixels.numpy()).save(folder / "images" / f"{index}.png")
        centre = f"{(x + 12) / 64} {(y + 12) / 64} 0.375 0.375"
        (folder / "labels" / f"{index}.txt").write_text(f"0 {centre}\n")
    settings = folder / "data.yaml"
    settings.write_text(f"path: {folder}\ntrain: images\nval: images\nnames: {{0: square}}\n")
    return settings


@check(
    "ultralytics",
    "YOLO: predict",
    integration="ultralytics",
    tolerance=5e-3,
)
def _(device):
    from ultralytics import YOLO as Model

    with_nms_on_cpu()
    torch.manual_seed(1)
    found = Model(YOLO).predict(
        small.images(1, 64), device=device, conf=0.0001, max_det=20, verbose=False
    )[0]
    assert found.boxes.data.device.type == device
    return found.boxes.conf.sort().values


@check("ultralytics", "device=0, and by its index", integration="ultralytics", mode="always")
def _():
    from ultralytics import YOLO as Model
    from ultralytics.utils.torch_utils import select_device

    assert select_device("0", verbose=False) == torch.device("ocl", 0)
    torch.manual_seed(1)
    for device in (0, "ocl:0"):
        found = Model(YOLO).predict(small.images(1, 64), device=device, verbose=False)[0]
        assert found.boxes.data.device == torch.device("ocl", 0)


@check("ultralytics", "YOLO: masks, poses and classes", integration="ultralytics")
def _():
    from ultralytics import YOLO as Model

    for name in ("yolo11n-seg.yaml", "yolo11n-pose.yaml", "yolo11n-cls.yaml"):
        torch.manual_seed(1)
        found = Model(name).predict(small.images(1, 64), device="ocl", conf=1e-4, verbose=False)[0]
        part = found.probs if "cls" in name else found.boxes
        assert part.data.device.type == "ocl" and part.data.isfinite().all()


@check(
    "ultralytics",
    "YOLO: train, with AMP, and val",
    integration="ultralytics",
)
def _():
    import tempfile
    from pathlib import Path

    from ultralytics import YOLO as Model

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {"data": str(yolo_data(folder)), "imgsz": 64, "device": "ocl", "workers": 0}
        quiet = {"project": str(folder / "runs"), "plots": False, "verbose": False}
        others = {"deterministic": False}  # a setting of the whole process
        model = Model(YOLO)
        model.train(**settings, **quiet, epochs=1, batch=4, amp="fp16", val=False, **others)
        assert model.trainer.device.type == "ocl" and model.trainer.scaler.is_enabled()
        found = model.val(**settings, **quiet)
        assert 0 <= found.box.map <= 1


@check(
    "ultralytics", "the default device", integration="ultralytics", mode="always", launches=False
)
def _():
    from ultralytics.utils.torch_utils import select_device

    assert select_device("", verbose=False).type == "ocl"
    assert select_device("cpu", verbose=False).type == "cpu"
    assert select_device(torch.device("ocl"), verbose=False) == torch.device("ocl", 0)


@check("lpips", "the distance of images", tolerance=5e-3)
def _(device):
    import lpips

    torch.manual_seed(1)
    net = lpips.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False).to(device)
    a, b = small.images(2, 64).to(device).split(1)
    return net(a, b)


@check("vit-pytorch", "vision transformers")
def _(device):
    from vit_pytorch import SimpleViT, ViT

    torch.manual_seed(1)
    size = dict(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64)
    return [kind(**size).eval().to(device)(small.images().to(device)) for kind in (ViT, SimpleViT)]


@check("open-clip-torch", "images and text", tolerance=5e-3)
def _(device):
    import open_clip

    torch.manual_seed(1)
    vision = dict(image_size=32, layers=2, width=64, patch_size=8)
    text = dict(context_length=8, vocab_size=50, width=64, heads=2, layers=2)
    model = open_clip.CLIP(32, vision, text).eval().to(device)
    return model(small.images().to(device), torch.arange(16, device=device).reshape(2, 8))[:2]


@check("monai", "a network, losses and transforms", tolerance=5e-3)
def _(device):
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet
    from monai.transforms import RandGaussianNoise, Rotate

    torch.manual_seed(1)
    model = UNet(3, 1, 2, (8, 16), (2,), num_res_units=1).eval().to(device)
    x = torch.rand(1, 1, 16, 16, 16, generator=torch.Generator().manual_seed(1)).to(device)
    found = model(x)
    loss = DiceCELoss(to_onehot_y=True, softmax=True)(found, (x > 0.5).long())
    noisy = RandGaussianNoise(prob=1.0).set_random_state(0)(x[0].cpu()).to(device)
    return found, loss, Rotate(0.3)(noisy[:, 0])
