"""Rows of the device table: which one a device has, and what tiles its registers leave."""

import json
import re

import pytest

from tests.fresh import run_script
from tests.silicon import capture, driver, profiles

ROWS = {
    "adreno-750": "Qualcomm Adreno",
    "arc-a": "Intel Arc A (Xe-HPG)",
    "arc-b": "Intel Xe2",
    "asahi": "other GPU",
    "gen9": "Intel Gen9",
    "gfx1030": "AMD RDNA 1/2",
    "gfx1100": "AMD RDNA 3/4",
    "gfx1201": "AMD RDNA 3/4",
    "gfx803": "AMD GCN",
    "gfx906": "AMD GCN 5.1",
    "gfx90a": "AMD CDNA",
    "gfx942": "AMD CDNA",
    "lunar-lake": "Intel Xe2",
    "mali-g52": "Arm Mali Bifrost",
    "mali-g610": "Arm Mali Valhall",
    "mali-g720": "Arm Mali Valhall",
    "max-1550": "Intel Data Center GPU Max",
    "videocore": "other GPU",
    "xe-lp": "Intel Xe-LP",
}
SHOW_ROW = """
import json
import torch
from torch_ocl import _C
registers = torch.ocl.get_device_properties(0).registers_per_item
print(json.dumps([_C.device_row(0)["device_class"], registers]))
"""


@pytest.fixture
def run(tmp_path):
    """Runs a script with a device of a profile; returns its output."""

    def run(profile, script):
        environment = driver.environment(profile, tmp_path, tmp_path / "captured")
        done = run_script(script, environment=environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


def changed(base, **fields):
    """A profile with other answers; None leaves one out."""
    found = {**profiles.load(base).fields, **fields}
    return profiles.Profile(base, {key: value for key, value in found.items() if value is not None})


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_device_finds_its_row(run, name):
    assert json.loads(run(profiles.load(name), SHOW_ROW))[0] == ROWS[name]


@pytest.mark.parametrize(
    ("profile", "row"),
    [
        # Drivers without the number of the architecture; names that Mesa gives.
        *(
            (changed(name, intel_architecture=None), ROWS[name])
            for name in ("gen9", "xe-lp", "arc-a", "arc-b", "lunar-lake", "max-1550")
        ),
        (
            changed("gfx1030", name="AMD Radeon RX 6800 XT (radeonsi, navi21, LLVM 19, DRM 3.57)"),
            "AMD RDNA 1/2",
        ),
        (
            changed("gfx803", name="AMD Radeon RX 580 (radeonsi, polaris10, LLVM 19, DRM 3.57)"),
            "AMD GCN",
        ),
        (changed("gfx90a", vendor="NVIDIA Corporation"), "NVIDIA"),
    ],
)
def test_rows_are_found_by_names_too(run, profile, row):
    assert json.loads(run(profile, SHOW_ROW))[0] == row


def test_registers_are_the_row_s(run):
    assert json.loads(run(profiles.load("gen9"), SHOW_ROW))[1] == 64
    assert json.loads(run(profiles.load("gfx1030"), SHOW_ROW))[1] == 255


WORK = """
import torch
for m, n, k in ((1024, 1024, 1024), (64, 4096, 512), (4096, 128, 2048), (100, 60, 70)):
    torch.empty(m, k, device="ocl") @ torch.empty(k, n, device="ocl")
for channels, side in ((64, 56), (256, 14), (16, 112)):
    torch.nn.functional.conv2d(torch.empty(8, channels, side, side, device="ocl"),
                               torch.empty(channels, channels, 3, 3, device="ocl"))
for width in (32, 64, 128):
    query = torch.empty(2, 4, 256, width, device="ocl", requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
"""
TILES = {
    "gemm/tiled.cl": "BM BN BK TM TN SLICES",
    "conv/tiled.cl": "BM BN BK TM TN SLICES",
    "attention/forward_local.cl": "SIDE RQ RK CD CV",
    "attention/backward_local.cl": "SIDE RQ RK CD CV",
}
#: Tiles of an H100 are chosen by what was measured there.
NVIDIA_TILES = {
    "attention/backward_local.cl: 16 4 4 4 4",
    "attention/backward_local.cl: 8 8 4 1 1",
    "attention/backward_local.cl: 8 8 4 2 2",
    "attention/backward_local.cl: 8 8 4 4 4",
    "attention/forward_local.cl: 8 8 4 1 1",
    "attention/forward_local.cl: 8 8 4 2 2",
    "attention/forward_local.cl: 8 8 4 4 4",
    "conv/tiled.cl: 128 32 8 8 4 1",
    "conv/tiled.cl: 64 64 16 8 8 4",
    "gemm/tiled.cl: 32 64 32 4 8 4",
    "gemm/tiled.cl: 64 128 16 8 8 2",
    "gemm/tiled.cl: 64 64 32 8 8 4",
}


def tiles(folder):
    """The tiles of the programs that were captured: "file: sizes"."""
    found = set()
    for program in capture.read(folder):
        if program.file in TILES:
            defines = dict(re.findall(r"-D(\w+)=(\S+)", " ".join(program.options)))
            sizes = " ".join(defines[name] for name in TILES[program.file].split())
            found.add(f"{program.file}: {sizes}")
    return found


def test_nvidia_s_tiles_are_those_that_were_measured(run, tmp_path):
    nvidia = changed(
        "gfx90a",
        vendor="NVIDIA Corporation",
        compiler="none",
        compute_units=132,
        extensions=[
            "cl_khr_fp64",
            "cl_khr_global_int32_base_atomics",
            "cl_nv_device_attribute_query",
        ],
    )
    run(nvidia, WORK)
    assert tiles(tmp_path / "captured") == NVIDIA_TILES


NORMS = """
import torch
for dtype in (torch.float32, torch.float16):
    for length in (768, 2048, 4096):
        x = torch.empty(512, length, device="ocl", dtype=dtype, requires_grad=True)
        w = torch.empty(length, device="ocl", dtype=dtype, requires_grad=True)
        torch.nn.functional.layer_norm(x, (length,), w, w).sum().backward()
"""


@pytest.mark.parametrize(
    ("name", "registers"), [("gfx803", 128), ("gfx90a", 255), ("gfx1030", 255), ("gen9", 64)]
)
def test_rows_are_held_by_as_many_work_items_as_registers_ask_for(run, tmp_path, name, registers):
    """Its values, of which compilers keep two each, leave room for addresses."""
    run(profiles.load(name), NORMS)
    held = 0
    for program in capture.read(tmp_path / "captured"):
        if program.file.startswith("norm/rows_registers"):
            defines = dict(re.findall(r"-D(\w+)=(\S+)", " ".join(program.options)))
            elements = int(defines["ROW_VECTORS"]) * int(defines["WIDTH"])
            of_each = 4 if "backward" in program.file else int(defines["ROWS"]) + 2
            assert 2 * elements * of_each + 24 <= registers, program.options
            held += 1
    assert held > 0


def test_registers_leave_smaller_tiles(run, tmp_path):
    run(profiles.load("gfx90a"), WORK)
    found = tiles(tmp_path / "captured")
    # 8 x 8 scores of a work-item spilled 240 of 256 registers.
    assert not any("attention/" in tile and ": 8 8 4" in tile for tile in found)
    assert not any(": 128 128 8 16 8" in tile or ": 256 128 8" in tile for tile in found)
