"""Programs that say "cuda" run as they are, after torch_ocl.cuda_to_ocl()."""

import os
import subprocess
import sys
import textwrap

import pytest

from tests import fresh


def run(code, cwd=None):
    script = "import torch, torch_ocl\ntorch_ocl.cuda_to_ocl()\n" + textwrap.dedent(code)
    done = fresh.run_script(script, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


TRAINING = """
import sys
import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
if torch.cuda.is_available():
    torch.cuda.manual_seed_all(0)
    torch.backends.cudnn.benchmark = True
    print(torch.cuda.get_device_name(0).replace(" ", "_"), sys.argv[1:])
x = torch.randn(64, 8)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), 16, pin_memory=True)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scaler = GradScaler()
losses = []
for epoch in range(3):
    for inputs, labels in loader:
        inputs = inputs.cuda(non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = nn.functional.cross_entropy(model(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
torch.cuda.synchronize()
assert scaler.get_scale() > 1 and next(model.parameters()).is_cuda
torch.save({"model": model.state_dict()}, "model.pt")
kept = torch.load("model.pt", map_location="cuda", weights_only=True)["model"]
model.load_state_dict(kept)
assert torch.cuda.max_memory_allocated() > 0
torch.cuda.empty_cache()
print(losses[0], losses[-1])
"""


def test_a_training_script(tmp_path):
    *_, first, last = run(TRAINING, tmp_path)
    assert 0 < float(last) < float(first)


def test_run_on_the_command_line(tmp_path):
    (tmp_path / "program.py").write_text(TRAINING + "\nassert __name__ == '__main__'\nsys.exit(3)")
    text = (tmp_path / "program.py").read_text()
    for arguments in (["program.py"], ["-u", "program.py"], ["-m", "program"], ["-c", text], ["-"]):
        done = subprocess.run(
            [sys.executable, "-m", "torch_ocl", "run", *arguments, "--epochs", "5"],
            input=text,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 3, done.stderr
        assert "['--epochs', '5']" in done.stdout


def test_unbuffered(tmp_path):
    """Nothing that was written is lost, however the program ends."""
    text = "import os, sys; sys.stdout.write('out'); sys.stderr.write('err'); os._exit(0)"
    (tmp_path / "program.py").write_text(text)
    for arguments in (["-u", "program.py"], ["-u", "-c", text]):
        command = [sys.executable, "-m", "torch_ocl", "run", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("out", "err")


@pytest.fixture
def commands(tmp_path):
    """Runs a command by `torch_ocl run`: "tool" is a package's, "script" and "other" are on the
    PATH."""
    package, path = tmp_path / "tool-1.0.dist-info", tmp_path / "bin"
    package.mkdir(), path.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[console_scripts]\ntool = tool:main\n")
    work = "import sys, torch\nprint(torch.ones(1).cuda().is_cuda, *sys.argv[1:])\n"
    (tmp_path / "tool.py").write_text(f"def main():\n    exec({work!r})\n    return 3")
    heads = {"script": f"#!{sys.executable}\n", "other": "#!/bin/sh\n"}
    for name, head in heads.items():
        (path / name).write_text(head + work + "sys.exit(3)")
        (path / name).chmod(0o755)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}

    def run(*arguments):
        command = [sys.executable, "-m", "torch_ocl", "run", *arguments]
        return subprocess.run(
            command, cwd=path.parent, capture_output=True, text=True, env=os.environ | environment
        )

    return run


@pytest.mark.parametrize("name", ["tool", "script"])
def test_commands_of_packages(commands, name):
    done = commands(name, "-x", "1")
    assert (done.returncode, done.stdout) == (3, "True -x 1\n"), done.stderr


def test_a_file_goes_before_a_command(commands, tmp_path):
    (tmp_path / "tool").write_text("print('the file')")
    assert commands("tool").stdout == "the file\n"


def test_other_commands(commands):
    for name in ("other", "ls", "bin/nosuch"):
        done = commands(name)
        assert done.returncode == 2 and "can't open file" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["nosuch.py"], ["folder"], ["-m", "nosuch"], ["-m", "os.nosuch"], ["-m", "folder"]],
    ids=" ".join,
)
def test_programs_that_are_not_there(tmp_path, arguments):
    """They end with what `python` says, and no traceback."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__init__.py").touch()

    def said(*command):
        done = subprocess.run(
            [sys.executable, *command, *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        return done.returncode, done.stderr.splitlines()

    status, lines = said("-m", "torch_ocl", "run")
    _, wanted = said()
    if arguments == ["-m", "os.nosuch"]:  # Python has a longer sentence for this
        wanted = [f"{sys.executable}: No module named os.nosuch"]
    assert (status, lines) == (2, wanted)


def test_a_program_that_lacks_a_module_has_its_traceback(tmp_path):
    (tmp_path / "program.py").write_text("import nosuch")
    for arguments in (["program.py"], ["-m", "program"]):
        command = [sys.executable, "-m", "torch_ocl", "run", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 1 and "ModuleNotFoundError: No module named 'nosuch'" in (
            done.stderr
        )


def test_names_of_devices():
    run("""
    for name in ("cuda", "cuda:0"):
        device = torch.device(name)
        assert device.type == "cuda" and isinstance(device, torch.device)
        for made in (
            torch.zeros(2, device=name), torch.zeros(2, device=device),
            torch.tensor([1.0], device=name), torch.arange(3, device=name),
            torch.ones(2).to(name), torch.ones(2).to(device=name),
            torch.ones(2).to(name, torch.half),
            torch.ones(2).new_zeros(3, device=name), torch.empty_like(torch.ones(2), device=name),
            torch.ones(2).cuda(), torch.ones(2).cuda(0), torch.ones(2).cuda(device),
            torch.ones(2).cuda(non_blocking=True), torch.as_tensor([1], device=name),
            torch.eye(2, device=name), torch.rand(2, device=name), torch.full((2,), 1, device=name),
            torch.randint(3, (2,), device=name), torch.linspace(0, 1, 3, device=name),
            torch.fft.fftfreq(4, device=name), torch.cuda.FloatTensor([1.0]),
            torch.nn.Linear(1, 1, device=name).weight, torch.nn.Linear(1, 1).to(name).weight,
            torch.nn.Linear(1, 1).cuda().bias,
        ):
            assert made.device == torch.device("ocl:0") and made.is_cuda, made
    assert torch.device("cuda", 0) == torch.device("ocl", 0) == torch.device(0)
    assert torch.device(type="cuda", index=0) == torch.device("cuda:0")
    assert torch.zeros(1).device.type == "cpu" and not torch.zeros(1).is_cuda
    assert torch.zeros(1, device="meta").device.type == "meta"
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda
    torch.set_default_device("cuda")
    assert torch.ones(2).is_cuda
    torch.set_default_device(None)
    try:
        torch.zeros(1, device="nonsense")
    except RuntimeError as error:
        assert "nonsense" in str(error)
    else:
        raise AssertionError
    """)


def test_devices_are_as_good_as_before():
    run("""
    import copy, pickle, typing
    device = torch.device("cuda:0")
    assert pickle.loads(pickle.dumps(device)) == device == copy.deepcopy(device)
    assert pickle.loads(pickle.dumps(torch.device)) is torch.device
    assert type(device) in (torch.device, int) and type(device) in {torch.device: 1}
    assert isinstance(device, torch.device | None) and issubclass(type(device), torch.device)
    assert typing.Optional[torch.device] and not isinstance("cuda", torch.device)
    assert repr(device) == "device(type='ocl', index=0)"
    generator = torch.Generator("cuda").manual_seed(3)
    assert isinstance(generator, torch.Generator) and generator.device.type == "cuda"
    a = torch.rand(3, device="cuda", generator=generator)
    assert torch.rand(3, device="cuda", generator=torch.Generator("cuda").manual_seed(3)).equal(a)
    assert torch.Generator().device.type == "cpu"
    from torch.nn.parameter import UninitializedParameter
    lazy = torch.nn.LazyLinear(3).cuda()
    assert lazy(torch.ones(2, 4, device="cuda")).is_cuda

    class Own(torch.Tensor):
        seen = []
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.seen.append({torch.Tensor.to: "to"}.get(function))
            return super().__torch_function__(function, types, args, kwargs or {})
    assert torch.ones(2).as_subclass(Own).to("cuda").is_cuda and "to" in Own.seen
    scripted = torch.jit.script(torch.nn.Linear(2, 2).cuda())
    assert scripted(torch.ones(1, 2).cuda()).is_cuda
    """)


def test_torch_cuda():
    run("""
    assert torch.cuda.is_available() and torch.cuda.device_count() == torch.ocl.device_count()
    properties = torch.cuda.get_device_properties(0)
    assert properties.total_memory == torch.ocl.get_device_properties(0).total_memory > 0
    assert (properties.major, properties.minor) == (8, 0)
    assert torch.cuda.get_device_capability("cuda:0") == (8, 0)
    assert properties.multi_processor_count > 0 and properties.name
    torch.cuda.set_device("cuda:0")
    torch.cuda.set_device(torch.device("cuda", 0))
    assert torch.cuda.current_device() == 0 and torch.cuda.is_bf16_supported()
    free, total = torch.cuda.mem_get_info("cuda")
    assert 0 < free <= total
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.Stream(device="cuda")
    assert isinstance(stream, torch.cuda.Stream)
    assert isinstance(torch.cuda.current_stream(), torch.cuda.Stream)
    with torch.cuda.stream(stream), torch.cuda.device("cuda:0"):
        start.record()
        x = torch.ones(100, device="cuda") * 2
        end.record()
    stream.synchronize()
    torch.cuda.current_stream().wait_stream(stream)
    assert start.elapsed_time(end) >= 0 and x.sum().item() == 200
    assert torch.cuda.memory.memory_allocated() == torch.cuda.memory_allocated() > 0
    torch.cuda.reset_peak_memory_stats()
    state = torch.cuda.get_rng_state()
    a = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state, "cuda")
    assert torch.rand(3, device="cuda").equal(a)
    torch.cuda.nvtx.range_push("part"); torch.cuda.nvtx.range_pop()
    assert torch.get_device_module("cuda").device_count() > 0
    """)


def test_profilers():
    run("""
    from torch.profiler import ProfilerActivity, profile
    x = torch.randn(300, 300, device="cuda")

    def on_device(of):
        events = of.key_averages()
        table = events.table(sort_by="cuda_time_total", row_limit=3)
        assert "Self CUDA" in table and "OCL" not in table
        return sum(event.self_device_time_total for event in events)

    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=both, record_shapes=True) as of:
        x @ x
    assert on_device(of) > 0
    steps = torch.profiler.schedule(wait=0, warmup=1, active=1)
    with profile(activities=both, schedule=steps) as of:
        for _ in range(3):
            x @ x
            of.step()
    for arguments in ({"use_cuda": True}, {"use_device": "cuda"}):
        with torch.autograd.profiler.profile(**arguments) as of:
            x @ x
        assert on_device(of) > 0
    with torch.autograd.profiler.profile(True) as of:
        x @ x
    with profile(activities=both[:1]) as of:
        x @ x
    assert sum(event.self_device_time_total for event in of.key_averages()) == 0
    """)


def test_events_of_profilers():
    """They are of the type, and have the columns, that programs ask for."""
    run("""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile, supported_activities
    assert supported_activities() == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    x = torch.randn(300, 300, device="cuda")
    for activities in (supported_activities(), None):
        with profile(activities=activities, profile_memory=True) as of:
            x @ x
        kernels = [event for event in of.events() if event.device_type == DeviceType.CUDA]
        assert kernels and all(event.self_cuda_time_total > 0 for event in kernels)
        longest = max(of.key_averages(), key=lambda event: event.cuda_time)
        assert longest.cuda_time == longest.device_time > 0 and "cuda_time" in repr(longest)
        assert "CUDA Mem" in of.key_averages().table(sort_by="self_cuda_memory_usage")
    with torch.cuda.profiler.profile(), torch.autograd.profiler.emit_nvtx(record_shapes=True):
        x @ x
    """)


def test_tensor_types_of_old():
    run("""
    Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    x = Tensor([[1.0, 2.0]])
    assert x.is_cuda and x.dtype == torch.float32 and x.tolist() == [[1.0, 2.0]]
    assert Tensor(2, 3).shape == Tensor(torch.Size([2, 3])).shape == (2, 3)
    assert isinstance(x, torch.cuda.FloatTensor) and not isinstance(x, torch.cuda.LongTensor)
    assert not isinstance(x.cpu(), torch.cuda.FloatTensor)
    for kind in (torch.cuda.LongTensor, "torch.cuda.LongTensor"):
        assert torch.ones(2).type(kind).is_cuda and x.type(kind).dtype == torch.int64
    assert x.type("torch.FloatTensor").device.type == "cpu"
    assert torch.ones(2).type(torch.float64).dtype == torch.float64
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    assert torch.ones(2).is_cuda and torch.ones(2).dtype == torch.half
    """)


def test_mixed_precision():
    run("""
    import warnings
    warnings.simplefilter("error", UserWarning)
    a = torch.ones(4, 4, device="cuda")
    for context in (
        torch.autocast("cuda", torch.bfloat16),
        torch.autocast(device_type="cuda", dtype=torch.bfloat16),
        torch.amp.autocast("cuda", dtype=torch.bfloat16),
    ):
        with context:
            assert (a @ a).dtype == torch.bfloat16 and torch.is_autocast_enabled("cuda")
    with torch.autocast("cuda"):
        assert (a @ a).dtype == torch.float16
    kind = torch.amp.GradScaler
    for scaler in (kind(), kind("cuda"), kind(device="cuda")):
        assert scaler.is_enabled() and scaler.scale(torch.ones(1, device="cuda")).item() == 65536

    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x
        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, gradient):
            return 2 * gradient * ctx.saved_tensors[0]
    with torch.autocast("cuda"):
        assert Square.apply(a.half()).dtype == torch.float32
    """)


def test_files_from_cuda(tmp_path):
    """Their tensors say that they were there: written here by a tag of that name."""
    run(
        """
    tag = torch.serialization.location_tag
    torch.serialization.location_tag = lambda storage: "cuda:0"
    torch.save(torch.arange(3.0), "there.pt")
    torch.serialization.location_tag = tag
    assert torch.load("there.pt").device == torch.device("ocl:0")
    for place in ("cuda", torch.device("cuda"), {"cuda:0": "cuda:0"}, lambda s, where: s.cuda()):
        assert torch.load("there.pt", map_location=place).is_cuda, place
    for place in ("cpu", {"cuda:0": "cpu"}):
        assert not torch.load("there.pt", map_location=place).is_cuda, place
    """,
        tmp_path,
    )


def test_choices_that_libraries_make():
    run("""
    # Stable-Baselines3's
    device = torch.device("cuda")
    if device.type == torch.device("cuda").type and not torch.cuda.is_available():
        device = torch.device("cpu")
    assert torch.ones(2, device=device).is_cuda
    # by free memory, as servers of models do
    total = torch.cuda.get_device_properties(0).total_memory
    free = total - torch.cuda.memory_reserved(0)
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    model = torch.nn.Linear(4, 4).to("cuda" if free > 2**20 else "cpu", dtype)
    assert model(torch.ones(1, 4, device=next(model.parameters()).device, dtype=dtype)).is_cuda
    model.to("cpu"); del model
    torch.cuda.empty_cache(); torch.cuda.ipc_collect
    """)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_compile(mode):
    """Inductor takes no branch of CUDA's; the program itself still sees a device."""
    run(f"""
    model = torch.nn.Linear(3, 3).cuda()
    x = torch.ones(2, 3, device="cuda", requires_grad=True)

    def step(x):
        return model(x) * (2 if torch.cuda.is_available() else 3)

    compiled = torch.compile(step, mode={mode!r})
    for _ in range(3):
        x.grad = None
        result = compiled(x)
        result.sum().backward()
    torch.testing.assert_close(result, model(x) * 2)
    expected = torch.autograd.grad(step(x).sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)
    """)


def test_a_compiled_function_writes_devices_as_the_program_does():
    run("""
    def texts(x):
        d = x.device
        return [f"{d}", f"{d!s:>8}", f"{d!r}", f"{x.dtype} {d}", str(d), format(d), d.type,
                "{}".format(d), "{0} {d!r} {i}".format(d, d=d, i=d.index), "%s" % d,
                "%s %d" % (d, 3), "on " + str(d), str(d).split(":"), f"{torch.device('cuda')}"]

    x = torch.ones(3, device="cuda")
    found, _ = torch.compile(lambda x: (texts(x), x + 1), backend="eager", fullgraph=True)(x)
    assert found == texts(x), found
    assert found[0] == "cuda:0"
    assert torch.compile(lambda x: (str(7 % 4), "%d" % 7), backend="eager")(x) == ("3", "7")
    """)


def test_ops_cost_no_more():
    """The functions of ops are upstream's own: only places that name devices were changed."""
    run("""
    import types
    for name in ("add", "matmul", "sum", "relu", "cat", "where"):
        assert isinstance(getattr(torch, name), types.BuiltinFunctionType), name
    for name in ("add", "__add__", "sum", "view", "reshape", "item"):
        assert "_Method" not in type(getattr(torch.Tensor, name)).__name__, name
    assert not torch.overrides._get_current_function_mode_stack()
    """)


def test_twice_is_as_good_as_once():
    run("torch_ocl.cuda_to_ocl(); assert torch.ones(1, device='cuda').is_cuda")


@pytest.mark.parametrize("loader", ["/nonexistent.so"])
def test_without_a_device_programs_choose_the_cpu(loader):
    code = """
    import torch, torch_ocl
    torch_ocl.cuda_to_ocl()
    print("cuda" if torch.cuda.is_available() else "cpu")
    """
    import os

    done = fresh.run_script(
        textwrap.dedent(code), environment=os.environ | {"TORCH_OCL_LOADER": loader}
    )
    assert done.stdout.split() == ["cpu"], done.stderr
