"""Process groups on ocl beside gloo on the CPU, with two processes of one machine.

    python -m benchmarks.studies.distributed [--write]

Times all_reduce of several sizes, in the device's own memory (a CPU device's) and by pinned memory,
as ratios to gloo's time for CPU tensors; and the time of a training step with
DistributedDataParallel as a ratio to that of the step alone, on both devices. Variants are timed by
turns, and the least time of each counts: the machine may have other work. Then how much pinned
memory many calls have at a time, and how soon the other ranks know of a fault. `--quick` takes few
rounds, to see that it works. `--write` writes docs/measurements/distributed.md."""

import argparse
import datetime
import functools
import os
import pickle
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

RANKS = 2
SIZES = {"4 KiB": 1 << 10, "4 MiB": 1 << 20, "64 MiB": 16 << 20}  # float32 elements
PAGE = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "distributed.md"
#: The most rounds, for the ranks.
_ROUNDS = "BENCHMARK_ROUNDS"
WAYS = {"own memory": {}, "pinned memory": {"TORCH_OCL_WITHOUT": "unified_memory"}}


def least(variants: dict[str, Callable[[], None]], rounds: int, calls: int) -> dict[str, float]:
    """Seconds of a call of each variant: all ranks begin at a time."""
    best = dict.fromkeys(variants, float("inf"))
    rounds = min(rounds, int(os.environ.get(_ROUNDS, rounds)))
    for number in range(rounds + 1):
        for name, call in variants.items():
            dist.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            torch.ocl.synchronize()
            if number > 0:  # the first one warms up
                best[name] = min(best[name], (time.perf_counter() - start) / calls)
    return best


def collectives(rank: int) -> dict[str, dict[str, float]]:
    """Seconds of all_reduce by size and device."""
    times = {}
    for name, elements in SIZES.items():
        tensors = {kind: torch.ones(elements, device=kind) for kind in ("cpu", "ocl")}
        variants = {
            kind: (lambda t=t: dist.all_reduce(t, dist.ReduceOp.MAX)) for kind, t in tensors.items()
        }
        small = elements < 1 << 16
        times[name] = least(variants, rounds=20 if small else 12, calls=100 if small else 2)
    return times


def gpt() -> nn.Module:
    layer = nn.TransformerEncoderLayer(192, 4, 768, dropout=0.0, batch_first=True)
    layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(512, 192), layers, nn.Linear(192, 512))


def resnet() -> nn.Module:
    import torchvision

    return torchvision.models.resnet18(num_classes=10)


NETWORKS = {
    "ResNet-18, 4 images of 64 x 64": (resnet, lambda: torch.randn(4, 3, 64, 64)),
    "GPT of 4 layers, 4 x 64 tokens": (gpt, lambda: torch.randint(0, 512, (4, 64))),
}


def steps(rank: int) -> dict[str, dict[str, float]]:
    """Seconds of a step by network, device and whether it is distributed."""
    times = {}
    for name, (make, inputs) in NETWORKS.items():
        variants = {}
        for kind in ("cpu", "ocl"):
            for parallel in (False, True):
                torch.manual_seed(0)
                net = make().to(kind)
                if parallel:
                    net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
                optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
                x = inputs().to(kind)

                def step(net=net, optimizer=optimizer, x=x):
                    optimizer.zero_grad()
                    net(x).square().mean().backward()
                    optimizer.step()

                variants[f"{kind} {'DDP' if parallel else 'alone'}"] = step
        times[name] = least(variants, rounds=6, calls=2)
    return times


def in_ranks(function: Callable, environment: dict[str, str]) -> dict:
    """The result of rank 0; the ranks are forked."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(RANKS):
            child = os.fork()
            if child == 0:
                try:
                    _rank(rank, function, environment, folder)
                finally:
                    os._exit(1)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        with open(f"{folder}/result", "rb") as file:
            return pickle.load(file)


def _rank(rank: int, function: Callable, environment: dict[str, str], folder: str) -> None:
    threads = max(1, (os.cpu_count() or 2) // RANKS)
    os.environ |= {"CL_CONFIG_CPU_TBB_NUM_WORKERS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ |= environment
    torch.set_num_threads(threads)
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group(store=store, rank=rank, world_size=RANKS)
    result = function(rank)
    if rank == 0:
        with open(f"{folder}/result", "wb") as file:
            pickle.dump(result, file)
    dist.barrier()
    os._exit(0)


def pinned_memory() -> dict[str, int]:
    """MiB of pinned memory that a group has at most, by what it does at a time."""
    from tests.distributed import processes, test_pinned_memory

    cases = {
        "50 `all_reduce` of 8 MiB, none waited for": test_pinned_memory.many_calls,
        "`all_to_all_single` of 64 MiB": test_pinned_memory.exchanged,
    }
    run = functools.partial(processes.run, environment=test_pinned_memory.COPIED)
    return {what: max(run(function)) >> 20 for what, function in cases.items()}


def faults() -> dict[str, float]:
    """Seconds until the other ranks, or all, have ended or raised."""
    from tests.distributed import processes, test_faults

    patience = test_faults.PATIENCE
    missing = processes.run(test_faults.missing, timeout=patience, dead=(1,))[0]
    with tempfile.TemporaryDirectory() as folder:
        interrupted = test_faults.seconds_after_an_interrupt(Path(folder))
    return {
        "a rank is killed: the other one raises": processes.run(test_faults.killed, dead=(1,))[0],
        f"a rank is missing, with a timeout of {patience} s: the other one raises": missing,
        "Ctrl-C under torchrun: all ranks have ended": interrupted,
    }


def report() -> str:
    lines = [
        "# Process groups",
        "",
        f"{datetime.date.today()}, torch {torch.__version__}, {os.cpu_count()} cores of "
        f"{platform.machine()}, {RANKS} processes on one machine.",
        "Written by `python -m benchmarks.studies.distributed --write`.",
        "",
        "`all_reduce` of float32, its time on `ocl` divided by gloo's for CPU tensors:",
        "",
        "| | " + " | ".join(SIZES) + " |",
        "|---" * (len(SIZES) + 1) + "|",
    ]
    for way, environment in WAYS.items():
        found = in_ranks(collectives, environment)
        ratios = [f"{times['ocl'] / times['cpu']:.2f}" for times in found.values()]
        lines.append(f"| {way} | " + " | ".join(ratios) + " |")
    lines += [
        "",
        "A training step with DistributedDataParallel, divided by the same step in processes that",
        "don't work together:",
        "",
        "| | CPU | `ocl` | `ocl` / CPU |",
        "|---|---|---|---|",
    ]
    for name, times in in_ranks(steps, {}).items():
        cpu, ocl = (times[f"{kind} DDP"] / times[f"{kind} alone"] for kind in ("cpu", "ocl"))
        lines.append(f"| {name} | {cpu:.2f} | {ocl:.2f} | {ocl / cpu:.2f} |")
    lines += ["", "Pinned memory of a group whose tensors are copied, at most:", ""]
    lines += ["| | MiB |", "|---|---|"]
    lines += [f"| {what} | {mebibytes} |" for what, mebibytes in pinned_memory().items()]
    lines += ["", "Faults:", "", "| | seconds |", "|---|---|"]
    lines += [f"| {what} | {seconds:.2f} |" for what, seconds in faults().items()]
    lines += [
        "",
        "[What works](../reference/distributed.md), with the tests that show it, has a page of its",
        "own. What came of measuring is in [the log](log.md#process-groups).",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="few rounds")
    arguments = parser.parse_args()
    if arguments.quick:
        os.environ[_ROUNDS] = "1"
    text = report()
    print(text)
    if arguments.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
