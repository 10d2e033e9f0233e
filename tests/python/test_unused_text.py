"""A program whose own text names `ocl` says at its end that nothing ran there."""

import pytest

from torch_ocl.notices import unused_text

MODEL = "from choosy import Model\n"
GIVEN = {
    "argparse": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="ocl", choices=["cpu", "ocl"])
Model(device=parser.parse_args().device)
""",
    "torch.device": "import torch\nModel(device=torch.device('ocl'))",
    "a dictionary": "Model(**{'device': 'ocl'})",
    "a dataclass": """
import dataclasses
@dataclasses.dataclass
class Config:
    device: str = "ocl"
Model(device=Config().device)
""",
    "a class's attribute": "class Config:\n    device = 'ocl'\nModel(device=Config.device)",
    "a partial": "import functools\nfunctools.partial(Model, device='ocl')()",
    "a condition": "if True:\n    Model(device='ocl')",
    "a method": """
class Trainer:
    def fit(self):
        return Model(device="ocl")
Trainer().fit()
""",
    "a loop": "for d in ['ocl']:\n    Model(device=d)",
    "a comprehension": "[Model(device=where) for where in ['ocl']]",
    "an f-string": "try:\n    Model(device=f'ocl:{0}')\nexcept ValueError:\n    pass",
    "a setting": "config = {}\nconfig['device'] = 'ocl'\nModel(**config)",
    "a parameter": "def main(device='ocl'):\n    return Model(device=device)\nmain()",
}
NOT_GIVEN = {
    "a comparison": "device = Model().device\nif device == 'ocl' or device in ('ocl',): pass",
    "choices": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=["cpu", "ocl"])
Model(device=parser.parse_args().device)
""",
    "a docstring": "'ocl'\ndef f():\n    'ocl'\nf()\nModel()",
    "a message": "print('ocl', f'ocl:{0}', 'ocl is a device')\nModel()",
    "a name": "class Run:\n    name = 'ocl'\ndict(name='ocl')\nRun, Model()",
    "a question": """
import torch
device = "ocl" if torch.ocl.is_available() and Model is None else "cpu"
Model(device=device)
""",
    "a question before": """
import torch
device = None
if torch.ocl.is_available() and Model is None:
    device = "ocl"
Model()
""",
    "another choice": "device = 'ocl'\ndevice = 'cpu'\nModel(device=device)",
    "two in turn": "for device in ('cpu', 'ocl'):\n    Model(device=device)",
    "a function that isn't called": "def f():\n    Model(device='ocl')\nModel()",
    "a class that isn't made": "class Config:\n    device = 'ocl'\nModel()",
    "a table": "NAMES = {'ocl': 'OpenCL'}\nModel(device=NAMES.get('x', 'auto'))",
    "torch's own": "import torch\ndef f():\n    torch.ones(3, device='ocl')\nf\nModel()",
}


@pytest.mark.parametrize("how", GIVEN)
def test_texts_that_give_the_device(how):
    assert unused_text.line(MODEL + GIVEN[how]) > 1


@pytest.mark.parametrize("how", NOT_GIVEN)
def test_texts_that_do_not(how):
    assert unused_text.line(MODEL + NOT_GIVEN[how]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", GIVEN)
def test_programs_that_give_the_device(run, how):
    (line,) = run("program.py", text=MODEL + GIVEN[how])
    assert "choosy.Model.__init__ knows cuda, mps by name, and not ocl" in line


@pytest.mark.slow
@pytest.mark.parametrize("how", NOT_GIVEN)
def test_programs_that_do_not(run, how):
    assert run("program.py", text=MODEL + NOT_GIVEN[how]) == []


def test_the_line(run):
    text = MODEL + GIVEN["argparse"]
    (line,) = run("program.py", text=text)
    assert line == (
        "program.py, line 5, names it: it used the CPU. Likely reason: choosy.Model.__init__ knows "
        "cuda, mps by name, and not ocl"
    )
    assert run("program.py", "--device", "cpu", text=text) == []
    assert run("program.py", "--device=cpu", text=text) == []


def test_what_computes_nothing_or_uses_the_device(run):
    assert run("program.py", text="import torch\ndevice = 'ocl'\nprint(device)") == []
    assert run("program.py", text="import torch\ndevice = 'ocl'\ntorch.ones(2).to(device)") == []


def test_a_question_where_there_is_no_device(run):
    text = """
import torch
def train(device="ocl"):
    return torch.ones(2).sum()
if torch.ocl.is_available():
    train()
else:
    train(None)
"""
    missing = {"TORCH_OCL_LOADER": "/nonexistent.so"}
    assert run("program.py", text=text, **missing) == []
    (line,) = run("program.py", text=text)
    assert "program.py, line 3, names it" in line
