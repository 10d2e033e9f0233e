"""A program and a library that take a device, for tests of what is said where it isn't used."""

import os
import subprocess
import sys

LINE = "torch_ocl: nothing ran on ocl, though "
LIBRARY = """
import torch

class Model:
    def __init__(self, device="auto"):
        self.device = torch.device(device if device in ("cpu", "cuda", "mps") else "cpu")
        torch.ones(3, device=self.device).sum()

def train(model, place):
    return torch.ones(3).sum()

class Trainer:
    def __init__(self, model, accelerator="auto", name="", *devices):
        self.model = model
        torch.ones(3).sum()

    def fit(self, device="auto"):
        return torch.ones(3).sum()
"""
PROGRAM = """
import argparse, sys
import torch

parser = argparse.ArgumentParser()
parser.add_argument("-d", "--device")
parser.add_argument("-n", "--name")
parser.add_argument("--then")
parser.add_argument("words", nargs="*")
options = parser.parse_args()

def f(index):
    torch.ones(3).sum()

if options.then == "use":
    torch.ones(3).to("ocl").sum()
elif options.then == "move":
    torch.ones(3).to("ocl")
elif options.then == "spawn" and __name__ == "__main__":
    torch.multiprocessing.spawn(f, nprocs=2)
elif options.then == "launch":
    import subprocess
    work = "import torch, time; t = time.time() + 1; [0 for _ in iter(lambda: time.time() < t, 0)]"
    subprocess.run([sys.executable, "-c", work], check=True)
elif options.then == "fail":
    sys.exit("failed")
elif options.then == "raise":
    raise ValueError
elif options.then == "ask":
    torch.cuda.is_available()
torch.ones(3).sum()
"""


def runner(folder):
    """A function that runs a program beside a library in a folder. It returns the lines on stderr
    that are about the device."""
    (folder / "choosy.py").write_text(LIBRARY)

    def run(*arguments, text=PROGRAM, **environment):
        (folder / "program.py").write_text(text)
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder)} | environment,
            timeout=120,
        )
        lines = [line for line in done.stderr.splitlines() if line.startswith("torch_ocl: ")]
        assert not [line for line in lines if not line.startswith(LINE)]
        return [line.removeprefix(LINE) for line in lines]

    return run
