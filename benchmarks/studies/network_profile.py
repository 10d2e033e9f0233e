"""A network's step by its kernels, those that take longest first.

python -m benchmarks.studies.network_profile ResNet-50 [--batch 32] [--dtype bfloat16]
    [--channels-last] [--compile]
python -m benchmarks.studies.network_profile "ViT-B/16 b64 bf16"  (or another of cases/large_models)
"""

import argparse

import torch

from benchmarks.cases.large_models import NETWORKS, step_of
from benchmarks.cases.models import PROFILED, training_step


def main(arguments=None):
    import torch_ocl  # noqa: F401 - where CUDA is there, it isn't loaded by itself

    names = [*PROFILED, *NETWORKS]
    parser = argparse.ArgumentParser(description="Prints a step's kernels by their time.")
    parser.add_argument("network", choices=names, metavar="NETWORK")
    parser.add_argument("--batch", type=int, help="default 4 on a CPU, 64 on others")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), help="of autocast")
    parser.add_argument("--channels-last", action="store_true", help="how images lie in memory")
    parser.add_argument("--compile", action="store_true", help="the network by torch.compile")
    parser.add_argument("--rows", type=int, default=40, help="how many kernels to show")
    chosen = parser.parse_args(arguments)
    wrap = torch.compile if chosen.compile else lambda model: model
    if chosen.network in NETWORKS:
        if chosen.batch or chosen.dtype or chosen.channels_last:
            parser.error(f"{chosen.network} has its own batch, dtype and layout")
        step, title = step_of(NETWORKS[chosen.network], "ocl", wrap), chosen.network
    else:
        on_cpu = torch.ocl.get_device_properties(0).type == "cpu"
        half = chosen.dtype not in (None, "float32")
        dtype = getattr(torch, chosen.dtype) if half else None
        batch = chosen.batch or (4 if on_cpu else 64)
        step = training_step(chosen.network, batch, dtype, chosen.channels_last, wrap)
        title = f"{chosen.network}, batch of {batch}, {chosen.dtype or 'float32'}"
    for _ in range(2):  # builds, and fills the memory's cache
        step()
    print(title)
    with torch.ocl.profiler(rows=chosen.rows):
        step()


if __name__ == "__main__":
    main()
