"""Constants of the device that the tuner's file has in the table's place."""

import os

import pytest

from tests.fresh import run_script


@pytest.fixture
def run(tmp_path):
    """The output and warnings of a process with the tuner on, and a file of its own."""

    def run(script, **environment):
        variables = {
            "TORCH_OCL_TUNABLE": "1",
            "TORCH_OCL_TUNABLE_FILENAME": str(tmp_path / "results.csv"),
            "TORCH_OCL_VERBOSE": "launch",
        }
        done = run_script(
            "import torch\ntunable = torch.ocl.tunable\n" + script,
            environment={**os.environ, **variables, **environment},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout, done.stderr

    return run


def test_a_constant_counts_until_the_tuner_is_off(run):
    script = """
a = torch.arange(1000.0, device="ocl")
before = tunable.get_constants()
tunable.set_constant("row_group", 32)
tunable.set_constant("reduce.item_elements", 16)
print(tunable.get_constants()["row_group"], a.sum().item(), a.softmax(0).sum().item())
print(("device", "row_group", "32", 0.0) in tunable.get_results())
tunable.enable(False)
print(tunable.get_constants() == before)
tunable.enable()
print(tunable.get_constants()["reduce.item_elements"])
"""
    shown, _ = run(script)
    group, total, one, *rest = shown.split()
    assert (group, total, *rest) == ("32.0", "499500.0", "True", "True", "16.0")
    assert abs(float(one) - 1) < 1e-6
    # Another process reads the file, and one without the tuner doesn't.
    script = "print(tunable.get_constants()['row_group'])"
    assert run(script)[0].split() == ["32.0"]
    assert run(script, TORCH_OCL_TUNABLE="0")[0].split() != ["32.0"]


def test_kernels_are_sized_by_it(run):
    """A GPU's softmax over columns has groups of `row_group`."""
    script = """
x = torch.rand(3, 5, 4000, device="ocl")
tunable.set_constant("row_group", 32)
torch.testing.assert_close(x.softmax(1).cpu(), x.cpu().softmax(1))
"""
    _, trace = run(script, TORCH_OCL_TUNE_AS="gpu")
    (line,) = [line for line in trace.splitlines() if "softmax_columns" in line]
    assert line.endswith("local size 32"), line


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("no_such", 1, "a device has no constant no_such"),
        ("row_group", 0, "row_group is from above 0 to 2147483647, got 0"),
        ("row_group", float("nan"), "row_group is from above 0"),
        ("row_group", 48, "row_group is a power of two, got 48"),
        ("row_group", 2**30, "row_group is at most"),
        ("packed_kc", 1.5, "packed_kc is a whole number, got 1.5"),
    ],
)
def test_what_no_kernel_could_take_is_refused(run, name, value, message):
    script = f"""
try:
    tunable.set_constant({name!r}, float({str(value)!r}))
except ValueError as error:
    print(error)
print(tunable.get_results())
"""
    shown, _ = run(script)
    assert message in shown and "()" in shown


@pytest.mark.parametrize("line", ["no_such,1", "row_group,48", "row_group,x"])
def test_a_line_that_no_kernel_could_take_is_ignored(run, tmp_path, line):
    run("tunable.write_file()")
    file = tmp_path / "results.csv"
    file.write_text(file.read_text() + f"device,{line},0\n")
    shown, warning = run("print(tunable.get_constants()['row_group'] != 48)")
    assert shown.split() == ["True"]
    assert "is ignored: it is" in warning


SMALL_TILES = """
import os
for name, value in {constants}.items():
    tunable.set_constant(name, value)

def check(function, *arguments):
    torch.manual_seed(0)
    both = []
    for device in ("cpu", "ocl"):
        inputs = [x.detach().to(device).requires_grad_() for x in arguments]
        result = function(*inputs)
        result.backward(torch.linspace(-1, 1, result.numel()).view(result.shape).to(device))
        both.append([result] + [x.grad for x in inputs])
    for a, b in zip(*both):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-3)

torch.manual_seed(1)
check(torch.matmul, torch.randn(150, 70), torch.randn(70, 90))
check(lambda x, w: torch.nn.functional.conv2d(x, w, padding=1),
      torch.randn(2, 16, 20, 20), torch.randn(40, 16, 3, 3))
check(torch.nn.functional.scaled_dot_product_attention,
      *(torch.randn(1, 2, 70, 64) for _ in range(3)))
check(lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), torch.randn(50, 768))
print("right")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "constants",
    [
        {"hardware.item_registers": 64, "hardware.loads_early": 1, "norm_registers": 48},
        {"hardware.wanted_items": 832, "hardware.loads_early": 1, "unit_registers": 65536},
        {"hardware.item_registers": 1},
    ],
    ids=["few registers", "many waves", "no registers"],
)
def test_tiles_for_fewer_registers_are_right(run, constants):
    shown, said = run(SMALL_TILES.format(constants=constants), TORCH_OCL_TUNE_AS="gpu")
    assert shown.split() == ["right"], said[-2000:]
