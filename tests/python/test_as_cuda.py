"""TORCH_OCL_AS_CUDA=1: "cuda" means `ocl` in a program that is not changed, and in its children."""

import os
import subprocess
import sys
import textwrap

import pytest

AS_CUDA = {**os.environ, "TORCH_OCL_AS_CUDA": "1"}


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        env={**AS_CUDA, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


#: Uses of a device in public programs, each a line that prints True.
IDIOMS = """
d.type == "cuda"
d.type != "cpu"
"cuda" in str(d)
str(d).startswith("cuda")
f"{d}".split(":")[0] == "cuda"
d.type in ("cuda", "mps")
{"cuda": 1, "cpu": 0}[d.type] == 1
d.type.startswith("cuda")
torch.device(d.type, d.index or 0) == x.device
torch.device(str(x.device)) == x.device
x.device == torch.device("cuda:0")
x.device == torch.device("cuda", 0)
x.is_cuda and not x.is_cpu
x.to(d.type).is_cuda
getattr(torch, d.type).is_available()
torch.get_device_module(d).device_count() == torch.cuda.device_count()
torch.Generator(device=x.device).device.type == "cuda"
torch.zeros(2, device=d.type).device == x.device
torch.amp.GradScaler(d.type).is_enabled()
torch.is_autocast_enabled(d.type) is False
pickle.loads(pickle.dumps(d)) == d
copy.deepcopy(x).device.type == "cuda"
x.storage().device.type == "cuda"
torch.empty_like(x).get_device() == 0
next(torch.nn.Linear(2, 2).to(d).parameters()).device.type == "cuda"
torch.cuda.get_device_properties(x.device).total_memory > 0
torch.cuda.memory_allocated(x.device) > 0
torch.optim.AdamW([torch.nn.Parameter(x)], fused=d.type == "cuda").defaults["fused"]
type(x.device) is torch.device
type(torch.Generator("cuda")) is torch.Generator
type(torch.cuda.Stream()) is torch.cuda.Stream
type("S", (torch.cuda.Stream,), {})("cuda:0").device == x.device
b"cuda" in pickle.dumps(d) and b"ocl" not in pickle.dumps(d)
""".strip().splitlines()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_what_programs_do_with_a_device(compiled):
    if compiled:
        code = """
        import torch
        import torch._inductor.config

        def branch(t):
            return t + 1 if t.device.type == "cuda" else t - 1

        def text(t):
            return t + 1 if "cuda" in str(t.device) else t - 1

        x = torch.zeros(3, device="cuda")
        for function in (branch, text):
            compiled = torch.compile(function, fullgraph=True)
            print(torch.equal(compiled(x), function(x)), compiled(x)[0].item() == 1)
        """
        assert run(code) == ["True"] * 4
        return
    lines = "\n".join(f"print({line})" for line in IDIOMS)
    code = "import copy, pickle, torch\nd = torch.device('cuda')\nx = torch.ones(3, device=d)\n"
    assert run(code + lines) == ["True"] * len(IDIOMS)


def test_torch_itself_sees_the_device():
    """torch's own code compares types with "cuda" to call CUDA's functions."""
    code = """
    import torch
    from torch.utils._device import _device_constructors
    namespace = {"__name__": "torch.somewhere"}
    exec("def kind(d): return d.type, str(d)", namespace)
    d = torch.device("cuda:0")
    print(*namespace["kind"](d), d.type, str(d), repr(d))
    """
    assert run(code)[:4] == ["ocl", "ocl:0", "cuda", "cuda:0"]


def test_without_the_variable_nothing_is_changed():
    code = "import torch; d = torch.device('ocl'); print(d.type, d, torch.cuda.is_available())"
    assert run(code, TORCH_OCL_AS_CUDA="0") == ["ocl", "ocl", "False"]


CHILD = """
import torch

def work(rank=0, *rest):
    assert torch.cuda.is_available()
    assert torch.zeros(2, device="cuda").is_cuda and torch.device("cuda").type == "cuda"
    print("on the device", flush=True)
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_of_torch_multiprocessing(tmp_path, method):
    program = tmp_path / "program.py"
    start = f"""
import torch.multiprocessing as mp
if __name__ == "__main__":
    mp.start_processes(work, nprocs=2, start_method="{method}")
"""
    program.write_text(CHILD + start)
    done = subprocess.run(
        [sys.executable, str(program)], env=AS_CUDA, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("on the device") == 2


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "console", "run", "run torchrun"])
def test_launchers(tmp_path, launcher):
    program = tmp_path / "program.py"
    program.write_text(CHILD + "work()\n")
    command = {
        "torchrun": ["torch.distributed.run", "--nproc-per-node=2", str(program)],
        "accelerate": ["accelerate.commands.launch", "--num_processes=1", str(program)],
        "run": ["torch_ocl", "run", "-m", "torch.distributed.run", "--nproc-per-node=2"],
        "run torchrun": ["torch_ocl", "run", "torchrun", "--nproc-per-node=2"],
    }
    if launcher == "accelerate":
        pytest.importorskip("accelerate")
    if launcher == "console":
        # As pip writes it for an entry point.
        script = tmp_path / "tool"
        head = f"#!{sys.executable}\nimport sys\nsys.path.insert(0, '{tmp_path}')\n"
        script.write_text(head + "from program import work\n")
        script.chmod(0o755)
        arguments = [str(script)]
    else:
        arguments = [sys.executable, "-m", *command[launcher]]
    environment = dict(AS_CUDA)
    if launcher.startswith("run"):  # it needs no variable
        del environment["TORCH_OCL_AS_CUDA"]
        arguments.append(str(program))
    done = subprocess.run(
        arguments, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = 1 if launcher in ("accelerate", "console") else 2
    assert done.stdout.count("on the device") == ranks


def test_children_of_a_program_that_calls_the_function():
    code = """
    import subprocess, sys, torch_ocl
    torch_ocl.cuda_to_ocl()
    child = "import torch; print(torch.zeros(1, device='cuda').is_cuda)"
    print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
    """
    assert run(code, TORCH_OCL_AS_CUDA="0") == ["True"]


def test_workers_of_a_data_loader():
    code = """
    import torch
    from torch.utils.data import DataLoader

    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return torch.tensor([i, torch.cuda.is_available()])

    if __name__ == "__main__":
        # The second begins once this process has used the device.
        for _ in range(2):
            loader = DataLoader(Items(), num_workers=1, multiprocessing_context="fork")
            print(all(batch[0, 1] == 1 for batch in loader))
            print(torch.cat(list(loader)).to("cuda").is_cuda)
    """
    assert run(code) == ["True", "True"] * 2


def test_functions_of_cuda_in_torch_c():
    """Those that public libraries call, by a search over bitsandbytes, accelerate, apex, DeepSpeed,
    vLLM, xformers and Triton's users."""
    code = """
    import torch
    from torch_ocl.upstream.as_cuda import native as _cuda_native
    C = torch._C
    index = C._cuda_getDevice()
    print(C._cuda_getCurrentRawStream(index) != 0)
    print(C._cuda_getCurrentStream(index) == C._cuda_getDefaultStream(index))
    print(C._cuda_isCurrentStreamCapturing(), C._cuda_isInBadFork())
    print(C._cuda_memoryStats(index)["reserved_bytes"]["all"]["current"] >= 0)
    print(C._cuda_exchangeDevice(0), C._cuda_maybeExchangeDevice(-1), C._cuda_getArchFlags())
    print(C._cuda_clearCublasWorkspaces(), C._cuda_emptyCache(), C._cuda_synchronize())
    print(all(getattr(C, name) for name in _cuda_native.functions()))
    print(hasattr(C, "_cuda_getDeviceCount"), torch.cuda._is_compiled())
    """
    assert run(code) == (
        "True True False False True 0 -1 None None None None True False False".split()
    )


def test_handles_of_events():
    code = """
    import ctypes, torch
    e, other = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    print(e.cuda_event)
    e.record()
    other.record()
    print(type(e.cuda_event) is int and e.cuda_event != other.cuda_event, e.cuda_event != 0)
    print(type(e._as_parameter_) is ctypes.c_void_p, e._as_parameter_.value == e.cuda_event)
    for share in (e.ipc_handle, lambda: torch.cuda.Event(interprocess=True)):
        try:
            share()
        except RuntimeError:
            print("refused")
    """
    assert run(code) == ["0", "True", "True", "True", "True", "refused", "refused"]


WRITE = """
import sys, torch
x = torch.arange(3.0, device=sys.argv[1])
torch.save({"x": x, "d": x.device, "sparse": x.to_sparse()}, sys.argv[2])
"""
READ = """
import sys, torch
seen = []
def where(storage, place):
    seen.append(place)
    return storage.cuda() if place.startswith("cuda") else storage
for place in (None, "cuda", "cuda:0", torch.device("cuda"), where, lambda storage, place: storage,
              lambda storage, place: storage.cuda(), "cpu", {"cuda:0": "cpu"}, {"ocl:0": "cpu"}):
    read = torch.load(sys.argv[1], map_location=place)
    assert read["x"].tolist() == read["sparse"].to_dense().tolist() == [0, 1, 2]
    assert read["sparse"].device == read["x"].device
    print(read["x"].device, read["d"])
print(*seen)
"""


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True])
def test_files(tmp_path, old):
    """Files that are written with the variable say "cuda". Those that say `ocl` are read, too."""
    path = str(tmp_path / "x.pt")
    write = WRITE.replace("sys.argv[2])", f"{path!r}, _use_new_zipfile_serialization={not old})")
    read = READ.replace("sys.argv[1]", repr(path))
    on_device, on_cpu = ["cuda:0", "cuda:0"], ["cpu", "cuda:0"]
    storages = ["cuda:0"] * 3  # those of the sparse tensor's indices and values, too
    expected = on_device * 5 + on_cpu + on_device + on_cpu * 3 + storages
    run(write.replace("sys.argv[1]", "'cuda'"))
    with open(path, "rb") as file:
        text = file.read()
    assert b"cuda" in text and b"ocl" not in text
    assert run(read) == expected
    # Elsewhere it is a file of CUDA's.
    elsewhere = f"import torch; print(torch.load({path!r}, map_location='ocl')['x'].device)"
    assert run(elsewhere, TORCH_OCL_AS_CUDA="0") == ["ocl:0"]
    plain = f"import torch; print(*torch.load({path!r}, map_location='cpu').values())"
    found = " ".join(run(plain, TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
    assert found.startswith("tensor([0., 1., 2.]) cuda:0 tensor(indices=tensor([[1, 2]]),")
    run(write.replace("sys.argv[1]", "'ocl'"), TORCH_OCL_AS_CUDA="0")
    assert run(read) == expected


def test_distributed_checkpoints(tmp_path):
    """Files of several tensors are written by a loader that asks for the device's type."""
    code = f"""
    import torch
    import torch.distributed.checkpoint as dcp
    x = torch.arange(6.0, device="cuda")
    dcp.save({{"x": x, "y": x * 2}}, checkpoint_id={str(tmp_path)!r})
    found = {{"x": torch.zeros(6, device="cuda"), "y": torch.zeros(6, device="cuda")}}
    dcp.load(found, checkpoint_id={str(tmp_path)!r})
    print(torch.equal(found["x"], x) and torch.equal(found["y"], x * 2), found["x"].device)
    """
    assert run(code) == ["True", "cuda:0"]


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", ["auto", "gpu", "cuda"])
def test_lightning(accelerator):
    pytest.importorskip("lightning")
    code = f"""
    import torch, lightning
    from lightning.fabric import Fabric

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch):
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    fabric = Fabric(accelerator="{accelerator}", devices=1)
    print(fabric.device.type)
    trainer = lightning.Trainer(
        accelerator="{accelerator}", devices=1, max_steps=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    model = Model()
    trainer.fit(model, torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4))
    print(trainer.strategy.root_device.type, torch.ocl.launch_count() > 0)
    # Its lines at the start say by that whether the GPU is used.
    print(isinstance(trainer.accelerator, lightning.pytorch.accelerators.CUDAAccelerator))
    """
    assert run(code) == ["cuda", "cuda", "True", "True"]


@pytest.mark.parametrize("value", ["no", "off"])
def test_other_values_are_off(value):
    """In this process and its children, as of all switches."""
    code = """
    import subprocess, sys, torch
    said = "import torch; print(torch.cuda.is_available())"
    child = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True)
    print(torch.cuda.is_available(), child.stdout.strip())
    """
    assert run(code, TORCH_OCL_AS_CUDA=value) == ["False", "False"]


def test_a_wrong_value_is_said():
    from torch_ocl import _environment

    before = os.environ.get("TORCH_OCL_AS_CUDA")
    os.environ["TORCH_OCL_AS_CUDA"] = "yes"
    try:
        assert any("TORCH_OCL_AS_CUDA=yes" in line for line in _environment.wrong_values())
        with pytest.warns(UserWarning, match="TORCH_OCL_AS_CUDA=yes: 0 and 1 are known"):
            assert not _environment.is_as_cuda()
    finally:
        os.environ.pop("TORCH_OCL_AS_CUDA")
        if before is not None:
            os.environ["TORCH_OCL_AS_CUDA"] = before


@pytest.mark.parametrize("backend", [None, "nccl", "cpu:gloo,cuda:nccl", "gloo"])
def test_process_groups_of_a_device(backend, tmp_path):
    """torchrun's programs name it. "cuda" and `ocl` are then one device to a group."""
    code = f"""
    import torch
    import torch.distributed as dist

    device = torch.device("cuda:0")
    store = dist.FileStore({str(tmp_path / "store")!r}, 1)
    dist.init_process_group({backend!r}, store=store, rank=0, world_size=1, device_id=device)
    for tensor in (torch.ones(3, device=device), torch.ones(3)):
        dist.all_reduce(tensor)
        dist.all_reduce(tensor, group=dist.new_group([0]))
    dist.barrier(device_ids=[0])
    print(tensor.sum().item())
    dist.destroy_process_group()
    """
    assert run(code) == ["3.0"]


VISIBLE = {"0": 1, "0,9": 1, "9,0": 0, "-1": 0, "": 0, "GPU-0a1b": None}


@pytest.mark.slow
@pytest.mark.parametrize("visible", VISIBLE)
def test_cuda_visible_devices(visible):
    """Programs set it, also once torch is imported, and launchers set it for their processes."""
    code = f"""
    import os, torch
    os.environ["CUDA_VISIBLE_DEVICES"] = {visible!r}
    print(torch.cuda.device_count(), torch.cuda.is_available())
    """
    count = VISIBLE[visible]
    if count is None:
        count = int(run("import torch; print(torch.cuda.device_count())", TORCH_OCL_DEVICES="")[0])
    assert run(code, TORCH_OCL_DEVICES="") == [str(count), str(count > 0)]


def test_torch_ocl_devices_comes_before_it():
    code = "import torch; print(torch.cuda.device_count())"
    assert run(code, CUDA_VISIBLE_DEVICES="-1", TORCH_OCL_DEVICES="0") == ["1"]
