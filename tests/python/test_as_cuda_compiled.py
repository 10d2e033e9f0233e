"""Where "cuda" means `ocl`, compiled code sees the device that it sees when it is run."""

import os
import subprocess
import sys

import pytest

CODE = """
import torch

x, y = torch.ones(3, device="cuda"), torch.ones(3)
model = torch.nn.Linear(3, 2).cuda()
ASKED = {
    "is_cuda": lambda x: x + 100 * x.is_cuda,
    "is_cpu": lambda x: x + 100 * x.is_cpu,
    "type()": lambda x: x + 100 * (x.type() == "torch.cuda.FloatTensor"),
    "isinstance": lambda x: x + 100 * isinstance(x, torch.cuda.FloatTensor),
    "isinstance of the CPU": lambda x: x + 100 * isinstance(x, torch.FloatTensor),
    "isinstance of two": lambda x: x + isinstance(x, (torch.FloatTensor, torch.cuda.FloatTensor)),
    "device.type": lambda x: x + 100 * (x.device.type == "cuda"),
    "device ==": lambda x: x + 100 * (x.device == torch.device("cuda:0")),
    "str": lambda x: x + 100 * str(x.device).startswith("cuda"),
    "f-string": lambda x: x + len(f"{x.device}") + 100 * f"{x.device}".startswith("cuda"),
    "get_device": lambda x: x + 100 * (x.get_device() == 0),
    "parameters": lambda x: x + 100 * next(model.parameters()).is_cuda,
    "is_available": lambda x: x + 100 * torch.cuda.is_available(),
    "device_count": lambda x: x + 100 * torch.cuda.device_count(),
    "current_device": lambda x: x + 100 * (torch.cuda.current_device() == 0),
    "autocast": lambda x: x + 100 * torch.is_autocast_enabled("cuda"),
    "index": lambda x: x + 100 * (x.device.index == 0),
    "new": lambda x: x.new_zeros(3).is_cuda + x,
    "literal": lambda x: torch.zeros(3, device="cuda") + x,
}
for name, function in ASKED.items():
    for argument in (x, y):
        if argument is y and name in ("literal", "parameters"):
            continue
        expected = function(argument)
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            found = torch.compile(function, backend=backend)(argument)
            assert torch.equal(found, expected), (name, argument.device, found, expected)
"""
TYPES = """
import torch

x, y = torch.ones(3, device="ocl"), torch.ones(3)
KINDS = (torch.FloatTensor, torch.DoubleTensor, torch.ocl.FloatTensor, torch.ocl.HalfTensor)
KINDS += ((torch.FloatTensor, torch.ocl.FloatTensor), (int, torch.FloatTensor), torch.Tensor)
for kinds in KINDS:
    for argument in (x, y):
        torch._dynamo.reset()
        asks = lambda t: t + isinstance(t, kinds)
        compiled = torch.compile(asks, backend="eager", fullgraph=True)
        assert torch.equal(compiled(argument), asks(argument)), kinds
"""


@pytest.mark.parametrize("code, variable", [(CODE, "1"), (TYPES, "0")], ids=["cuda", "ocl"])
def test_what_code_asks_of_devices(code, variable):
    environment = {**os.environ, "TORCH_OCL_AS_CUDA": variable}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
