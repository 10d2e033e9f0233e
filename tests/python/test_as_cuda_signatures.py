"""TORCH_OCL_AS_CUDA=1: a call that torch.cuda's signatures take, each argument by its name, is one
that ours take, with the same defaults."""

import inspect
import json
import pkgutil

from tests.python.test_as_cuda import run

MODULES = ["torch.cuda"] + [
    f"torch.cuda.{part}"
    for part in (
        *("amp", "comm", "gds", "graphs", "green_contexts", "jiterator", "memory", "nccl", "nvtx"),
        *("profiler", "random", "streams", "tunable"),
    )
]
#: Types of tensors and storages have the methods of all tensors.
OF_OLD = ("Storage", "Tensor")
#: These differ. Each has the reason.
EXCEPTIONS = {
    "Event.from_ipc_handle": "torch's C code raises whatever the arguments are called",
    "Event.record": "torch's C code, which test_methods_in_c calls",
    "Event.wait": "torch's C code, which test_methods_in_c calls",
    "Stream.record_event": "torch's C code, which test_methods_in_c calls",
    "cudaStatus": "a class of constants",
    "CudaError": "the code of an error, which check_error() gives",
}


def found():
    """The public functions, classes and methods of torch.cuda, by their names."""
    for module in map(pkgutil.resolve_name, MODULES):
        for name, value in vars(module).items():
            of_cuda = getattr(value, "__module__", "") or ""
            is_public = callable(value) and not name.startswith("_")
            if not is_public or not of_cuda.startswith("torch.cuda") or name.endswith(OF_OLD):
                continue
            full = f"{module.__name__}.{name}"
            yield full, value
            if inspect.isclass(value):
                for method in dir(value):
                    if not method.startswith("_") and callable(getattr(value, method)):
                        yield f"{full}.{method}", getattr(value, method)


def simple(default):
    return default if isinstance(default, (bool, int, str, type(None))) else "another"


def describe(path):
    """Writes each one's parameters."""
    described = []
    for name, value in found():
        try:
            signature = inspect.signature(value)
        except ValueError:
            continue
        parameters = [
            (p.name, p.kind.name, p.default is not p.empty, simple(p.default))
            for p in signature.parameters.values()
        ]
        described.append((name, parameters))
    with open(path, "w") as file:
        json.dump(described, file)
    print(len(described))


def compare(path):
    """Prints what differs from upstream's, which a file has."""
    here = dict(found())
    with open(path) as file:
        upstream = json.load(file)
    for name, parameters in upstream:
        if name not in here:
            print(f"{name}:missing")
            continue
        if name.endswith(tuple(EXCEPTIONS)):
            continue
        named = [p for p in parameters if p[1] in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")]
        if [p[0] for p in named] in ([], ["self"]):
            continue
        ours = inspect.signature(here[name])
        known = ours.parameters
        try:
            ours.bind(**{p[0]: 0 for p in named})
            ours.bind(**{p[0]: 0 for p in named if not p[2]})
            ours.bind(*(0 for p in named if p[1] == "POSITIONAL_OR_KEYWORD"))
        except TypeError as error:
            print(f"{name}:{error}".replace(" ", "_"))
            continue
        for parameter, _, has_default, default in named:
            one = known.get(parameter)
            if not has_default or one is None or one.kind.name.startswith("VAR"):
                continue
            if simple(one.default) != default and (one.default, default) != ("ocl", "cuda"):
                print(f"{name}:{parameter}={one.default}")


CALL = "from tests.python import test_as_cuda_signatures as s; s.{}({!r})"


def test_calls_of_cudas_signatures_are_taken(tmp_path):
    path = str(tmp_path / "signatures")
    (count,) = run(CALL.format("describe", path), TORCH_OCL_AS_CUDA="0")
    assert int(count) > 250
    differences = run(CALL.format("compare", path))
    assert not differences, "\n".join(differences)


def test_methods_in_c():
    code = """
    import inspect, torch
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record(stream=stream)
    assert isinstance(stream.record_event(event=end), torch.Event)
    start.wait(stream=other)
    other.wait_event(event=end)
    other.wait_stream(stream=stream)
    other.wait_stream(stream)
    torch.cuda.synchronize()
    print(start.elapsed_time(end_event=end) >= 0 and start.elapsed_time(end) >= 0)
    for call in (lambda: start.elapsed_time(), lambda: start.elapsed_time(other=end)):
        try:
            call()
        except TypeError:
            print(True)
    for name in ("CUDAPluggableAllocator", "GreenContext", "DeferredCudaCallError"):
        kind = getattr(torch.cuda, name)
        try:
            kind(*(["x"] * len(inspect.signature(kind).parameters)))
        except NotImplementedError as error:
            print(name in str(error))
    """
    assert run(code) == ["True"] * 6


def test_graphs_by_cudas_names():
    code = """
    import torch
    x = torch.ones(3, device="cuda")
    g = torch.cuda.CUDAGraph(keep_graph=True)
    stream = torch.cuda.Stream()
    x + 1
    with torch.cuda.graph(cuda_graph=g, pool=None, stream=stream, capture_error_mode="global",
                          enable_annotations=False, check_input_liveness=True):
        y = x + 1
    g.replay()
    print(y.tolist(), type(g).__name__, isinstance(g, torch.ocl.OclGraph))
    for name in ("raw_cuda_graph", "raw_cuda_graph_exec", "get_graph_data"):
        try:
            getattr(g, name)()
        except NotImplementedError as error:
            print(name in str(error) and "handle" in str(error))
    del x
    try:
        g.replay()
    except RuntimeError as error:
        print("1 dead tensor" in str(error))
    g.reset()
    z = torch.ones(3, device="cuda")
    with torch.cuda.stream(stream):
        g.capture_begin(pool=torch.cuda.graph_pool_handle(), check_input_liveness=False)
        y = z * 2
        g.capture_end()
    g.replay()
    print(y.tolist())
    with torch.profiler.profile() as profile:
        torch.cuda.nvtx.range_push(msg="pushed")
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.mark(msg="marked")
        with torch.cuda.nvtx.range("in{n}", n=2):
            pass
        with torch.cuda.nvtx.range(msg="named"):
            pass
    print({"pushed", "marked", "in2", "named"} <= {e.name for e in profile.events()})
    """
    assert run(code) == (
        "[2.0, 2.0, 2.0] CUDAGraph True True True True True [2.0, 2.0, 2.0] True".split()
    )
