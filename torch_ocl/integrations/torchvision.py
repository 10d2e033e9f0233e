"""torchvision's ops on `ocl`: nms, roi_align and the others, with their gradients.

Their schemas are in torchvision's own library. Wheels for CUDA have one that a CPU build of PyTorch
can't load: the ops are missing then. Here the schemas are declared instead, so that the ops work on
`ocl`; on the CPU they raise what the loader said. With TORCH_OCL_INTEGRATIONS=off they are not
declared: kernels are added to ops that torchvision has.
"""

import contextlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import torch

from torch_ocl.integrations import _choice

_POOLED = "SymInt pooled_height, SymInt pooled_width"
_SHAPE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_CONVOLUTION = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
#: As torchvision's library declares them. Not all have functions for `ocl`.
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    f"roi_align(Tensor input, Tensor rois, float spatial_scale, {_POOLED}, int sampling_ratio, "
    "bool aligned) -> Tensor",
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, "
    f"float rois_scale, int rois_zero_point, float spatial_scale, {_POOLED}, int sampling_ratio, "
    "bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, {_POOLED}, {_SHAPE}, "
    "int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, float spatial_scale, {_POOLED}) -> (Tensor, Tensor)",
    "_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, "
    f"{_POOLED}, {_SHAPE}) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, float spatial_scale, {_POOLED}, "
    "int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, "
    f"float spatial_scale, {_POOLED}, int sampling_ratio, {_SHAPE}) -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, {_POOLED}) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, "
    f"float spatial_scale, {_POOLED}, {_SHAPE}) -> Tensor",
    f"deform_conv2d({_CONVOLUTION}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_CONVOLUTION}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
#: Under autocast they run in float32, as with CUDA.
_IN_FLOAT = ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")

# Registrations last as long as their libraries.
_libraries: list[torch.library.Library] = []


def _extension(module: ModuleType) -> None:
    """torchvision.extension, which loads the library, or not."""
    if not module._has_ops():
        if _choice.mode() == "off":
            return
        _declare(_why_not_loaded(module))
        # It registers shapes and gradients in Python if there are ops.
        module._has_ops = lambda: True
    register()


def _why_not_loaded(module: ModuleType) -> str:
    """The loader's words about torchvision's library. Upstream keeps it to itself."""
    try:
        torch.ops.load_library(module._get_extension_path("_C"))
    except (AttributeError, ImportError, OSError) as error:
        # torch names the file alone, and its cause what the file lacks.
        return str(error.__cause__ or error).strip()
    return "the reason is unknown"


def _declare(reason: str) -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        name = schema.partition("(")[0]
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
            # Behind a function for the CPU that a program adds.
            library.impl(name, _missing(name, reason), "CompositeExplicitAutograd")
    if not hasattr(torch.ops.torchvision, "_cuda_version"):
        library.define("_cuda_version() -> int")
        library.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")
    _libraries.append(library)


def _missing(name: str, reason: str) -> Callable[..., NoReturn]:
    """The op on the CPU."""

    def missing(*arguments: Any) -> NoReturn:
        # As cpu or cu130: PyTorch's index has a folder of that name.
        build = torch.__version__.partition("+")[2]
        known = build == "cpu" or build.startswith(("cu", "rocm"))
        remedy = (
            "pip install --force-reinstall --no-deps torchvision --index-url "
            f"https://download.pytorch.org/whl/{build}"
            if known
            else "build it from source beside this torch"
        )
        raise RuntimeError(
            f"torchvision::{name} has no function for the CPU here, since torchvision's compiled "
            f"part can't be loaded: {reason}. It has to be of the same build as torch "
            f"{torch.__version__}: {remedy}. On ocl tensors the op works as it is."
        )

    return missing


def register() -> None:
    """Makes the kernels those of `ocl` tensors. Warns if torchvision's schemas are others than
    torch_ocl knows. Does not initialise OpenCL."""
    from torch_ocl import _C

    try:
        _C.register_vision_ops()
    except RuntimeError as error:
        text = f"torch_ocl knows other ops than this torchvision has: {error}"
        with contextlib.suppress(Warning):  # an error would be one of `import torchvision`
            warnings.warn(text.partition("\n")[0], stacklevel=2)
        return
    library = torch.library.Library("torchvision", "IMPL")
    for name in _IN_FLOAT:
        library.impl(name, _in_float(name), "AutocastPrivateUse1")
    _libraries.append(library)


_AUTOCAST_KEYS = torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastPrivateUse1
) | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def _in_float(name: str) -> Callable[..., Any]:
    """The op with its tensors in float32; a result has the first one's dtype."""
    op = getattr(torch.ops.torchvision, name)

    def autocast(first: torch.Tensor, *arguments: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEYS):
            result = op(*(_widened(argument) for argument in (first, *arguments)))
        if isinstance(result, tuple):
            return result[0].to(first.dtype), *result[1:]
        return result.to(first.dtype) if result.is_floating_point() else result

    return autocast


def _widened(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor) and argument.is_floating_point():
        return argument if argument.dtype == torch.float64 else argument.float()
    return argument


PATCHES = {"torchvision.extension": _extension}
