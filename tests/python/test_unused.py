"""A program that was given `ocl` and used it for nothing says so at its end, others don't."""

import subprocess
import sys

import pytest

from torch_ocl.notices import unused_calls


@pytest.mark.parametrize(
    "arguments",
    [
        "--device ocl",
        "--device OCL",
        "--device=ocl:0",
        "-d ocl",
        "--dev ocl",
        "--dev=ocl",
        "device=ocl",
        "model=a,device=ocl,batch=1",
    ],
)
def test_an_argument(run, arguments):
    (line,) = run("program.py", *arguments.split())
    said = "device=ocl" if arguments.startswith("model") else arguments
    assert line.startswith(f"program.py was given {said}: it used the CPU. Likely reason")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "ocl",
        "--name ocl",
        "-n ocl",
        "--device cpu ocl",
        "--device ocl --help",
        "--device ocl --then use",
        "--device ocl --then move",
        "--device ocl --then launch",
        "--device ocl --then fail",
        "--device ocl --then raise",
        "--device ocl --nonsense",
    ],
)
def test_silence(run, arguments):
    assert run("program.py", *arguments.split()) == []


def test_turned_off(run):
    assert run("program.py", "--device", "ocl", TORCH_OCL_NOTICES="0") == []


@pytest.mark.slow
def test_of_several_processes_one_speaks(run):
    assert len(run("program.py", "--device", "ocl", "--then", "spawn")) == 1
    assert run("program.py", "--device", "ocl", LOCAL_RANK="1") == []
    assert len(run("program.py", "--device", "ocl", LOCAL_RANK="0")) == 1


def test_where_there_is_no_device(run):
    (line,) = run("program.py", "--device", "ocl", TORCH_OCL_LOADER="/nonexistent.so")
    assert "OpenCL is not available: no ICD loader" in line and "pip install" in line


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ("--device cpu", "--device cpu chose another device"),
        ("--then ask", "torch.cuda.is_available() was True"),
        ("", "it never asked torch.cuda.is_available()"),
    ],
)
def test_programs_that_say_cuda(run, arguments, reason):
    (line,) = run("-m", "torch_ocl", "run", "program.py", *arguments.split())
    assert line.startswith("cuda means ocl in this program: it used the CPU.") and reason in line


def test_the_variable(run):
    (line,) = run("program.py", TORCH_OCL_AS_CUDA="1")
    assert line.startswith("cuda means ocl in this program")
    assert run("program.py", TORCH_OCL_AS_CUDA="0") == []


IDLE = [
    "import torch\nprint(torch.cuda.is_available())",
    "import torch\nprint(torch.cuda.device_count(), torch.cuda.get_device_name())\n"
    "torch.manual_seed(0)\nprint(torch.cuda.get_device_properties(0), torch.cuda.mem_get_info())",
    "import torch",
    'import torch\nx = torch.empty(0, device="cuda")\nprint(x + 1, torch.cuda.get_device_name())',
    'import torch\nif torch.cuda.is_available():\n    torch.nn.Linear(0, 3).to("cuda")',
]


@pytest.mark.slow
def test_programs_that_only_ask(run):
    for text in IDLE:
        assert run("program.py", text=text, TORCH_OCL_AS_CUDA="1") == [], text
    assert run("-c", IDLE[0], TORCH_OCL_AS_CUDA="1") == []
    assert run("program.py", "--device=ocl", text="import torch") == []


def test_a_program_that_asks_and_takes_the_cpu(run):
    for work in ("torch.ones(1)", "torch.nn.Linear(2, 2)", "torch.tensor([1.0])"):
        text = f"{IDLE[0]}\n{work}"
        (line,) = run("program.py", text=text, TORCH_OCL_AS_CUDA="1")
        assert "it used the CPU. torch.cuda.is_available() was True" in line


def test_a_launcher_of_what_takes_the_cpu(run):
    """The one that speaks has computed nothing itself."""
    text = """
import subprocess, sys, torch
subprocess.run([sys.executable, "-c", "import torch; " + sys.argv[1]], check=True)
"""
    for work, lines in (("torch.ones(3).sum()", 1), ("torch.cuda.is_available()", 0)):
        assert len(run("program.py", work, text=text, TORCH_OCL_AS_CUDA="1")) == lines


OWN = """
import subprocess, sys, torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader

def f(index=0, device="cpu"):
    torch.ones(3, device=device).sum()

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return torch.ones(2, device="cuda" if sys.argv[1] == "loader" else "cpu")

if __name__ == "__main__":
    then = sys.argv[1]
    if then in ("spawn", "fork"):
        mp.start_processes(f, args=("cuda",), nprocs=2, start_method=then)
    elif then == "spawn on the cpu":
        mp.start_processes(f, nprocs=2, start_method="spawn")
    elif then == "launch":
        use = "import torch; torch.ones(3, device='cuda').sum()"
        subprocess.run([sys.executable, "-c", use], check=True)
    elif then == "launch on the cpu":
        subprocess.run([sys.executable, __file__, "nothing"], check=True)
    elif then == "loader":
        list(DataLoader(Items(), num_workers=1, multiprocessing_context="spawn"))
    f()
"""


@pytest.mark.parametrize(
    "then, lines",
    [
        ("nothing", 1),
        ("spawn on the cpu", 1),
        ("launch on the cpu", 1),
        ("spawn", 0),
        ("fork", 0),
        ("launch", 0),
        ("loader", 0),
    ],
)
def test_a_program_that_never_asks_for_cuda(run, then, lines):
    """It speaks for the processes that it starts."""
    found = run("program.py", then, text=OWN, TORCH_OCL_AS_CUDA="1")
    assert len(found) == lines
    assert all("it never asked torch.cuda.is_available()" in line for line in found)


FORKING = """
import os, signal, sys
from os import _exit as leave
import torch
how = sys.argv[1]
if os.fork() == 0:
    torch.ones(3, device="cpu" if how == "not" else sys.argv[2]).sum()
    if how == "forked again":
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "another program":
        os.execv(sys.executable, [sys.executable, "-c", ""])
    elif how == "exit":
        sys.exit()
    leave(0)
os.wait()
torch.ones(3).sum()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "how, lines",
    [
        ("not", 1),
        ("exit", 0),
        ("_exit", 0),
        ("forked again", 0),
        ("killed", 0),
        ("another program", 0),
    ],
)
def test_forked_children(run, how, lines):
    variable = {"TORCH_OCL_AS_CUDA": "1"}
    assert len(run("program.py", how, "cuda", text=FORKING, **variable)) == lines
    assert len(run("program.py", how, "ocl", "--device=ocl", text=FORKING)) == lines


GIVEN = """
import os, sys
import torch
place, work, *how = sys.argv[2:]
if place != "parent":
    if work == "fork" and os.fork():
        os.wait()
    else:
        torch.ones(3, device=place).sum()
    if "killed" in how:
        os.kill(os.getpid(), 9)
else:
    if "idle" not in how:
        torch.ones(3).sum()
    os.system(f"{sys.executable} {__file__} {work}")
"""


@pytest.mark.parametrize(
    "child, lines",
    [
        ("--device=ocl ocl plain", 0),
        ("--device=ocl ocl fork", 0),
        ("--device=ocl ocl plain killed", 0),
        ("--device=ocl cpu plain", 2),
        ("--device=ocl cpu plain idle", 1),
    ],
)
def test_a_started_program_with_an_argument(run, tmp_path, child, lines):
    """Its parent hears what it does. It speaks for itself, and the parent of what it did itself."""
    words = ["--name=a", "parent", child, *child.split()[3:]]
    found = run("program.py", *words, text=GIVEN, TORCH_OCL_AS_CUDA="1", TMPDIR=str(tmp_path))
    assert len(found) == lines
    assert sum("was given --device=ocl" in line for line in found) == min(lines, 1)
    assert not list(tmp_path.glob("torch_ocl_*"))


def test_a_started_program_that_ends_at_once(run):
    text = """
import subprocess, sys, torch
work = "import os, torch; torch.ones(3, device='cuda').sum(); os._exit(0)"
subprocess.run([sys.executable, "-c", work], check=True)
torch.ones(3).sum()
"""
    assert run("program.py", text=text, TORCH_OCL_AS_CUDA="1") == []


@pytest.mark.slow
def test_small_commands_say_nothing(run, tmp_path):
    """Nobody wants a line from each tool that imports torch, where the variable is always set."""
    variable = {"TORCH_OCL_AS_CUDA": "1"}
    assert run("-c", "import torch; torch.ones(2).sum()", **variable) == []
    assert run("-m", "pip", "--version", **variable) == []
    assert run("-m", "torch.utils.collect_env", **variable) == []
    (tmp_path / "test_it.py").write_text("import torch\ndef test(): torch.ones(2).sum()")
    assert run("-m", "pytest", "-q", "--collect-only", "test_it.py", **variable) == []
    setup = "import setuptools, torch\ntorch.ones(2).sum()"
    assert run("program.py", text=setup, **variable) == []


def test_long_commands_speak(run):
    code = (
        "import torch; from torch_ocl.notices import unused as _u; _u._SHORT_COMMAND = 0; "
        "torch.ones(2).sum()"
    )
    (line,) = run("-c", code, TORCH_OCL_AS_CUDA="1")
    assert line.startswith("cuda means ocl in this program")


def test_a_library_that_was_there_first(run):
    text = "import choosy, torch_ocl\ntorch_ocl.cuda_to_ocl()\nchoosy.train(None, None)"
    (line,) = run("program.py", text=text)
    assert "choosy was imported before torch_ocl.cuda_to_ocl() was called" in line


@pytest.mark.slow
def test_commands_and_tests_say_nothing(run, tmp_path):
    assert run("-m", "torch_ocl", "info", TORCH_OCL_AS_CUDA="1") == []
    assert run("-m", "torch_ocl", "cache", TORCH_OCL_AS_CUDA="1") == []
    (tmp_path / "test_it.py").write_text("import torch\ndef test(): torch.ones(2).sum()")
    assert run("-m", "pytest", "-q", "test_it.py", TORCH_OCL_AS_CUDA="1") == []


def test_a_call_of_a_library(run):
    text = "import choosy\nif __name__ == '__main__':\n    choosy.Model(device='ocl')"
    (line,) = run("program.py", text=text)
    assert line == (
        "choosy.Model was given device='ocl': it used the CPU. Likely reason (program.py, line 3): "
        "choosy.Model.__init__ knows cuda, mps by name, and not ocl"
    )
    (line,) = run("-c", "from choosy import Model\nModel(device='ocl')")
    assert "choosy.Model.__init__ knows cuda, mps" in line


POSITIONAL = [
    "import choosy\nchoosy.Model('ocl')",
    "from choosy import Trainer as T\nT(None, 'ocl')",
    "import choosy as c\ndevice = 'ocl'\ntrainer = c.Trainer(None)\ntrainer.fit(device)",
    "from choosy import Model\ndef main(where):\n    Model(where)\nmain('ocl')",
    "from choosy import Model\ndef main(*, where='ocl'):\n    Model(device=where)\nmain()",
    "def main(where):\n    import choosy\n    choosy.Model(where)\nmain(where='ocl')",
]
NAMELESS = [
    "from choosy import Trainer\nTrainer('ocl')",
    "from choosy import Trainer\nTrainer(None, 'cpu', 'ocl')",
    "from choosy import Trainer\nTrainer(None, 'cpu', 'a name', 'ocl')",
    "from choosy import Trainer\na = ['x']\nTrainer(*a, 'ocl')",
    "from choosy import train\ntrain(None, 'ocl')",
    "from choosy import Model\ndef f(x):\n    Model(x)\nf(Model)\nprint('ocl')",
    "print('ocl')",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", POSITIONAL)
def test_a_positional_argument_of_a_library(run, text):
    """By the name of the library's parameter."""
    (line,) = run("-c", text)
    assert " was given " in line and "='ocl'" in line


@pytest.mark.slow
@pytest.mark.parametrize("text", NAMELESS)
def test_other_positional_arguments(run, text):
    assert run("-c", text) == []


@pytest.mark.parametrize(
    "text, line",
    [
        ("import a\na.B(device='ocl')", 2),
        ("from a.b import B\ndevice = 'ocl:1'\nB(1, device=device)", 3),
        ("import a\ndef main():\n    with a.c() as d:\n        a.B(accelerator='ocl')\nmain()", 4),
        ("from a import B\nmodel = B()\nmodel.train(device='ocl')", 3),
        ("from a import B\nfor x in B(device_map='ocl'): pass", 2),
        # A call that may not run, isn't a library's, or isn't sure to be `ocl`.
        ("import a\nif a.c:\n    a.B(device='ocl')", None),
        ("import a\ndef main():\n    a.B(device='ocl')", None),
        ("import torch\ntorch.empty(0, device='ocl')", None),
        ("import torch_ocl\ntorch_ocl.testing.f(device='ocl')", None),
        ("import argparse\nargparse.Namespace(device='ocl')", None),
        ("def f(**k): pass\nf(device='ocl')", None),
        ("from a import B\nx = 'ocl'\nx = 'cpu'\nB(device=x)", None),
        ("from a import B\nx = 'ocl'\nif B: x = B.c\nB(device=x)", None),
        ("from a import B\nB(name='ocl')", None),
        ("this is no 'ocl' program", None),
    ],
)
def test_calls_that_are_found(text, line):
    found = unused_calls.find(text)
    assert (found and found.line) == line


def test_other_programs_get_nothing():
    """Neither a function at exit nor another sys.exit."""
    code = """
import sys
exit = sys.exit
import torch
from torch_ocl.notices import unused as _unused
print(exit is sys.exit, _unused._pid, "torch_ocl.notices.unused_calls" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["True", "0", "False"], "")
