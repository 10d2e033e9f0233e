"""Torchvision's detection models with random weights: the same boxes as on the CPU, and losses.

In double precision, so that no rounding changes which box has the higher score."""

import copy

import pytest
import torch
from torch.testing import assert_close
from torchvision.models import detection

from tests.models import vision_on_cpu

vision_on_cpu.install()

FEW = {"num_classes": 4, "weights": None, "weights_backbone": None}
SMALL = {"min_size": 96, "max_size": 128}
MODELS = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": {
        **SMALL,
        "rpn_pre_nms_top_n_test": 60,
        "rpn_post_nms_top_n_test": 20,
        "rpn_pre_nms_top_n_train": 60,
        "rpn_post_nms_top_n_train": 20,
        # Nothing is drawn at random if all are taken.
        "rpn_batch_size_per_image": 10**6,
        "box_batch_size_per_image": 10**6,
    },
    "ssdlite320_mobilenet_v3_large": {"topk_candidates": 40, "detections_per_img": 20},
    "retinanet_resnet50_fpn": {
        **SMALL,
        "topk_candidates": 40,
        "detections_per_img": 20,
        "score_thresh": 0.0,
    },
}


def make(name):
    torch.manual_seed(0)
    model = getattr(detection, name)(**FEW, **MODELS[name]).double()
    for module in model.modules():  # what is random in training
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def images():
    rng = torch.Generator().manual_seed(1)
    sizes = ((3, 96, 128), (3, 80, 90))
    return [torch.rand(size, generator=rng, dtype=torch.float64) for size in sizes]


TARGETS = [
    {"boxes": torch.tensor([[10.0, 12, 60, 70], [30, 5, 90, 50]]), "labels": torch.tensor([1, 2])},
    {"boxes": torch.tensor([[5.0, 8, 70, 60]]), "labels": torch.tensor([3])},
]


def targets(device):
    return [
        {"boxes": t["boxes"].double().to(device), "labels": t["labels"].to(device)} for t in TARGETS
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_boxes(name):
    model = make(name).train()
    with torch.no_grad():
        # Batch norms get statistics: features that vanish would give all boxes one score.
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = None
        model(images(), targets("cpu"))
        model.eval()
        wanted = model(images())
        got = copy.deepcopy(model).ocl()([image.ocl() for image in images()])
    for here, there in zip(got, wanted, strict=True):
        assert len(there["boxes"]) > 5
        for key, value in there.items():
            assert_close(here[key].cpu(), value, rtol=1e-5, atol=1e-4, msg=lambda m, k=key: k + m)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_training(name):
    model = make(name).train()
    on_device = copy.deepcopy(model).ocl()
    wanted = model(images(), targets("cpu"))
    got = on_device([image.ocl() for image in images()], targets("ocl"))
    sum(wanted.values()).backward()
    sum(got.values()).backward()
    assert got.keys() == wanted.keys()
    for key, loss in wanted.items():
        assert_close(got[key].detach().cpu(), loss.detach(), rtol=1e-5, atol=1e-6)
    # Together: some gradients are sums of rounding errors only, as those of biases before norms.
    got, wanted = (
        torch.cat([p.grad.cpu().flatten() for p in m.parameters() if p.grad is not None])
        for m in (on_device, model)
    )
    assert (got - wanted).norm() < 1e-7 * wanted.norm()
