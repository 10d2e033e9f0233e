"""The note in a terminal that kernels are being built."""

import os
import pty
import subprocess
import sys

# Two threads build programs until those took SECONDS together.
CODE = """
import threading
import torch

x = torch.ones(64, device="ocl")

def build(thread):
    for number in range(10_000):
        if torch.ocl.program_stats()["build_seconds"] > SECONDS:
            return
        terms = " + ".join(f"lgamma(x[i] + {thread}{number}{k}.0f)" for k in range(30))
        text = "kernel void f(global float* x) { size_t i = get_global_id(0); x[i] = %s; }"
        torch.ocl.compile_kernel(text % terms, "f")(x, global_size=64)

threads = [threading.Thread(target=build, args=(i + 1,)) for i in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
torch.ocl.synchronize()
print(torch.ocl.program_stats()["build_seconds"])
"""


def in_terminal(code, **variables):
    """A program's stderr, which is a terminal, and its stdout."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TORCH_OCL_CACHE": "0", **variables}
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=theirs, stdout=subprocess.PIPE, env=environment
    ) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            text += part
        out = process.communicate()[0]
    os.close(ours)
    assert process.returncode == 0, text.decode()
    return text.decode(), float(out)


def test_once_in_a_terminal():
    # Two threads build: 2 s have passed after 4 s of builds at the latest.
    text, seconds = in_terminal(CODE.replace("SECONDS", "5"))
    assert seconds > 4 and text.count("building kernels for") == 1
    assert "so far" in text


# One program that takes a driver longer than that.
LONG = """
import os, threading, time
import torch

x = torch.ones(64, device="ocl")
own = time.time_ns() % 1_000_000  # some drivers keep what they build themselves
lines = "".join(f"x[i] += lgamma(x[i] + {own + k}.0f);" for k in range(300))
text = "kernel void f%d(global float* x) { size_t i = get_global_id(0); %s }"
text = "".join(text % (k, lines) for k in range(150))
built = threading.Event()

def end():
    if not built.wait(4):
        print(4.0, flush=True)
        os._exit(0)

threading.Thread(target=end).start()
torch.ocl.compile_kernel(text, "f0")(x, global_size=64)
built.set()
print(torch.ocl.program_stats()["build_seconds"])
"""


def test_in_the_midst_of_a_build():
    text, seconds = in_terminal(LONG)
    assert seconds > 2 and text.count("building kernels for") == 1


def test_not_for_short_builds():
    text, seconds = in_terminal(CODE.replace("SECONDS", "0.3"))
    assert seconds < 2 and "building kernels" not in text


def test_not_elsewhere():
    done = subprocess.run(
        [sys.executable, "-c", CODE.replace("SECONDS", "5")],
        env={**os.environ, "TORCH_OCL_CACHE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "building kernels" not in done.stderr
