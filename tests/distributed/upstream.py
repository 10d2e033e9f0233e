"""PyTorch's own tests of process groups, DistributedTest, on the CPU and on ocl devices.

    python -m tests.distributed.upstream [--devices cpu ocl] [--only REGEX] [--json FILE]

Upstream's tests make CPU tensors for gloo: on `ocl` they make them there, since it is the default
device. Ranks are forked, not spawned, from a process that has imported everything. Counts results,
and names the tests that pass on the first device and fail on the last. Exit status 1 if there are
any. Those for CUDA are skipped, as upstream skips them without CUDA."""

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import unittest

# Read when upstream's module is imported.
_ENVIRONMENT = {"BACKEND": "gloo", "WORLD_SIZE": "3", "MASTER_ADDR": "localhost"}
#: Seconds that a test may take.
_LIMIT = 60


def make_suite(device: str) -> type[unittest.TestCase]:
    """Upstream's tests, with tensors on that device where upstream names none."""
    import torch
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test

    common_distributed.TIMEOUT_DEFAULT = _LIMIT
    common_distributed.TIMEOUT_OVERRIDE.clear()

    class TestOnDevice(
        distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase
    ):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank, test_name, file_name, pipe, **kwargs):
            if not os.environ.get("UPSTREAM_OUTPUT"):
                silence = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silence, 1)
                os.dup2(silence, 2)
            torch.set_default_device(device)
            torch.set_num_threads(1)
            super()._run(rank, test_name, file_name, pipe, **kwargs)

    return TestOnDevice


def outcome(case: unittest.TestCase) -> str:
    """What became of one test: ok, skipped or failed."""
    result = unittest.TestResult()
    with contextlib.redirect_stdout(io.StringIO()):
        case.run(result)
    if result.errors or result.failures:
        return "failed"
    return "skipped" if result.skipped else "ok"


def run(device: str, only: str = "") -> dict[str, str]:
    """The outcomes of the tests whose name matches."""
    outcomes = {}
    suite = make_suite(device)
    for name in unittest.TestLoader().getTestCaseNames(suite):
        if re.search(only, name):
            outcomes[name] = outcome(suite(name))
            print(f"{device:4} {outcomes[name]:8} {name}", flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", nargs="+", default=["cpu", "ocl"])
    parser.add_argument("--only", default="", help="a regular expression for tests' names")
    parser.add_argument("--json", help="where to write the outcomes")
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= _ENVIRONMENT | {"TEMP_DIR": folder}
        for device in arguments.devices:
            found[device] = run(device, arguments.only)
    for device, outcomes in found.items():
        kinds = [list(outcomes.values()).count(kind) for kind in ("ok", "failed", "skipped")]
        print("{}: {} pass, {} fail, {} skipped".format(device, *kinds))
    first, last = found[arguments.devices[0]], found[arguments.devices[-1]]
    worse = [name for name in last if first[name] == "ok" and last[name] == "failed"]
    print(f"pass on {arguments.devices[0]}, fail on {arguments.devices[-1]}: {worse}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
