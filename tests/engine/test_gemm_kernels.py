"""Every kernel of matrix products and every tile, whatever this device would choose."""

import os
from pathlib import Path

import pytest
import torch

import torch_ocl
from tests import fresh
from tests.as_gpu import UNVECTORISED
from tests.dtypes import chosen
from tests.ops import products

ROOT = Path(__file__).resolve().parents[2]
IMPORT = "from tests.ops import products"
# The checks that run_script() runs.
EVERY_SHAPE, EVERY_LAYOUT = [products.check_every_shape], [products.check_every_layout]
ONE_PRODUCT, FEW_LONG_SUMS = [products.check_one_product], [products.check_few_long_sums]
MANY_TILES = [products.check_many_tiles]
IMPLEMENTATIONS = ["small", "packed", "skinny_axpy", "skinny_dot", "direct"]


FEW = "float32,bfloat16,complex64,int32"
OTHERS = "float64,float16,complex128,int8,int16,int64,uint8"


def test_packed_in_blocks():
    """Problems larger than the workspace are packed block by block."""
    run_script(EVERY_SHAPE, chosen(FEW), TORCH_OCL_GEMM="packed", TORCH_OCL_GEMM_WORKSPACE="150000")


@pytest.mark.parametrize("dtypes", [FEW, pytest.param(OTHERS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_every_implementation(name, dtypes):
    """On this device most are never chosen by themselves."""
    on_cpu = torch.ocl.get_device_properties(0).type == "cpu"
    with torch_ocl.testing.force(gemm=name), torch_ocl.testing.dispatches() as lines:
        products.check_every_shape(chosen(dtypes))
    trace = "\n".join(lines)
    assert f": {name} runs" in trace or not on_cpu and f": {name} refuses: only for CPU" in trace


@pytest.mark.parametrize("dtypes", [FEW, pytest.param(OTHERS, marks=pytest.mark.slow)])
def test_tiled(dtypes):
    """In a process of its own, whose driver compiles it in seconds."""
    environment = {"TORCH_OCL_GEMM": "tiled", "TORCH_OCL_VERBOSE": "dispatch"}
    trace = run_script(EVERY_SHAPE, chosen(dtypes), **environment)
    assert ": tiled runs" in trace


# An x86 processor may lack some of its instructions.
@pytest.mark.parametrize("without", ["", "amx", "amx,bf16_dot"])
def test_bfloat16_without_its_instruction(without):
    """By AMX's tiles, by AVX512-BF16's panels of pairs, or by panels of floats."""
    run_script(EVERY_SHAPE, "bfloat16", TORCH_OCL_GEMM="packed", TORCH_OCL_WITHOUT=without)


@pytest.mark.parametrize("without", ["", "amx", "amx,int8_dot"])
def test_int8_with_and_without_its_instruction(without):
    """By AMX's tiles, by AVX512-VNNI's panels of four, or by panels of ints."""
    run_script(EVERY_SHAPE, "int8", TORCH_OCL_GEMM="packed", TORCH_OCL_WITHOUT=without)


def test_float32_by_the_compilers_loop():
    """Where the processor has no AVX-512, or the driver compiles no assembly."""
    run_script(EVERY_SHAPE, "float32", TORCH_OCL_GEMM="packed", TORCH_OCL_WITHOUT="avx512")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "m, n, k", [(5, 32, 64), (8, 50, 96), (31, 333, 257), (64, 1000, 40), (129, 95, 4129)]
)
def test_few_rows_of_bfloat16(m, n, k, turned):
    """AMX takes a linear layer's weight as it lies: with columns and a sum that fill no tile, an
    addend, and the transposed result."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(s, k, generator=generator).bfloat16() for s in (m, n))
    addend = torch.randn(m, n, generator=generator).bfloat16()
    wanted = x.double() @ weight.double().t() + addend.double()
    x, weight, addend = (t.to("ocl") for t in (x, weight, addend))
    if turned:
        got = torch.addmm(addend.t(), weight, x.t()).t()
    else:
        got = torch.addmm(addend, x, weight.t())
    bound = 2**-8 * wanted.abs() + 2**-16 * k**0.5
    assert ((got.cpu().double() - wanted).abs() <= bound).all()


def test_few_columns_side_by_side():
    """A matrix of many rows times one of few columns that lie side by side: the columns are copied
    for dot products."""
    with torch_ocl.testing.dispatches() as lines:
        a, b = torch.randn(640, 700), torch.randn(700, 40)
        torch.testing.assert_close((a.to("ocl") @ b.to("ocl")).cpu(), a @ b, rtol=1e-4, atol=1e-4)
    if torch.ocl.get_device_properties(0).type == "cpu":
        assert "skinny_dot runs" in "\n".join(lines)


@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("size", [(20, 66, 35), (17, 4096, 40), (100, 63, 130), (300, 200, 64)])
def test_int8_at_its_ends(size, transposed):
    """The instruction takes one operand without a sign; -128 times -128 is the largest product."""
    m, k, n = size
    generator = torch.Generator().manual_seed(0)
    ends = torch.tensor([-128, 127, -1, 0], dtype=torch.int8)
    for most in (1, 4):
        a, b = (ends[torch.randint(most, shape, generator=generator)] for shape in ((m, k), (k, n)))
        given = [
            (x.t().contiguous().to("ocl").t() if turn else x.to("ocl"))
            for x, turn in zip((a, b), transposed, strict=True)
        ]
        wanted = (a.long() @ b.long()).int()
        assert torch.equal(torch._int_mm(*given).cpu(), wanted)
        assert torch.equal((given[0] @ given[1]).cpu(), wanted.to(torch.int8))


def test_bfloat16_of_any_value():
    a, b = torch.randn(40, 70).bfloat16(), torch.randn(70, 50).bfloat16()
    a[3, 7], a[5, 69], b[11, 4], b[12, 9] = torch.inf, torch.nan, -torch.inf, 0
    a[:, 12] = torch.inf  # times 0: NaN
    expected = a.float() @ b.float()
    actual = (a.to("ocl") @ b.to("ocl")).cpu()
    torch.testing.assert_close(actual, expected.bfloat16(), equal_nan=True)


# Those of gemm_tiled.cpp, gemm_tensor_core.cpp and gemm_tensor_core_f64.cpp.
TILES = [
    ("32x64x32", "float32"),
    ("16x16x8", "complex128"),
]
MORE_TILES = [
    ("64x64x16", "float32"),
    ("32x32x32", "float32,bfloat16,float16"),
    ("256x128x8", "float32"),
    ("128x128x8", "float32"),
    ("64x128x16", "float32"),
    ("64x64x32", "float32,int32"),
    ("128x16x16", "float32"),
    ("32x32x8", "int8,float64,complex64,complex128"),
    ("64x128x8", "float32,float64"),
    ("64x64x8", "float64,complex64"),
]
# And which of WITHOUT leave Hopper that tile.
WITHOUT = ["", "assembled_local_memory", "warpgroup_mma"]
TENSOR_CORE_TILES = [
    ("tensor_core", "float16,bfloat16", "128x256x64", WITHOUT[:1]),
    ("tensor_core", "float16,bfloat16", "128x192x64", WITHOUT[:1]),
    ("tensor_core", "float16,bfloat16", "128x128x64", WITHOUT[:1]),
    ("tensor_core", "float16,bfloat16", "128x128x32", WITHOUT[1:]),
    ("tensor_core", "float16,bfloat16", "64x128x64", WITHOUT[:2]),
    ("tensor_core", "float16,bfloat16", "64x64x64", WITHOUT),
    ("tensor_core", "int8,uint8", "", WITHOUT[:2]),
    ("tensor_core", "int8", "128x256x128", WITHOUT[:1]),
    ("tensor_core", "int8", "128x192x128", WITHOUT[:1]),
    ("tensor_core", "int8", "128x128x128", WITHOUT[:1]),
    ("tensor_core", "uint8", "64x128x128", WITHOUT[:2]),
    ("tensor_core_f64", "float64", "128x128x8", WITHOUT),
    ("tensor_core_f64", "float64", "64x128x8", WITHOUT),
    ("tensor_core_f64", "float64", "64x64x16", WITHOUT),
    ("tensor_core_f64", "float64", "32x64x16", WITHOUT),
    ("tensor_core_f64", "float64", "32x32x16", WITHOUT),
]


def hopper():
    return torch.ocl.get_device_properties(0).has_warpgroup_mma


# Large unrolled kernels take some drivers for CPUs seconds each to compile.
@pytest.mark.parametrize(
    "tile, dtypes", TILES + [pytest.param(*tile, marks=pytest.mark.slow) for tile in MORE_TILES]
)
def test_every_tile(tile, dtypes):
    trace = run_every_layout(dtypes, TORCH_OCL_GEMM="tiled", TORCH_OCL_GEMM_TILE=tile)
    assert ": tiled runs" in trace


@pytest.mark.slow
@pytest.mark.parametrize("without", WITHOUT)
@pytest.mark.parametrize("name, dtypes, tile, left_by", TENSOR_CORE_TILES)
def test_every_tile_of_tensor_cores(name, dtypes, tile, left_by, without):
    """Elsewhere they have to say why not, and the others compute."""
    environment = {"TORCH_OCL_GEMM": name, "TORCH_OCL_GEMM_TILE": tile}
    there = torch.ocl.get_device_properties(0).has_tensor_cores
    checks = EVERY_LAYOUT + MANY_TILES if there else ONE_PRODUCT
    dtypes = dtypes if there else dtypes.split(",")[0]
    environment |= {"TORCH_OCL_VERBOSE": "dispatch,build", "TORCH_OCL_WITHOUT": without}
    trace = run_script(checks, dtypes, **environment)
    if not there:
        assert f": {name} refuses: the device has no tensor cores of NVIDIA" in trace
    elif "int8" in dtypes and (without == "warpgroup_mma" or not hopper()):
        assert f": {name} refuses: only Hopper's instructions take 8 bits" in trace
    else:
        assert f": {name} runs" in trace
        if tile and hopper() and without in left_by:
            assert "-DBM={} -DBN={} -DBK={} ".format(*tile.split("x")) in trace
        assert "smaller tiles of products" not in trace
        assert "products without Hopper's instructions" not in trace


def test_parts_added_by_a_group():
    """Products with few results and many parts of k, as on a GPU."""
    environment = {"TORCH_OCL_TUNE_AS": "gpu", "TORCH_OCL_VERBOSE": "launch"}
    trace = run_script(FEW_LONG_SUMS, "float32,float64,bfloat16,complex64,int64", **environment)
    assert "gemm_split_k_group" in trace


SUBGROUPS = [
    ("subgroup", "float32", ""),
    ("subgroup", "float32", "32x32x16"),
    ("subgroup_matrix", "bfloat16", "32x32x32"),
    ("subgroup_matrix", "float16", "32x32x16"),
]
MORE_SUBGROUPS = [
    ("subgroup_matrix", "float16,bfloat16", ""),
    ("subgroup", "float64,float16,bfloat16,int8,int16,int32,int64,uint8", ""),
    ("subgroup", "float32,bfloat16", "64x128x16"),
    ("subgroup", "float32,float64,int64", "64x64x16"),
    ("subgroup_matrix", "float16,bfloat16", "128x128x32"),
    ("subgroup_matrix", "float16,bfloat16", "64x64x32"),
    ("subgroup_matrix", "float16,bfloat16", "128x64x32"),
    ("subgroup_matrix", "float16,bfloat16", "64x32x32"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, dtypes, tile",
    SUBGROUPS + [pytest.param(*more, marks=pytest.mark.slow) for more in MORE_SUBGROUPS],
)
def test_products_by_subgroups(name, dtypes, tile):
    """Where a kernel can ask for their size; without matrix instructions by broadcasts."""
    environment = {"TORCH_OCL_GEMM": name, "TORCH_OCL_GEMM_TILE": tile}
    there = {8, 16} & set(torch.ocl.get_device_properties(0).required_sub_group_sizes)
    environment |= {"TORCH_OCL_VERBOSE": "dispatch"}
    checks = ONE_PRODUCT if not there else EVERY_LAYOUT if tile else EVERY_SHAPE
    dtypes = dtypes if there else dtypes.split(",")[0]
    trace = run_script(checks, dtypes, **environment)
    assert (
        f": {name} runs" if there else f": {name} refuses: the device has no sub-groups"
    ) in trace


@pytest.mark.parametrize("tile", ["3", "0x0x0", "64x64x-8", "64x64x8x2", "99999x1x1"])
def test_a_tile_that_is_none_is_named(tile):
    """Once, whether or not the syntax is right: a warning for all the products of a process."""
    environment = {"TORCH_OCL_GEMM": "tiled", "TORCH_OCL_GEMM_TILE": tile}
    trace = run_script(ONE_PRODUCT * 2, "float32", **environment)
    assert trace.count(f"warning: TORCH_OCL_GEMM_TILE={tile}:") == 1


def run_every_layout(dtypes, **environment):
    return run_script(EVERY_LAYOUT, chosen(dtypes), TORCH_OCL_VERBOSE="dispatch", **environment)


def run_script(checks, dtypes, **environment):
    """Runs functions of tests/ops/products.py in a process of its own."""
    if environment.get("TORCH_OCL_GEMM") == "tiled":
        environment |= UNVECTORISED
    calls = [f"products.{check.__name__}(sys.argv[2])" for check in checks]
    script = "\n".join(["import sys", "sys.path.insert(0, sys.argv[1])", IMPORT, *calls])
    result = fresh.run_script(script, str(ROOT), dtypes, environment={**os.environ, **environment})
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stderr
