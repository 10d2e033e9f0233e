"""Lets torchvision be imported beside a torch that its compiled library does not fit (a CPU build).

Torchvision's operators (nms, roi_align, ...) live in that library; on import torchvision gives them
shape functions, and fails if nobody declared them. No network of the tests calls one, so that any
signature serves.
"""

import importlib.util
import os
import pathlib

import torch

BOXES = ("nms", "qnms")
POOLINGS = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def _library_fits():
    """Whether torchvision's own library can be loaded, which declares the operators."""
    found = importlib.util.find_spec("torchvision")
    folder = pathlib.Path(found.origin).parent if found else pathlib.Path()
    try:
        for path in folder.glob("_C.*"):
            torch.ops.load_library(path)
            return True
    except OSError:
        pass
    return False


if not _library_fits():
    _library = torch.library.Library("torchvision", "DEF")
    for _name in (*BOXES, *POOLINGS, *(f"_{pooling}_backward" for pooling in POOLINGS)):
        _library.define(f"{_name}(Tensor input) -> Tensor")
