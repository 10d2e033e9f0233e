"""torch.nn.attention.flex_attention: its list of devices. Eager, forward and backward: what it
compiles needs Inductor, which has no code for `ocl`."""

from types import ModuleType

from torch_ocl.integrations._patches import admit


def _flex_attention(module: ModuleType) -> None:
    admit(module, "_validate_device", {"cuda", "cpu", "xpu"})


PATCHES = {"torch.nn.attention.flex_attention": _flex_attention}
