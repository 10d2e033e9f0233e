"""Programs that other processes build, and launches that wait for them."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from tests.fresh import run_script

# PoCL completes a program at its first launch, so nobody builds for it.
WORKS = "Portable" not in torch.ocl.get_device_properties(0).platform_name
TRAINING = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(8 * 7 * 7, 32), nn.LayerNorm(32), nn.SiLU(), nn.Dropout(0.1), nn.Linear(32, 10),
)
model = model.to("ocl")
x, y = torch.randn(4, 3, 16, 16).to("ocl"), torch.arange(4).to("ocl")
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
torch.manual_seed(1)
for _ in range(3):
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimiser.step()
stats = torch.ocl.program_stats()
print(repr([loss.item(), *[p.double().sum().item() for p in model.parameters()]]))
print(torch.ocl.program_stats()["built"] > 10, stats["built"] < 10)
"""


BY_WORKERS = "print(torch.ocl.program_stats()['built_by_workers'])"


def run(code, cache, workers=2, **environment):
    """Runs a program that finds nothing in its cache; returns the text it prints."""
    environment = {
        **os.environ,
        "TORCH_OCL_CACHE_DIR": str(cache),
        "TORCH_OCL_CACHE": "1",
        "TORCH_OCL_BUILD_WORKERS": str(workers),
        **environment,
    }
    done = run_script(textwrap.dedent(code), environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The losses without workers."""
    return run(TRAINING, tmp_path_factory.mktemp("alone"), workers=0).splitlines()[0]


@pytest.mark.slow
def test_a_network_trains_as_without(tmp_path, alone):
    ours, *counts = run(TRAINING, tmp_path).splitlines()
    assert ours == alone
    # The host was done before the programs were.
    assert counts == [f"True {WORKS}"]


def test_workers_build(tmp_path):
    out = run(TRAINING + BY_WORKERS, tmp_path)
    assert (int(out.split()[-1]) > 0) == WORKS


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["/nonexistent/build_worker"], ["/bin/false"], ["/bin/cat"], ["/bin/sleep", "60"]],
)
def test_workers_that_fail(tmp_path, alone, command):
    """The process builds by itself."""
    configured = f"from torch_ocl import _C\n_C.configure_build_workers({command!r})\n"
    ours, count = run(configured + TRAINING + BY_WORKERS, tmp_path).splitlines()[::2]
    assert (ours, count) == (alone, "0")


WAITS = {
    "item": "assert (x * 2 + 1).sum().item() == 3 * 1000",
    "cpu": "assert (x.exp().log() + 1).round().cpu().eq(2).all()",
    "event": """
        event, other = torch.ocl.Event(), torch.ocl.Stream()
        y = torch.erf(x) * 0 + 5
        event.record()
        with torch.ocl.stream(other):
            other.wait_event(event)
            z = y.sinh() * 0 + y
        torch.ocl.synchronize()
        assert z.cpu().eq(5).all() and event.query()
        """,
    "query": """
        y = torch.erfinv(x * 0) + 7
        while not torch.ocl.current_stream().query():
            pass
        assert y.cpu().eq(7).all()
        """,
    "graph": """
        y = torch.cosh(x * 0) * 3
        graph = torch.ocl.OclGraph()
        with torch.ocl.graph(graph):
            z = torch.atan(y) * 0 + y
        graph.replay()
        assert z.cpu().eq(3).all()
        """,
    "profile": """
        y = torch.digamma(x)
        with torch.profiler.profile() as profile:
            z = torch.lgamma(x + 3).exp()
            torch.ocl.synchronize()
        assert (z.cpu() - 6).abs().max() < 1e-4
        """,
    "copies": """
        y = torch.logit(x * 0.5)
        z = torch.empty(1000, device="ocl")
        z.copy_(y)
        z[500:].fill_(3)
        w = torch.full((10,), 4.0).to("ocl", non_blocking=True)
        v = torch.full((10,), 6.0).pin_memory().to("ocl", non_blocking=True)
        assert z.cpu().eq(torch.tensor([0.0, 3.0]).repeat_interleave(500)).all()
        assert (w + v).cpu().eq(10).all()
        """,
    "copies from the host": """
        host = torch.full((1000,), 2.0)
        y = torch.polygamma(1, x)
        z = host.to("ocl")
        host.fill_(9)
        strided = torch.full((1000, 2), 3.0)[:, 0].to("ocl")
        y.copy_(host.double().sub_(5))
        big = torch.ones(80_000_000).to("ocl")
        other = torch.ocl.Stream()
        with torch.ocl.stream(other):
            assert (z + strided + y).cpu().eq(9).all()
        assert big[-1].item() == 1
        """,
    "a stream that is made later": """
        y = torch.expm1(x * 0)
        z = torch.full((1000,), 2.0).to("ocl")
        with torch.ocl.stream(torch.ocl.Stream()):
            assert (z + 1).cpu().eq(3).all()
        assert y.cpu().eq(0).all()
        """,
    "threads": """
        import threading
        def work(k):
            with torch.ocl.stream(streams[k % 2]):
                y = x
                for function in (torch.sin, torch.cos, torch.tan, torch.exp, torch.sinh)[k:]:
                    y = function(y * 0) + k
                results[k] = y.sum().item()
        streams = [torch.ocl.current_stream(), torch.ocl.Stream()]
        results = {}
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert results == {0: 0.0, 1: 1000.0, 2: 2000.0, 3: 3000.0}, results
        """,
    "memory": """
        kept = []
        for k in range(50):
            y = torch.igamma(x + k, x + 1)
            del y
            torch.ocl.empty_cache()
            kept.append(torch.full((1000,), float(k), device="ocl"))
        assert all(one.cpu().eq(k).all() for k, one in enumerate(kept))
        """,
    "counts": """
        torch.ocl.reset_launch_count()
        y = torch.special.ndtri(x * 0.5).asinh()
        before = torch.ocl.launch_count()
        torch.ocl.synchronize()
        assert before == torch.ocl.launch_count() == 3
        """,
    "killed": """
        import os, signal, time
        y = x * 0
        for name in ("erf", "erfc", "lgamma", "digamma", "sinc", "expm1", "log1p", "atan", "asinh"):
            y = getattr(torch.special if hasattr(torch.special, name) else torch, name)(y) * 0 + 1
        time.sleep(0.7)
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            workers = [int(one) for one in file.read().split()]
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        assert y.sum().item() == 1000
        assert torch.special.entr(x * 0 + 1).sum().item() == 0
        """,
    "refused": """
        import pytest
        for function in (torch.bitwise_and, torch.gcd):
            with pytest.raises(RuntimeError, match="not implemented for 'Float'"):
                function(x, x)
        """,
    "long_list": """
        y = torch.special.i0(x * 0)
        for _ in range(9000):
            y = y + 1
        assert y.sum().item() == 9001 * 1000
        """,
}


@pytest.mark.parametrize("name", WAITS)
def test_waits_see_all_work(tmp_path, name):
    head = 'import torch\nx = torch.ones(1000).to("ocl")\n'
    run(head + textwrap.dedent(WAITS[name]), tmp_path)


def test_nothing_stays_behind(tmp_path):
    """A program that ends without a wait ends, and its workers end with it."""
    code = TRAINING.split("stats =")[0] + "print('ends')"
    environment = {**os.environ, "TORCH_OCL_CACHE_DIR": str(tmp_path), "TORCH_OCL_CACHE": "1"}
    environment["TORCH_OCL_BUILD_WORKERS"] = "2"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
