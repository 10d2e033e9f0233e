"""Compiles what runs on GPUs that nobody here has, by their own compilers: `make silicon`.

    python -m tests.silicon                  all programs of all devices: hours
    python -m tests.silicon --programs 60    a sample of them
    python -m tests.silicon --sample         100 programs of four devices: four minutes
    python -m tests.silicon gfx1030 arc-a --workloads networks --worst 30

What is known of each device is kept in docs/reference/silicon.json, of which the page beside it is
written. Runs of some workloads, and of some programs where all were compiled before, leave both as
they were. What ran and what was compiled is in build/silicon, and isn't run or compiled
again. Fails on a program that does not compile, and on a
finding that known.yaml has no reason for.
"""

import argparse
import pathlib
import subprocess
import sys
import time

from tests.silicon import (
    capture,
    compilers,
    entries,
    findings,
    packages,
    profiles,
    results,
    sample,
    table,
)
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


def main():
    chosen = parse()
    known_entries = entries.load()
    if chosen.page:
        PAGE.write_text(table.page(known_entries))
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
    kept = not chosen.sample and not chosen.workloads
    found = []
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
        device = findings.Device(profile, programs, known, len(captured))
        found += device.findings()
        print(f"{name}: {device.summary()}", flush=True)
        for line in device.worst(chosen.worst):
            print(f"    {line}")
        entry = entries.entry_of(device)
        before = known_entries.get(name, entry)
        if kept and (entries.is_whole(entry) or not entries.is_whole(before)):
            known_entries = entries.load() | {name: entry}  # another run may have written
            entries.save(known_entries)
            PAGE.write_text(table.page(entries.load()))
    whole = kept and entries.are_whole(known_entries)
    if whole:
        found = entries.findings_of(known_entries)
    sys.exit("\n".join(findings.unexplained(found, whole)) or 0)


if __name__ == "__main__":
    main()
