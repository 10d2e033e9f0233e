"""The tuner: what it chooses and keeps, what it must not change, files it must not trust.

It is off in the process of the tests; each case has a process, or two, of its own.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.as_gpu import UNVECTORISED
from tests.dtypes import chosen
from tests.fresh import run_script

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
ON_CPU = pytest.mark.skipif(
    torch.ocl.get_device_properties(0).type != "cpu", reason="GPUs' programs lack these kernels"
)

PRELUDE = """
import sys, time, torch
from torch.testing import assert_close
torch.manual_seed(0)
tunable = torch.ocl.tunable

def make(*shape, dtype=torch.float32):
    # Quarters: sums of their products are exact in float.
    if dtype.is_floating_point:
        return torch.randint(-8, 9, shape).div(4).to(dtype)
    if dtype.is_complex:
        return torch.complex(make(*shape), make(*shape)).to(dtype)
    return torch.randint(-3, 4, shape).to(dtype)

def reference(function, *args, **kwargs):
    low = [torch.float16, torch.bfloat16]
    wide = [a.float() if a.dtype in low else a for a in args]
    return function(*wide, **kwargs).to(args[0].dtype)

def check(function, *args, **kwargs):
    # Before, while and after it is tuned.
    expected = reference(function, *args, **kwargs)
    for _ in range(2):
        on_device = [a.to("ocl") for a in args]
        assert_close(function(*on_device, **kwargs).cpu(), expected)
        for a, b in zip(on_device, args):
            assert_close(a.cpu(), b, rtol=0, atol=0)
"""
ONE_PRODUCT = "check(torch.mm, make(100, 200), make(200, 70))\n"
PRINT = "for result in tunable.get_results(): print(*result[:3])\n"
PROBLEM = "gemm_f32_f32_f32 nnn_m112_n80_k224_b1_unaligned_b"


def run(script, *arguments, **environment):
    """The output of a process with the tuner on, and its trace."""
    variables = {"TORCH_OCL_TUNABLE": "1", "TORCH_OCL_VERBOSE": "tune,dispatch", **environment}
    done = run_script(PRELUDE + script, *arguments, environment={**os.environ, **variables})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "results.csv"
    monkeypatch.setenv("TORCH_OCL_TUNABLE_FILENAME", str(path))
    return path


@pytest.fixture
def write_result(file):
    """Writes a file in which this device has one result."""

    def write(choice, problem=PROBLEM, **environment):
        run("tunable.write_file()", **environment)
        with file.open("a") as text:
            text.write(f"{problem.replace(' ', ',')},{choice},1.5\n")

    return write


def searched(trace):
    return ": tune: " in trace


def test_off_it_does_nothing(file):
    out, trace = run(ONE_PRODUCT + PRINT, TORCH_OCL_TUNABLE="")
    assert not searched(trace) and "tuned" not in trace
    assert out == "" and not file.exists()


def test_results_serve_later_processes(file):
    out, trace = run(ONE_PRODUCT + PRINT)
    assert searched(trace)
    assert out.startswith(PROBLEM + " ")
    again, trace = run("tunable.tuning_enable(False)\n" + ONE_PRODUCT + PRINT)
    assert again == out and not searched(trace)
    again, trace = run(ONE_PRODUCT + PRINT)
    assert again == out and not searched(trace)
    assert not list(file.parent.glob("*.tmp"))


def test_results_lie_in_the_cache_folder(tmp_path):
    folder = tmp_path / "cache"
    script = ONE_PRODUCT + "print(tunable.get_filename())"
    quick = {"TORCH_OCL_TUNABLE_DURATION": "1"}
    kept = {"TORCH_OCL_CACHE": "1", "TORCH_OCL_CACHE_DIR": str(folder)}
    out, _ = run(script, **kept, **quick)
    path = Path(out.strip())
    assert path.parent == folder and path.name.startswith("tuned_")
    assert PROBLEM.replace(" ", ",") in path.read_text()
    # Without a cache there is no such file, and nothing is written.
    out, trace = run(script, TORCH_OCL_CACHE="0", TORCH_OCL_CACHE_DIR=str(tmp_path / "c"), **quick)
    assert out.strip() == "" and searched(trace) and not (tmp_path / "c").exists()


def test_what_is_no_file_is_left_alone(file):
    """A device like /dev/full never ends, and a pipe waits for its other end."""
    os.mkfifo(file)
    script = ONE_PRODUCT + "assert not tunable.read_file() and not tunable.write_file()"
    _, trace = run(script, TORCH_OCL_TUNABLE_DURATION="1")
    assert file.is_fifo() and searched(trace)
    assert trace.count("no regular file") == 1


def test_results_are_this_users_own(file):
    """They choose what runs: what others could have put there is not read, and nothing takes its
    place."""
    run("import os; os.umask(0)\n" + ONE_PRODUCT, TORCH_OCL_TUNABLE_DURATION="1")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    script = "assert not tunable.read_file()"
    file.chmod(0o602)
    _, trace = run(script)
    assert "can be written by others" in trace
    file.chmod(0o600), file.parent.chmod(0o777)
    _, trace = run(script + " and not tunable.write_file()")
    assert f"is in {file.parent}, which can be written by others" in trace
    file.parent.chmod(0o700)
    other = file.with_name("other")
    file.chmod(0o600), file.rename(other), file.symlink_to(other)
    _, trace = run(script + " and not tunable.write_file()")
    assert "it is a link" in trace and file.is_symlink() and other.read_text() == text


@pytest.mark.parametrize(
    "tune_as, choice, runs",
    [
        ("cpu", "direct", "direct"),
        pytest.param("cpu", "packed:4x3x8", "packed", marks=ON_CPU),
        pytest.param("cpu", "packed:-:-:block=65536", "packed", marks=ON_CPU),
        ("gpu", "tiled:32x32x8/64", "tiled"),
        ("gpu", "tiled:32x32x8/64:splits=2", "tiled"),
    ],
)
def test_the_choice_runs(write_result, tune_as, choice, runs):
    environment = {"TORCH_OCL_TUNE_AS": tune_as}
    write_result(choice, **environment)
    verbose = {"TORCH_OCL_VERBOSE": "tune,dispatch,launch"}
    _, trace = run(ONE_PRODUCT, **environment, **verbose)
    assert trace.count(f"gemm, tuned: {runs} runs") == 2 and not searched(trace)
    if "tiled" in choice:
        items = 4 * 3 * 64 * (2 if "splits" in choice else 1)
        assert f"global size {items}, local size 64" in trace
        assert ("gemm_split_k" in trace) == ("splits" in choice)
    # TORCH_OCL_GEMM goes before it.
    _, trace = run(ONE_PRODUCT, TORCH_OCL_GEMM="direct", **environment)
    assert "tuned" not in trace and ": direct runs" in trace


@ON_CPU
def test_a_choice_that_refuses_the_shape(write_result):
    write_result("skinny_dot")
    _, trace = run(ONE_PRODUCT)
    assert "tuned" not in trace and not searched(trace)


def test_shapes_of_a_class_share_a_result(file):
    script = """
for m in (65, 80, 81, 96):
    check(torch.mm, make(m, 64), make(64, 64))
"""
    out, trace = run(script + PRINT, TORCH_OCL_TUNABLE_DURATION="1")
    assert [line.split()[1] for line in out.splitlines()] == [
        "nnn_m80_n64_k64_b1",
        "nnn_m96_n64_k64_b1",
    ]


SOME_DTYPES = "float32,complex64"
OTHER_DTYPES = "float64,float16,bfloat16,uint8,complex128,int8,int16,int32,int64"
LAYOUTS = """
for dtype in (getattr(torch, name) for name in sys.argv[1].split(",")):
    a, b, c = make(60, 300, dtype=dtype), make(300, 50, dtype=dtype), make(60, 50, dtype=dtype)
    check(torch.mm, a, b)
    if dtype in (torch.float32, torch.float16):
        check(torch.mm, a, b.mT.contiguous().mT)
        check(torch.mm, b.mT, a.mT)
        check(torch.addmm, c, a, b, alpha=2, beta=-3)
        check(torch.addmm, c[0], a, b)
        check(torch._addmm_activation, c[0], a, b)
        check(torch.mm, a[:3], b)
        check(torch.mv, b.mT, a[0])
        check(torch.bmm, a.view(3, 20, 300), b.expand(3, 300, 50))
        check(torch.baddbmm, c.view(3, 20, 50), a.view(3, 20, 300), b.expand(3, 300, 50))
        out = torch.zeros(64, 128, dtype=dtype, device="ocl")
        torch.mm(a.to("ocl"), b.to("ocl"), out=out[2:62, 7:57])
        expected = torch.zeros(64, 128, dtype=dtype)
        expected[2:62, 7:57] = reference(torch.mm, a, b)
        assert_close(out.cpu(), expected)
"""


@pytest.mark.slow
@pytest.mark.parametrize("tune_as", ["cpu", "gpu"])
@pytest.mark.parametrize(
    "dtypes", [SOME_DTYPES, pytest.param(OTHER_DTYPES, marks=pytest.mark.slow)]
)
def test_every_candidate_computes_the_same(file, dtypes, tune_as):
    """As the tuner itself finds: none is discarded. And the results are right all the while."""
    environment = UNVECTORISED if tune_as == "gpu" else {}
    _, trace = run(LAYOUTS + PRINT, chosen(dtypes), TORCH_OCL_TUNE_AS=tune_as, **environment)
    assert searched(trace) and "discarded" not in trace


def test_in_place_results(file):
    """out is read and written: it must not be while the tuner tries kernels."""
    script = """
a, b, c = make(90, 200), make(200, 72), make(90, 72)
out = c.to("ocl")
expected = c.clone()
for _ in range(3):
    out.addmm_(a.to("ocl"), b.to("ocl"), alpha=0.5, beta=0.25)
    expected.addmm_(a, b, alpha=0.5, beta=0.25)
    assert_close(out.cpu(), expected)
nan = torch.full((90, 72), float("nan"), device="ocl")
assert_close(torch.addmm(nan, a.to("ocl"), b.to("ocl"), beta=0).cpu(), a @ b)
assert_close(nan.addmm_(a.to("ocl"), b.to("ocl"), beta=0).cpu(), a @ b)
"""
    _, trace = run(script, TORCH_OCL_TUNABLE_DURATION="1500")
    assert searched(trace)


def test_values_do_not_matter(file):
    """A search doesn't go by the operands' own values, which may be anything."""
    script = """
a = torch.full((100, 200), float("nan"))
assert_close((a.to("ocl") @ make(200, 70).to("ocl")).cpu(), a @ make(200, 70), equal_nan=True)
"""
    _, trace = run(script, TORCH_OCL_TUNABLE_DURATION="1500")
    assert searched(trace) and "discarded" not in trace


@pytest.fixture
def broken_kernels(tmp_path, monkeypatch):
    """A copy of the kernels in which some candidates are wrong."""

    def make(file, text, replacement):
        shutil.copytree(KERNELS, tmp_path / "kernels")
        path = tmp_path / "kernels" / file
        source = path.read_text()
        assert text in source
        path.write_text(source.replace(text, replacement))
        monkeypatch.setenv("TORCH_OCL_KERNEL_DIR", str(tmp_path / "kernels"))

    return make


ADDS_UP = "total[i * NV + v] = sum[i][v];"
WRONG = [
    ("#if MR == 8\n#error no such tile\n#endif\n", "clBuildProgram"),
    ("total[i * NV + v] = sum[i][v] * (MR == 8 ? 1.001f : 1.0f);\n", "differs"),
    ("total[i * NV + v] = (MR == 8 && i == 7) ? (V)(NAN) : sum[i][v];\n", "differs"),
]


@pytest.mark.slow
@ON_CPU
@pytest.mark.parametrize("replacement, reason", WRONG)
def test_wrong_candidates_are_discarded(file, broken_kernels, replacement, reason):
    if replacement.startswith("#"):
        included = '#include "include/register_tile.clh"\n'
        broken_kernels("gemm/packed.cl", included, included + replacement)
    else:
        broken_kernels("gemm/packed.cl", ADDS_UP, replacement)
    choose = "tunable.set_max_tuning_duration(60000)\n"
    out, trace = run(choose + ONE_PRODUCT + PRINT, TORCH_OCL_TUNE_AS="cpu")
    discarded = re.findall(r"tune: (packed:8x\S*) is discarded: (.*)", trace)
    assert discarded and all(reason in why for _, why in discarded)
    assert "packed:8x" not in out


def test_a_kernel_that_stores_beside_its_result_is_discarded(file, broken_kernels):
    broken_kernels(
        "gemm/direct.cl",
        "EPILOGUE(",
        "if (row == p.m - 1 && column == p.n - 1) STORE_FROM(OUT, C, out, "
        "row * p.out.row + column + 1, (T)(99));\n  EPILOGUE(",
    )
    _, trace = run(ONE_PRODUCT, TORCH_OCL_TUNE_AS="cpu", TORCH_OCL_TUNABLE_DURATION="1500")
    assert "tune: direct is discarded: its result differs from the default's" in trace


def test_the_time_budget(file):
    """Nothing is tried after it; a search without one would take much longer."""
    script = """
a, b = make(500, 600).to("ocl"), make(600, 700).to("ocl")
torch.mm(a[:100], b), torch.ocl.synchronize()
start = time.perf_counter()
torch.mm(a, b), torch.ocl.synchronize()
print(time.perf_counter() - start)
"""
    _, trace = run("tunable.set_max_tuning_duration(1)\n" + ONE_PRODUCT)
    assert re.findall(r"tune: (\S+) [\d.]+ ms", trace) == []
    assert f"tune: {PROBLEM}: Default" in trace
    out, trace = run(script, TORCH_OCL_TUNABLE_DURATION="300")
    # A build that was begun goes on: seconds on some drivers.
    assert float(out) < 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "content, reason",
    [
        ("", "is empty"),
        ("\x01\x02 no text\n", "line 1 is damaged"),
        ("VALIDATORS" + f"{PROBLEM.replace(' ', ',')},direct,1\nx,y\n", "line 8 is damaged"),
        ("VALIDATORS" + f"{PROBLEM.replace(' ', ',')},direct,1", "line 7 is damaged"),
        ("VALIDATORS" + f"{PROBLEM.replace(' ', ',')},direct,soon\n", "line 7 is damaged"),
        (f"{PROBLEM.replace(' ', ',')},direct,1\n", "it does not say for which"),
        ("FOREIGN" + f"{PROBLEM.replace(' ', ',')},direct,1\n", "it is for DEVICE_NAME Another"),
        ("STALE" + f"{PROBLEM.replace(' ', ',')},direct,1\n", "it is for TORCH_OCL_VERSION 0.0.0"),
        ("VALIDATORS" + f"{PROBLEM.replace(' ', ',')},no such one,1\n", "there is no no such one"),
    ],
)
def test_files_that_are_not_trusted(file, content, reason):
    validators = [list(pair) for pair in torch.ocl.tunable.get_validators()]
    for name, value in [("FOREIGN", "Another"), ("STALE", "0.0.0"), ("VALIDATORS", None)]:
        if not content.startswith(name):
            continue
        changed = {"FOREIGN": "DEVICE_NAME", "STALE": "TORCH_OCL_VERSION"}.get(name)
        lines = [f"Validator,{n},{value if n == changed else v}\n" for n, v in validators]
        content = "".join(lines) + content.removeprefix(name)
    file.write_text(content)
    out, trace = run(ONE_PRODUCT + "tunable.read_file()\n" + PRINT, TORCH_OCL_TUNABLE_DURATION="1")
    warnings = [line for line in trace.splitlines() if "warning" in line]
    assert len(warnings) == 1 and reason in warnings[0] and "ignored" in warnings[0]
    # It was searched for, and the file is sound now.
    assert out == f"{PROBLEM} Default\n"
    again, trace = run(ONE_PRODUCT + PRINT)
    assert again == out and "warning" not in trace and not searched(trace)


def test_a_file_that_cannot_be_written(tmp_path):
    file = tmp_path / "missing" / "results.csv"
    script = ONE_PRODUCT + "assert not tunable.write_file()\n" + PRINT
    quick = {"TORCH_OCL_TUNABLE_DURATION": "1"}
    out, trace = run(script, TORCH_OCL_TUNABLE_FILENAME=str(file), **quick)
    assert trace.count("warning: tuning results can't be written") == 1
    assert out == f"{PROBLEM} Default\n"


def test_processes_add_to_one_file(file):
    environment = {**os.environ, "TORCH_OCL_TUNABLE": "1", "TORCH_OCL_TUNABLE_DURATION": "1"}
    then_write = "print('tuned', flush=True), sys.stdin.readline(), tunable.write_file()"
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                PRELUDE + f"check(torch.mm, make({m}, 64), make(64, 64))\n" + then_write,
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for m in (16, 64)
    ]
    # Neither has read what the other found; the one that writes last keeps both.
    assert [process.stdout.readline() for process in processes] == ["tuned\n"] * 2
    for process in processes:
        process.communicate("\n")
        assert process.returncode == 0
    assert [line.split(",")[1] for line in file.read_text().splitlines()[6:]] == [
        "nnn_m16_n64_k64_b1",
        "nnn_m64_n64_k64_b1",
    ]


def test_threads(file):
    """Several threads meet new shapes at once, and settings change meanwhile."""
    script = """
import threading
errors = []
operands = [(make(m, k), make(k, n)) for m, n, k in
            [(16, 48, 64), (48, 16, 64), (30, 30, 300), (3, 100, 64), (64, 64, 64), (1, 64, 64)]]
expected = [a @ b for a, b in operands]

def work(seed):
    try:
        for i in range(60):
            at = (i + seed) % len(operands)
            a, b = operands[at]
            assert_close((a.to("ocl") @ b.to("ocl")).cpu(), expected[at])
            if seed == 0 and i % 20 == 5:
                tunable.enable(i != 25)
                tunable.set_max_tuning_duration(150 + i)
    except BaseException as error:
        errors.append(error)

threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert not errors, errors
for (a, b), product in zip(operands, expected):
    check(torch.mm, a, b)
assert len(tunable.get_results()) == len(operands)
assert len({result[:2] for result in tunable.get_results()}) == len(operands)
"""
    run(script, TORCH_OCL_TUNABLE_DURATION="150", TORCH_OCL_VERBOSE="")
