"""Compiles what runs on GPUs that nobody here has, by their own compilers: `make silicon`.

    python -m tests.silicon                  all programs of all devices: hours
    python -m tests.silicon --programs 60    a sample of them
    python -m tests.silicon --sample         100 programs of four devices: four minutes
    python -m tests.silicon gfx1030 arc-a --workloads networks --worst 30

A run of all devices writes docs/reference/silicon.md. What ran and what was compiled is kept in
build/silicon, and isn't run or compiled again. Fails on a program that does not compile, and on a
finding that known.yaml has no reason for.
"""

import argparse
import pathlib
import subprocess
import sys
import time

from tests.silicon import capture, compilers, findings, packages, profiles, results, sample, table
from tests.silicon.workloads import WORKLOADS

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "silicon"
SAMPLE_SECONDS = 240
PAGE = ROOT / "docs" / "reference" / "silicon.md"


def parse():
    parser = argparse.ArgumentParser(prog="python -m tests.silicon", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("profiles", nargs="*", help="devices; default: all")
    parser.add_argument("--workloads", default="", help="comma-separated; default: all")
    parser.add_argument("--programs", type=int, default=10**9, help="at most so many of a device")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing after that long")
    parser.add_argument("--sample", action="store_true", help="100 programs of the day's devices")
    parser.add_argument(
        "--worst", type=int, default=0, help="show that many kernels of each device"
    )
    parser.add_argument("--recapture", action="store_true", help="run the workloads once more")
    parser.add_argument("--page", action="store_true", help="the page alone, of what is known")
    return parser.parse_args()


def captured_programs(profile, workloads, again):
    """The programs of a device; its workloads run if they haven't."""
    folder = FOLDER / "captured" / profile.name
    if again or not folder.exists():
        _, said = capture.run(profile, workloads, FOLDER)
        print(f"{profile.name}: {said.splitlines()[0]}", flush=True)
    return capture.read(folder)


def known_devices():
    """Devices of which something was compiled, with all that was."""
    for name in profiles.names():
        known = results.Results(FOLDER / "results" / f"{name}.jsonl")
        programs = capture.read(FOLDER / "captured" / name)
        if known.known and programs:
            yield findings.Device(profiles.load(name), programs, known, len(programs))


def main():
    chosen = parse()
    if chosen.page:
        PAGE.write_text(table.page(list(known_devices())))
        return
    tools = FOLDER / "tools"
    if not (tools / "root").exists():
        print("Fetching the compilers: 250 MB", flush=True)
        try:
            packages.fetch(tools)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            sys.exit(f"The compilers could not be fetched: {error}")
    if chosen.sample:
        chosen.profiles, chosen.workloads = list(sample.devices()), "samples"
        chosen.seconds = min(chosen.seconds, SAMPLE_SECONDS)
    workloads = chosen.workloads.split(",") if chosen.workloads else list(WORKLOADS)
    deadline = time.monotonic() + chosen.seconds
    devices = []
    for name in chosen.profiles or profiles.names():
        profile = profiles.load(name)
        compiler = compilers.compiler_of(tools, profile)
        if compiler is None:
            sys.exit(f"{name}: the compiler {profile.compiler} is not in {tools}")
        captured = captured_programs(profile, workloads, chosen.recapture)
        count = sample.devices()[name] if chosen.sample else chosen.programs
        programs = capture.sample(captured, count)
        known = results.Results(FOLDER / "results" / f"{name}.jsonl")
        known.compile(compiler, programs, chosen.jobs, deadline)
        devices.append(findings.Device(profile, programs, known, len(captured)))
        print(f"{name}: {devices[-1].summary()}", flush=True)
        for line in devices[-1].worst(chosen.worst):
            print(f"    {line}")
    whole = not chosen.profiles and not chosen.workloads and chosen.programs == 10**9
    wrong = findings.unexplained(devices, whole)
    if not chosen.profiles:
        PAGE.write_text(table.page(devices))
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
