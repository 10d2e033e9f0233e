"""Lesson 5: what goes wrong, and how to find it."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

# begin: compile
BROKEN = """
kernel void scale(global float* x, float factor) {
  size_t i = get_global_id(0);
  x[i] *= facto;
}
"""
try:
    torch.ocl.compile_kernel(BROKEN, "scale")
except RuntimeError as error:
    print(error)
# end: compile

# begin: arguments
SCALE = BROKEN.replace("facto;", "factor;")
scale = torch.ocl.compile_kernel(SCALE, "scale")
x = torch.ones(8, device="ocl")
for arguments in ((x,), (x.double(), 2.0), (x.cpu(), 2.0), (x, "2")):
    try:
        scale(*arguments, global_size=8)
    except (TypeError, ValueError) as error:
        print(error)
# end: arguments

# begin: printf
PRINTING = """
kernel void scale(global float* x, float factor) {
  size_t i = get_global_id(0);
  if (i < 2) printf("work-item %d: %f * %f\\n", (int)i, x[i], factor);
  x[i] *= factor;
}
"""
torch.ocl.compile_kernel(PRINTING, "scale")(x, 2.0, global_size=8)
torch.ocl.synchronize()  # drivers print when the kernel is done
# end: printf

# begin: bounds
OUT_OF_BOUNDS = """
import torch
SHIFT = '''
kernel void shift(global const float* x, global float* y) {
  uint i = get_global_id(0);
  y[i] = x[i - 1];
}
'''
shift = torch.ocl.compile_kernel(SHIFT, "shift")
x = torch.ones(8, device="ocl")
shift(x, torch.empty_like(x), global_size=8)
torch.ocl.synchronize()
"""
# end: bounds


def run(code, command=(), **environment):
    """Runs a script of its own, and returns what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(code)
        done = subprocess.run(
            [*command, sys.executable, str(script)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    return done.stdout


runtime = "/usr/lib/oclgrind/liboclgrind-rt.so"
if shutil.which("oclgrind") and os.path.exists(runtime):
    os.environ.pop("TORCH_OCL_DEVICES", None)
    # begin: oclgrind
    report = run(
        OUT_OF_BOUNDS,
        ["oclgrind", "--build-options", "-cl-opt-disable"],
        TORCH_OCL_LOADER=runtime,
        TORCH_OCL_CACHE="0",
    )
    print(report[:600])
    # end: oclgrind
    assert "Invalid read of size 4" in report
else:
    print("oclgrind is not installed: apt-get install oclgrind")

# begin: trace
TRACED = """
import torch
x = torch.ones(300, 200, device="ocl")
y = (x @ x.t()).sum()
torch.ocl.synchronize()
"""
trace = run(TRACED, TORCH_OCL_VERBOSE="launch,dispatch")
print(trace)
# end: trace
assert "launch: " in trace
