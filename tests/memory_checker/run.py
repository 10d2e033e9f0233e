"""Runs sample.py under oclgrind, which interprets the kernels and reports accesses outside a buffer
and data races. Fails on any report. Runs it twice, with the kernels for GPUs and with those for
CPUs; an argument, `gpu` or `cpu`, chooses one.

    apt-get install oclgrind && make check-memory
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

RUNTIMES = ("/usr/lib/oclgrind/liboclgrind-rt.so", "/usr/local/lib/oclgrind/liboclgrind-rt.so")


def check(runtime, tune_as):
    """Runs the sample with the kernels for that class of device; returns whether it is clean."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.txt"
        command = ["oclgrind", "--data-races", "--log", str(log)]
        # Its interpreter lacks an intrinsic that clang's inliner adds.
        command += ["--build-options", "-cl-opt-disable"]
        command += [sys.executable, str(pathlib.Path(__file__).with_name("sample.py"))]
        environment = {**os.environ, "TORCH_OCL_LOADER": runtime, "TORCH_OCL_CACHE": "0"}
        environment["TORCH_OCL_TUNE_AS"] = tune_as
        environment.pop("TORCH_OCL_DEVICES", None)
        code = subprocess.run(command, env=environment).returncode
        reports = log.read_text() if log.exists() else ""
    print(reports[:20000])
    clean = code == 0 and not reports.strip()
    found = "no errors" if clean else f"exit code {code}, {len(reports)} characters of reports"
    print(f"oclgrind, kernels for a {tune_as}: {found}", flush=True)
    return clean


def main():
    runtime = next((path for path in RUNTIMES if os.path.exists(path)), None)
    if runtime is None or shutil.which("oclgrind") is None:
        sys.exit("oclgrind is not installed: apt-get install oclgrind")
    if not all([check(runtime, tune_as) for tune_as in sys.argv[1:] or ("gpu", "cpu")]):
        sys.exit(1)


if __name__ == "__main__":
    main()
