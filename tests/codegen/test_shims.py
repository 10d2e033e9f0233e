"""C functions for ops that AOTInductor's C++ calls: as many as torch has for its own devices."""

import ctypes
import re
from pathlib import Path

import torch

import torch_ocl

PACKAGE = Path(torch_ocl.__file__).parent


def functions(header, device):
    text = header.read_text(encoding="utf-8")
    return set(re.findall(rf"aoti_torch_{device}_(\w+)\(", text))


def test_the_list():
    theirs = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch/generated"
    ours = functions(PACKAGE / "include/torch_ocl/aoti/c_shim_ocl.h", "ocl")
    for device in ("cuda", "mps"):
        wanted = functions(theirs / f"c_shim_{device}.h", device)
        assert len(wanted) > 50
        # The private ops of one device are none of another one's.
        assert {name for name in wanted - ours if device not in name and "mps" not in name} == set()


def test_the_library_has_them():
    library = ctypes.CDLL(str(PACKAGE / "libtorch_ocl.so"))
    headers = PACKAGE / "include/torch_ocl/aoti"
    for header in ("c_shim_ocl.h", "shim.h"):
        for name in functions(headers / header, "ocl"):
            assert hasattr(library, f"aoti_torch_ocl_{name}"), name
