"""Runs sample.py under oclgrind, which interprets the kernels and reports accesses outside a buffer
and data races. Fails on any report. Runs every family with the kernels for GPUs and with those for
CPUs; an argument, `gpu` or `cpu`, chooses one. As many run at a time as there are cores.

    apt-get install oclgrind && make check-memory
"""

import concurrent.futures
import itertools
import os
import pathlib
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
)
RUNTIMES = ("/usr/lib/oclgrind/liboclgrind-rt.so", "/usr/local/lib/oclgrind/liboclgrind-rt.so")


def check(runtime, tune_as, families):
    """Runs the families with the kernels for that class of device; returns whether it is clean."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.txt"
        command = ["oclgrind", "--data-races", "--log", str(log)]
        # Its interpreter lacks an intrinsic that clang's inliner adds.
        command += ["--build-options", "-cl-opt-disable"]
        command += [sys.executable, str(pathlib.Path(__file__).with_name("sample.py"))]
        command += families
        environment = {**os.environ, "TORCH_OCL_LOADER": runtime, "TORCH_OCL_CACHE": "0"}
        environment["TORCH_OCL_TUNE_AS"] = tune_as
        environment.pop("TORCH_OCL_DEVICES", None)
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        run = subprocess.run(command, env=environment, **output)
        reports = log.read_text() if log.exists() else ""
    clean = run.returncode == 0 and not reports.strip()
    found = "no errors" if clean else f"exit code {run.returncode}, {len(reports)} characters"
    print(f"{run.stdout}{reports[:20000]}\noclgrind, kernels for a {tune_as}: {found}", flush=True)
    return clean


def main():
    runtime = next((path for path in RUNTIMES if os.path.exists(path)), None)
    if runtime is None or shutil.which("oclgrind") is None:
        sys.exit("oclgrind is not installed: apt-get install oclgrind")
    if sorted(itertools.chain(*PARTS)) != sorted(FAMILIES):
        sys.exit("PARTS of run.py are not the families of sample.py")
    kinds = sys.argv[1:] or ("gpu", "cpu")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(check, runtime, kind, part) for part in PARTS for kind in kinds]
    if not all(run.result() for run in runs):
        sys.exit(1)


if __name__ == "__main__":
    main()
