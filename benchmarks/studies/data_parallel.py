"""Training by DistributedDataParallel, a GPU for each process, beside the same step on one GPU.

    python -m benchmarks.studies.data_parallel [--device cuda] [--backend cpu:gloo,ocl:nccl]

Prints images or sequences per second of one process without DistributedDataParallel and of all
together, and their ratio. Every process has the same batch size. A block is ten steps without a
wait between them, and the least of four blocks counts.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.cases.large_models import BRAIN, GPT, RESNET, Network, images, step_of, words

STEPS, ROUNDS, TIMEOUT = 10, 4, 120
NETWORKS = {
    "ResNet-50 b64 f32": Network(RESNET, images(64)),
    "ResNet-50 b64 bf16 NHWC": Network(RESNET, images(64), autocast=BRAIN, channels_last=True),
    "GPT-2 small 4x1024 bf16": Network(GPT, words(4, 1024, 50257), 50257, autocast=BRAIN),
}
BACKENDS = {"ocl": "cpu:gloo,ocl:gloo", "cuda": "nccl"}


def seconds_of_step(name: str, device: str, ranks: int, bucket: int) -> float:
    """One of `ranks` processes that take it at the same time, with buckets of so many MB."""
    module = getattr(torch, device)

    def wrap(model: torch.nn.Module) -> torch.nn.Module:
        return DistributedDataParallel(model, bucket_cap_mb=bucket) if ranks > 1 else model

    torch.backends.cudnn.allow_tf32 = False  # float32 means float32 on both sides
    step = step_of(NETWORKS[name], device, wrap)
    for _ in range(3):
        step()
    best = float("inf")
    for _ in range(ROUNDS):
        module.synchronize()
        if ranks > 1:
            dist.barrier()
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        module.synchronize()
        best = min(best, (time.perf_counter() - start) / STEPS)
    return best


def run_rank(arguments: argparse.Namespace) -> None:
    """A process of `measure`. The first one prints its seconds."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if arguments.device == "ocl":
        import torch_ocl  # noqa: F401 - where CUDA is there, it isn't loaded by itself
    getattr(torch, arguments.device).set_device(rank)
    if ranks > 1:
        dist.init_process_group(
            arguments.backend or BACKENDS[arguments.device],
            store=dist.FileStore(os.environ["STORE"], ranks),
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=TIMEOUT),
        )
    seconds = seconds_of_step(arguments.network, arguments.device, ranks, arguments.bucket)
    if rank == 0:
        print(seconds, flush=True)
    if ranks > 1:
        dist.destroy_process_group()


def measure(name: str, ranks: int, arguments: argparse.Namespace) -> float:
    """Samples per second of all processes together."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.studies.data_parallel", "--network", name]
        command += ["--device", arguments.device, "--backend", arguments.backend]
        command += ["--bucket", str(arguments.bucket)]
        variables = os.environ | {"WORLD_SIZE": str(ranks), "STORE": f"{folder}/store"}
        if arguments.device != "ocl":
            variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        processes = [
            subprocess.Popen(
                command, env=variables | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True
            )
            for rank in range(ranks)
        ]
        printed = [process.communicate()[0] for process in processes]
    if codes := [process.returncode for process in processes if process.returncode != 0]:
        raise RuntimeError(f"processes ended with {codes}")
    return ranks * len(NETWORKS[name].inputs()) / float(printed[0])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=BACKENDS, default="ocl")
    parser.add_argument("--backend", default="", help="of the process group; none: gloo, CUDA NCCL")
    parser.add_argument("--network", default="", help="only those whose name contains this")
    parser.add_argument("--bucket", type=int, default=25, help="MB of gradients in a call")
    parser.add_argument("--ranks", type=int, default=2)
    chosen = parser.parse_args(arguments)
    if "RANK" in os.environ:
        return run_rank(chosen)
    print(f"| network | one | {chosen.ranks} | ratio |\n| --- | --- | --- | --- |")
    for name in NETWORKS:
        if chosen.network not in name:
            continue
        try:
            one, all_of_them = (measure(name, ranks, chosen) for ranks in (1, chosen.ranks))
        except RuntimeError as error:
            print(f"| {name} | failed: {error} |", flush=True)
            continue
        ratio = all_of_them / one
        print(f"| {name} | {one:.0f} | {all_of_them:.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
