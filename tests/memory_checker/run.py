"""Runs sample.py under oclgrind, which interprets the kernels and reports accesses outside a buffer
and data races. Fails on any report, and on a kernel file that no sample launches. Runs every family
with the kernels for GPUs and with those for CPUs; an argument, `gpu` or `cpu`, chooses one. As many
run at a time as there are cores.

    apt-get install oclgrind && make check-memory
"""

import concurrent.futures
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from sample import FAMILIES

#: Several families in a process, because starting one takes as long as some of them; families that
#: take long begin parts of their own.
PARTS = (
    ("long_windows", "pointwise", "reductions"),
    ("windows", "complex_and_integers", "products", "linear_algebra"),
    ("attention", "depthwise", "convolutions", "losses"),
    ("recurrent", "fourier", "norms", "winograd"),
    ("sorts", "optimisers", "indices", "random"),
    ("selections", "fourier_in_registers", "binning", "lines"),
    ("scans", "shapes", "special_functions", "detection"),
    ("fallbacks", "sparse"),
    ("epilogues",),
    ("waves",),
)
#: Options of a part that begins with that family: what takes more local memory than the 32 KiB of
#: oclgrind's device, where other kernels stand in for it.
OPTIONS = {"selections": ["--local-mem-size", "65536"]}
#: Variables of a part that begins with that family: functions do what AMD's instructions do.
VARIABLES = {"waves": {"TORCH_OCL_AMD_TARGET": "gfx1201"}}
#: Kernel files that no sample launches, and why.
NOT_LAUNCHED = {
    "attention/amx_values.cl": "for AMX",
    "attention/backward_tensor_core.cl": "PTX",
    "attention/forward_amx.cl": "assembly",
    "attention/forward_tensor_core.cl": "PTX",
    "conv/amx.cl": "assembly",
    "conv/one_by_one.cl": "assembly",
    "conv/tiled_parts.cl": "oclgrind's device has one compute unit, for which k isn't split",
    "gemm/bfloat16_parts.cl": "needs units for bfloat16",
    "gemm/bfloat16x3.cl": "for Hopper; tests/engine/test_bfloat16x3.py launches it",
    "gemm/tensor_core.cl": "PTX",
    "gemm/tensor_core_f64.cl": "PTX",
    "probe/bandwidth.cl": "measures the device",
    "probe/fma.cl": "measures the device",
    "tuner/compare.cl": "the tuner runs every kernel that could take a product",
    "tuner/fill.cl": "the tuner runs every kernel that could take a product",
}
KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
RUNTIMES = ("/usr/lib/oclgrind/liboclgrind-rt.so", "/usr/local/lib/oclgrind/liboclgrind-rt.so")


def check(runtime, tune_as, families):
    """Runs the families with the kernels for that class of device; returns whether it is clean, and
    the kernel files it launched."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.txt"
        command = ["oclgrind", "--data-races", "--log", str(log)]
        # Its interpreter lacks an intrinsic that clang's inliner adds, and it takes a load beside
        # others' atomic operations for a race.
        command += ["--build-options", "-cl-opt-disable -DOCL_LOADS_ARE_ATOMIC"]
        command += OPTIONS.get(families[0], [])
        command += [sys.executable, str(pathlib.Path(__file__).with_name("sample.py"))]
        command += families
        environment = {**os.environ, "TORCH_OCL_LOADER": runtime, "TORCH_OCL_CACHE": "0"}
        environment |= {"TORCH_OCL_TUNE_AS": tune_as, "TORCH_OCL_VERBOSE": "launch"}
        environment["TORCH_OCL_FIRST_USE_CHECK"] = "0"
        environment |= VARIABLES.get(families[0], {})
        environment.pop("TORCH_OCL_DEVICES", None)
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        run = subprocess.run(command, env=environment, **output)
        reports = log.read_text() if log.exists() else ""
    clean = run.returncode == 0 and not reports.strip()
    found = "no errors" if clean else f"exit code {run.returncode}, {len(reports)} characters"
    lines = run.stdout.splitlines()
    launches = [line for line in lines if "torch_ocl: launch: " in line]
    output = "\n".join(line for line in lines if line not in launches)
    print(f"{output}\n{reports[:20000]}\noclgrind, kernels for a {tune_as}: {found}", flush=True)
    # Files with a text in front of them are named by it, too.
    file = re.compile(r" of (?:modified/\w+/)?(\S+\.cl)")
    return clean, {file.search(line)[1] for line in launches}


def check_files(launched):
    """Whether each kernel file was launched, or is known not to be."""
    files = {str(path.relative_to(KERNELS)) for path in KERNELS.rglob("*.cl")}
    for name in sorted(files - launched - NOT_LAUNCHED.keys()):
        print(f"no sample launches kernels/{name}")
    for name in sorted(NOT_LAUNCHED.keys() & launched | NOT_LAUNCHED.keys() - files):
        print(f"NOT_LAUNCHED of run.py names kernels/{name}, which is launched or gone")
    return files - launched == NOT_LAUNCHED.keys()


def main():
    runtime = next((path for path in RUNTIMES if os.path.exists(path)), None)
    if runtime is None or shutil.which("oclgrind") is None:
        sys.exit("oclgrind is not installed: apt-get install oclgrind")
    if sorted(itertools.chain(*PARTS)) != sorted(FAMILIES):
        sys.exit("PARTS of run.py are not the families of sample.py")
    kinds = sys.argv[1:] or ("gpu", "cpu")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(check, runtime, kind, part) for part in PARTS for kind in kinds]
    clean, launched = zip(*(run.result() for run in runs), strict=True)
    whole = len(kinds) == 2
    if not all(clean) or whole and not check_files(set().union(*launched)):
        sys.exit(1)


if __name__ == "__main__":
    main()
