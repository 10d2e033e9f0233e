"""TORCH_OCL_AS_CUDA=1: torch's functions and classes are named, compared and pickled as upstream's.

A pickle says where an object stands in torch. It is read in processes of both kinds, and by a torch
that has CUDA.
"""

import inspect
import pickle
import pkgutil
import sys

import pytest

from tests.python.test_as_cuda import run

PLACES = """
torch torch.accelerator torch.accelerator.memory torch.amp torch.autograd torch.autograd.profiler
torch.backends.cuda torch.cuda torch.cuda.amp torch.cuda.comm torch.cuda.gds torch.cuda.graphs
torch.cuda.green_contexts torch.cuda.jiterator torch.cuda.memory torch.cuda.nccl torch.cuda.nvtx
torch.cuda.profiler torch.cuda.random torch.cuda.streams torch.cuda.tunable torch.fft torch.jit
torch.library torch.linalg torch.nested torch.nn torch.nn.functional torch.optim torch.profiler
torch.random torch.serialization torch.sparse torch.special torch.storage torch.utils.data
torch.Tensor torch.nn.Module torch.UntypedStorage torch.TypedStorage torch.Generator torch.device
torch.autocast torch.amp.GradScaler torch.library.Library torch.nn.utils.rnn.PackedSequence
torch.cuda.Event torch.cuda.Stream torch.cuda.CUDAGraph torch.cuda.graph torch.cuda.MemPool
""".split()
#: Their pickles name this package's classes: a storage's module tells its device.
OURS = ("Storage",)
#: Methods are pickled by their class, which is another one.
METHODS = tuple(f"torch.cuda.{kind}." for kind in ("Event", "Stream", "CUDAGraph", "MemPool"))
#: torch.cuda's classes are ours. The others are C code that takes no names, or C++, and a cache.
ELSE = (
    *("torch.cuda.", "torch.get_autocast_gpu_dtype", "torch.set_autocast_gpu_dtype"),
    *("torch.get_device_module", "torch.import_ir_module"),
)


def found():
    """The callable things of all places, by their full names."""
    for place in PLACES:
        owner = pkgutil.resolve_name(place)
        for name in dir(owner):
            value = None if name.startswith("__") else inspect.getattr_static(owner, name)
            if callable(value):
                yield f"{place}.{name}", getattr(owner, name)


def write(path):
    """Writes what pickles, with its names."""
    done = {}
    for name, value in found():
        try:
            pickled = pickle.dumps(value)
        except Exception:
            continue
        names = [getattr(value, a, "") for a in ("__module__", "__name__", "__qualname__")]
        done[name] = pickled, names, type(value).__name__
    with open(path, "wb") as file:
        pickle.dump(done, file)


def read(path):
    """Prints the names of what is another thing in this process."""
    with open(path, "rb") as file:
        pickled = pickle.load(file)
    here = dict(found())
    for name, (text, _, _) in pickled.items():
        loaded = pickle.loads(text)
        is_upstreams = not name.endswith(OURS) and not name.startswith(METHODS)
        if name in here and is_upstreams and loaded != here[name]:
            print(name)


CALL = "from tests.python import test_as_cuda_pickles as p; p.{}({!r})"


def test_what_pickles_without_the_variable_pickles_with_it(tmp_path):
    paths = {variable: str(tmp_path / variable) for variable in "01"}
    written = {}
    for variable, path in paths.items():
        run(CALL.format("write", path), TORCH_OCL_AS_CUDA=variable)
        with open(path, "rb") as file:
            written[variable] = pickle.load(file)
    plain, changed = written["0"], written["1"]
    assert len(plain) > 2000
    assert not sorted(plain.keys() - changed.keys())
    for name, (_, names, kind) in plain.items():
        if not name.startswith(METHODS) and not name.endswith(OURS):
            assert changed[name][2] == kind or name.startswith(ELSE), name
            assert changed[name][1] == names or "import_ir_module" in name, name
            assert b"ocl" not in changed[name][0], name
    for variable, path in paths.items():
        other = {"0": "1", "1": "0"}[variable]
        assert run(CALL.format("read", path), TORCH_OCL_AS_CUDA=other) == []
        assert run(CALL.format("read", path), TORCH_OCL_AS_CUDA=variable) == []


PROGRAM = """
import concurrent.futures, functools, io, multiprocessing, torch
from torch.utils.data import DataLoader

class Items(torch.utils.data.Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return self.transform([i, i])


if __name__ == "__main__":
    partial = functools.partial(torch.as_tensor, dtype=torch.float64)
    for transform in (torch.tensor, partial):
        loader = DataLoader(Items(transform), num_workers=1, multiprocessing_context="spawn")
        print([batch.tolist() for batch in loader] == [[[0, 0]], [[1, 1]]])
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        print(pool.submit(torch.cuda.device_count).result() == torch.cuda.device_count() > 0)
        name = pool.submit(torch.cuda.get_device_name, "cuda:0").result()
        print(name == torch.cuda.get_device_name())
    file = io.BytesIO()
    torch.save({"init": torch.zeros}, file)
    file.seek(0)
    init = torch.load(file, weights_only=False)["init"]
    print(init == torch.zeros, init(2, device="cuda").is_cuda)
"""


@pytest.mark.slow
def test_programs_that_pickle_functions(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = [sys.executable, "-W", "ignore", str(program)]  # a child imports it by its path
    code = f"import subprocess, sys; sys.exit(subprocess.run({arguments!r}).returncode)"
    assert run(code) == ["True"] * 6


def test_functions_are_upstreams_objects():
    """Tables that are made by them find them: those of tensor subclasses, torch.fx and programs."""
    code = """
    import copy, functools, inspect, weakref
    import torch
    zeros = torch.zeros
    print(repr(zeros).startswith("<built-in method zeros of type"), zeros is torch.zeros)
    print(zeros == torch._C._VariableFunctions.zeros, zeros.__module__)
    print(copy.deepcopy(zeros) is zeros, weakref.ref(zeros)() is zeros)
    print(functools.wraps(zeros)(lambda *a: None).__name__)
    print(inspect.isbuiltin(zeros), inspect.ismethoddescriptor(torch.Tensor.to))
    print(inspect.signature(torch.cuda.get_device_name).parameters["device"].default)
    print(torch.Tensor.cuda.__qualname__, torch.Tensor.type.__qualname__)

    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    seen = []
    x = torch.ones(2).as_subclass(Sub)
    functions = torch.zeros_like, torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.new_zeros
    for f, rest in zip(functions, ((), ("cuda",), (), (2,))):
        f(x, *rest)
        print(f in seen)

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.zeros_like(x, device="cuda") + x.to("cuda")

    traced = torch.fx.symbolic_trace(Model())
    print("torch.zeros_like(x" in traced.code, traced(torch.ones(2)).device)
    with torch.device("cuda"):
        print(torch.zeros(1).device, torch.tensor(1.0).device, torch.as_tensor([1]).device)
    """
    expected = "True True True torch True True zeros True True None TensorBase.cuda TensorBase.type"
    assert run(code) == [*expected.split(), *["True"] * 5, *["cuda:0"] * 4]
