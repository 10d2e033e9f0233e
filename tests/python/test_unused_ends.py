"""Programs that failed, computed nothing, or are tests, say nothing of an unused device."""

import sys

import pytest


@pytest.mark.parametrize(
    "end, lines",
    [
        ("sys.exit(3)", 0),
        ("raise SystemExit(3)", 0),
        ("raise SystemExit('failed')", 0),
        ("exit(3)", 0),
        ("raise SystemExit", 1),
        ("raise SystemExit(0)", 1),
    ],
)
def test_the_status_of_an_exit(run, end, lines):
    text = f"import sys, torch\ntorch.ones(2).sum()\n{end}"
    assert len(run("program.py", "--device", "ocl", text=text)) == lines


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it makes the exception at once")
def test_python_s_own_exit(run):
    """With Python's own sys.exit the line comes: torch_ocl/upstream/exit_status.py is needed."""
    text = """
import sys
upstream = sys.exit
import torch
sys.exit = upstream
torch.ones(2).sum()
sys.exit("failed")
"""
    assert len(run("program.py", "--device", "ocl", text=text)) == 1


def test_what_computes_nothing(run):
    text = """
import torch
layer = torch.nn.Linear(3, 3, device="meta")
with torch.device("meta"):
    torch.cat([torch.nn.Linear(3, 3).weight, layer.weight])
"""
    assert run("program.py", "--device", "ocl", text=text) == []
    text += "layer.to_empty(device='cpu')"
    assert len(run("program.py", "--device", "ocl", text=text)) == 1


TEST = """
import sys, unittest, torch

class Test(unittest.TestCase):
    def test(self):
        torch.ones(2).sum()
"""


@pytest.mark.parametrize(
    "text",
    [
        TEST + "unittest.main(argv=sys.argv[:1])",
        TEST + "unittest.main(argv=sys.argv[:1], exit=False)",
        "import torch.testing._internal.common_utils as c\n"
        + TEST.replace("unittest.TestCase", "c.TestCase")
        + "sys.argv = sys.argv[:1]\nc.run_tests()",
    ],
    ids=["main", "without an exit", "torch's"],
)
def test_files_of_tests_say_nothing(run, text):
    assert run("program.py", text=text, TORCH_OCL_AS_CUDA="1") == []
    assert run("program.py", "--device", "ocl", text=text) == []
