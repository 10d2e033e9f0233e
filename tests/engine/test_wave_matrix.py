"""Products by what waves of AMD's GPUs have for them, on a device that has none: functions over
work-items do what each instruction is documented to do. No such GPU has run them yet."""

import os

import pytest

from tests import fresh, waves
from tests.as_gpu import UNVECTORISED
from tests.ops import products
from tests.waves import FLUSHED, ROOT, changed_kernels

HALVES = "float16,bfloat16"

# Processor, dtypes, tile: each instruction set, each of its dtypes. The smallest tile of MFMA has
# another instruction.
FEW = [
    ("gfx1100", HALVES, "64x64x32"),
    ("gfx1201", HALVES, "64x64x32"),
    ("gfx908", HALVES, "64x64x32"),
    ("gfx908", "bfloat16", "32x32x32"),
    ("gfx942", HALVES, "32x32x32"),
    ("gfx942", "bfloat16", "64x64x32"),
    ("gfx942", "float32", "64x64x16"),
    ("gfx942", "float32", "32x32x16"),
    ("gfx906", "float16", "64x64x32"),
    ("gfx1030", "float16", "64x64x32"),
]
MORE = [
    ("gfx1100", HALVES, "128x128x32"),
    ("gfx1100", HALVES, "128x64x32"),
    ("gfx1100", HALVES, "32x32x32"),
    ("gfx1201", HALVES, "128x128x32"),
    ("gfx1201", HALVES, "128x64x32"),
    ("gfx1201", HALVES, "32x32x32"),
    ("gfx908", HALVES, "128x128x32"),
    ("gfx90a", HALVES, "128x128x32"),
    ("gfx90a", HALVES, "128x64x32"),
    ("gfx90a", "float32", "128x128x16"),
    ("gfx90a", "float32", "128x64x16"),
    ("gfx906", "float16", "128x128x16"),
    ("gfx906", "float16", "128x64x32"),
    ("gfx1030", "float16", "128x128x32"),
]
SLOW = [pytest.param(*more, marks=pytest.mark.slow) for more in MORE]


def run(target, calls, dtypes, **environment):
    return waves.run(target, calls, dtypes, TORCH_OCL_GEMM="wave_matrix", **environment)


@pytest.mark.slow
@pytest.mark.parametrize("target, dtypes, tile", FEW + SLOW)
def test_every_layout(target, dtypes, tile):
    """Layouts, parts of tiles, batches, addends and activations."""
    trace = run(target, [products.check_every_layout], dtypes, TORCH_OCL_GEMM_TILE=tile)
    assert ": wave_matrix runs" in trace and ": wave_matrix refuses" not in trace
    assert "no such tile" not in trace


@pytest.mark.parametrize(
    "target, dtypes",
    [
        ("gfx1100", "bfloat16"),
        ("gfx942", "float32"),
        ("gfx1030", "float16"),
        pytest.param("gfx1201", HALVES, marks=pytest.mark.slow),
        pytest.param("gfx90a", HALVES, marks=pytest.mark.slow),
        pytest.param("gfx908", HALVES, marks=pytest.mark.slow),
    ],
)
def test_every_shape(target, dtypes):
    """Tiles as the cost model chooses them, k in parts, and many tiles along k."""
    checks = [products.check_every_shape, products.check_many_tiles]
    trace = run(target, checks, dtypes, TORCH_OCL_TUNE_AS="gpu")
    assert ": wave_matrix runs" in trace and ": wave_matrix refuses" not in trace


@pytest.mark.parametrize(
    "target, dtypes",
    [
        ("gfx1100", "bfloat16"),
        ("gfx942", "float32"),
        pytest.param("gfx1201", HALVES, marks=pytest.mark.slow),
        pytest.param("gfx908", HALVES, marks=pytest.mark.slow),
        pytest.param("gfx1030", "float16", marks=pytest.mark.slow),
    ],
)
def test_windows_of_convolutions(target, dtypes):
    script = "import sys\nsys.path.insert(0, sys.argv[1])\nfrom tests.ops import windows\n"
    script += "windows.check('wave_matrix', sys.argv[2])"
    tile = "32x32x16" if dtypes == "float32" else "32x32x32"
    variables = {"TORCH_OCL_AMD_TARGET": target, "TORCH_OCL_GEMM_TILE": tile}
    environment = {**os.environ, **UNVECTORISED, **variables}
    done = fresh.run_script(script, str(ROOT), dtypes, environment=environment)
    assert done.returncode == 0, done.stderr[-3000:]


REFUSED = [
    ("gfx1100", "float32", "the device's waves have no instructions for that type"),
    ("gfx1030", "bfloat16", "the device's waves have no instructions for that type"),
    ("gfx803", "float16", "the device's waves have no instructions for that type"),
    ("none", "float16", "the device has none of AMD's processors that are known"),
]


@pytest.mark.parametrize("target, dtype, reason", REFUSED)
def test_they_say_why_not(target, dtype, reason):
    trace = run(target, [products.check_one_product], dtype)
    assert f": wave_matrix refuses: {reason}" in trace


@pytest.mark.parametrize(
    "target, dtype", [("gfx1100", "f16"), ("gfx1201", "bf16"), ("gfx942", "f32")]
)
@pytest.mark.parametrize(
    "pattern, replacement",
    [
        (r"#define RESULT_ROW\(lane, r\) (.*)", r"#define RESULT_ROW(lane, r) ((\1) ^ 1)"),
        (r"#define OPERAND_LANE\(line, k\) (.*)", r"#define OPERAND_LANE(line, k) ((\1) ^ 2)"),
    ],
    ids=["rows", "lanes"],
)
def test_wrong_numbers_are_noticed(tmp_path, target, dtype, pattern, replacement):
    """The device goes without, says so, and others compute."""
    dtypes = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}[dtype]
    environment = changed_kernels(tmp_path, pattern, replacement)
    trace = run(target, [products.check_one_product] * 2, dtypes, **environment)
    said = f"products of {dtype} without instructions of waves: their numbers are wrong"
    assert trace.count(said) == 1
    assert ": wave_matrix refuses: this device's instructions gave wrong numbers" in trace
    assert ": wave_matrix runs" not in trace


def test_a_program_that_does_not_build(tmp_path):
    environment = changed_kernels(tmp_path, r"static ALWAYS_INLINE", "#error no such instruction\n")
    trace = run("gfx1100", [products.check_one_product], "float16", **environment)
    assert "products of f16 without instructions of waves: clBuildProgram" in trace
    assert ": wave_matrix refuses: the driver does not build programs" in trace


@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_subnormal_halves_stay_what_they_are(tmp_path, target):
    """MFMA then multiplies them as floats; who has nothing else goes without."""
    environment = changed_kernels(tmp_path, *FLUSHED)
    trace = run(target, [products.check_one_product], "float16", **environment)
    flushes = "they take subnormal numbers for 0" in trace
    assert flushes == (target == "gfx1100")
    assert (": wave_matrix runs" in trace) == (target == "gfx90a")
