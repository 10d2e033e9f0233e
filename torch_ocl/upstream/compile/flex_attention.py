"""torch.nn.attention.flex_attention: its list of devices. The kernels that it takes under
torch.compile are those of torch_ocl/inductor/templates/flex.py."""

from types import ModuleType

from torch_ocl.integrations._patches import admit


def _flex_attention(module: ModuleType) -> None:
    admit(module, "_validate_device", {"cuda", "cpu", "xpu"})


PATCHES = {"torch.nn.attention.flex_attention": _flex_attention}
