"""Runs tests with sanitizers: `make sanitize`.

    python -m tests.sanitize                      both builds, all tests of the list
    python -m tests.sanitize address tests/runtime/test_streams.py
    python -m tests.sanitize --floor1             the OpenCL layer alone, by its own tests

Fails where a test does, and on a report that has code of the package in it.
"""

import argparse
import os
import pathlib
import subprocess
import sys

from tests.sanitize import building, reports

#: They concern memory, threads and processes.
TESTS = (
    "tests/runtime",
    "tests/opencl",
    "tests/faults",
    "tests/python/test_device_module.py",
    "tests/distributed/test_collectives.py",
    "tests/distributed/test_shared_memory.py",
    "tests/compile/test_written_inputs.py",
    "tests/training",
)
#: A sanitizer takes its time.
TIMED = (
    "tests/runtime/test_allocator.py::test_a_warm_allocation_is_cheap",
    "tests/runtime/test_streams.py::test_the_warm_path_to_the_queue_is_cheap",
)


def parse():
    parser = argparse.ArgumentParser(prog="python -m tests.sanitize", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", nargs="*", help="address, thread, or arguments for pytest")
    parser.add_argument("--floor1", action="store_true", help="the OpenCL layer's own tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    return parser.parse_known_args()


def run(kind, build, command, folder):
    """A command with a sanitizer; returns its exit code and the reports."""
    logs = folder / "reports"
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.iterdir():
        old.unlink()
    environment = building.environment(kind, logs)
    done = subprocess.run(building.unshuffled(command), env=environment, cwd=build, check=False)
    return done.returncode, reports.read(logs)


def main():
    chosen, rest = parse()
    kinds = [kind for kind in building.KINDS if kind in chosen.what] or list(building.KINDS)
    arguments = [word for word in chosen.what if word not in building.KINDS] + rest
    failed = False
    for kind in kinds:
        folder = building.FOLDER / kind
        if chosen.floor1:
            program = building.build(kind, chosen.jobs, "floor1_test") / "floor1_test"
            code, found = run(kind, folder, [program], folder)
        else:
            building.build(kind, chosen.jobs, "all")
            tree = building.tree(kind)
            command = [building.python(kind), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            command += [f"--deselect={test}" for test in TIMED]
            command += arguments or ["-m", "not slow", *TESTS]
            code, found = run(kind, tree, command, folder)
        ours = [report for report in found if report.is_ours]
        for report in ours:
            print(report.text)
        print(
            f"{kind}: exit code {code}, {len(ours)} reports about the package, "
            f"{len(found) - len(ours)} about others",
            flush=True,
        )
        failed |= code != 0 or bool(ours)
    sys.exit(failed)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(pathlib.Path(__file__).resolve().parents[2]))
    main()
