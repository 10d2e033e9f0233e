"""Runs sample.py under oclgrind, which interprets the kernels and reports accesses outside a buffer
and data races. Fails on any report. Its device is a GPU to us, so the GPU variants run.

    apt-get install oclgrind && make check-memory
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

RUNTIMES = ("/usr/lib/oclgrind/liboclgrind-rt.so", "/usr/local/lib/oclgrind/liboclgrind-rt.so")


def main():
    runtime = next((path for path in RUNTIMES if os.path.exists(path)), None)
    if runtime is None or shutil.which("oclgrind") is None:
        sys.exit("oclgrind is not installed: apt-get install oclgrind")
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.txt"
        command = ["oclgrind", "--data-races", "--log", str(log)]
        # Its interpreter lacks an intrinsic that clang's inliner adds.
        command += ["--build-options", "-cl-opt-disable"]
        command += [sys.executable, str(pathlib.Path(__file__).with_name("sample.py"))]
        environment = {**os.environ, "TORCH_OCL_LOADER": runtime, "TORCH_OCL_CACHE": "0"}
        environment.pop("TORCH_OCL_DEVICES", None)
        code = subprocess.run(command, env=environment).returncode
        reports = log.read_text() if log.exists() else ""
    print(reports[:20000])
    if code or reports.strip():
        sys.exit(f"oclgrind: exit code {code}, {len(reports)} characters of reports")
    print("oclgrind: no errors")


if __name__ == "__main__":
    main()
