"""PyTorch's own tests of process groups, DistributedTest, on the CPU and on ocl devices.

    python -m tests.distributed.upstream [--ways cpu ocl cuda nccl] [--only REGEX] [--json FILE]

Upstream's tests make CPU tensors for gloo: with `ocl` they make them there, since it is the default
device. With `cuda` run those that are for CUDA, which the CPU skips: torch_ocl.cuda_to_ocl() gives
them a device for each rank. With `nccl` run those that are for NCCL alone; its name means gloo.
Ranks are forked, not spawned, from a process that has imported everything. Counts results, and
names the tests that pass on the CPU and fail on `ocl`. Exit status 1 if there are any, and if
upstream_known.FAILS doesn't name what fails for CUDA.
UPSTREAM_OUTPUT=1 shows what the ranks write."""

import argparse
import contextlib
import functools
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from tests.distributed import upstream_known

RANKS = 3
# Read when upstream's module is imported.
_ENVIRONMENT = {
    "BACKEND": "gloo",
    "WORLD_SIZE": str(RANKS),
    "MASTER_ADDR": "localhost",
    "GLOO_SOCKET_IFNAME": "lo",
}
#: Seconds that a test may take.
_LIMIT = 60
WAYS = ("cpu", "ocl", "cuda", "nccl")
#: Tests that are for CUDA, with `ocl` as its device.
_FOR_CUDA = ("cuda", "nccl")


def _stand_in_for_cuda() -> None:
    """Names of CUDA's devices mean those of `ocl`, and NCCL means gloo."""
    import torch
    import torch.distributed as dist

    import torch_ocl

    torch_ocl.cuda_to_ocl()

    def with_gloo(upstream):
        @functools.wraps(upstream)
        def function(*args, **kwargs):
            if kwargs.get("backend") == "nccl":
                kwargs["backend"] = "gloo"
            return upstream(*args, **kwargs)

        return function

    dist.init_process_group = with_gloo(dist.init_process_group)
    dist.new_group = with_gloo(dist.new_group)
    dist.is_nccl_available = lambda: True
    torch.cuda.nccl.version = lambda: (2, 27, 0)


def make_suite(way: str) -> type[unittest.TestCase]:
    """Upstream's tests, with tensors on that device where upstream names none. Call it for CUDA's
    before anything has imported upstream's tests."""
    import torch

    if way in _FOR_CUDA:
        _stand_in_for_cuda()
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test

    common_distributed.TIMEOUT_DEFAULT = _LIMIT
    common_distributed.TIMEOUT_OVERRIDE.clear()
    common_distributed.TIMEOUT_OVERRIDE.update(upstream_known.LIMITS)

    class TestOnDevice(
        distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase
    ):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @property
        def world_size(self):
            return str(upstream_known.ranks_of(self._testMethodName, RANKS))

        @classmethod
        def _run(cls, rank, test_name, file_name, pipe, **kwargs):
            upstream_known.make_smaller(distributed_test, test_name, RANKS)
            if not os.environ.get("UPSTREAM_OUTPUT"):
                silence = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silence, 1)
                os.dup2(silence, 2)
            if way not in _FOR_CUDA:
                torch.set_default_device(way)
            torch.set_num_threads(1)
            super()._run(rank, test_name, file_name, pipe, **kwargs)

    return TestOnDevice


def outcome(case: unittest.TestCase) -> str:
    """The result of one test: ok, skipped or failed."""
    result = unittest.TestResult()
    with contextlib.redirect_stdout(io.StringIO()):
        case.run(result)
    if result.errors or result.failures:
        return "failed"
    return "skipped" if result.skipped else "ok"


def run_here(way: str, names: list[str] | None, only: str = "") -> dict[str, str]:
    """The outcomes of the tests with those names, or of all; of those that match."""
    suite = make_suite(way)
    outcomes = {}
    for name in unittest.TestLoader().getTestCaseNames(suite):
        if (names is None or name in names) and re.search(only, name):
            outcomes[name] = outcome(suite(name))
            print(f"{way:4} {outcomes[name]:8} {name}", flush=True)
    return outcomes


def run(way: str, names: list[str] | None = None, only: str = "") -> dict[str, str]:
    """As run_here(), in a process of its own: what stands in for CUDA stays in it."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/names", "w") as file:
            json.dump(names, file)
        environment = os.environ | _ENVIRONMENT | {"TEMP_DIR": folder}
        # One driver's device; for CUDA's tests each rank has one.
        environment.setdefault("TORCH_OCL_DEVICES", "0")
        if way in _FOR_CUDA:
            environment["TORCH_OCL_PARTITION"] = str(RANKS)
        if way == "nccl":
            environment["BACKEND"] = "nccl"
        command = [sys.executable, "-m", "tests.distributed.upstream", "--child", folder]
        errors = None if os.environ.get("UPSTREAM_OUTPUT") else subprocess.DEVNULL
        subprocess.run(
            [*command, "--ways", way, "--only", only], env=environment, check=True, stderr=errors
        )
        with open(f"{folder}/outcomes") as file:
            return json.load(file)


def worse(found: dict[str, dict[str, str]]) -> list[str]:
    """The tests that pass on the CPU and don't on `ocl`."""
    cpu, ocl = found.get("cpu", {}), found.get("ocl", {})
    return [name for name in ocl if cpu.get(name) == "ok" and ocl[name] != "ok"]


def unexpected(found: dict[str, dict[str, str]]) -> list[str]:
    """The tests for CUDA that fail without a reason in upstream_known, or pass in spite of one."""
    outcomes = {name: what for way in _FOR_CUDA for name, what in found.get(way, {}).items()}
    ran = {name: what for name, what in outcomes.items() if what != "skipped"}
    return [name for name in ran if (ran[name] == "failed") != (name in upstream_known.FAILS)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--only", default="", help="a regular expression for tests' names")
    parser.add_argument("--json", help="where to write the outcomes")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        with open(f"{arguments.child}/names") as file:
            names = json.load(file)
        outcomes = run_here(arguments.ways[0], names, arguments.only)
        with open(f"{arguments.child}/outcomes", "w") as file:
            json.dump(outcomes, file)
        return 0
    found = {}
    for way in arguments.ways:
        # Those that no earlier way has run.
        names, before = None, found.get({"cuda": "cpu", "nccl": "cuda"}.get(way, ""))
        if before is not None:
            names = [name for name, what in before.items() if what == "skipped"]
        found[way] = run(way, names, arguments.only)
    for way, outcomes in found.items():
        kinds = [list(outcomes.values()).count(kind) for kind in ("ok", "failed", "skipped")]
        print("{}: {} pass, {} fail, {} skipped".format(way, *kinds))
    print(f"pass on the CPU, fail on ocl: {worse(found)}")
    print(f"other than upstream_known.FAILS says: {unexpected(found)}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)
    return int(bool(worse(found) or unexpected(found)))


if __name__ == "__main__":
    sys.exit(main())
