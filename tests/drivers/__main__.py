"""Tries the package on each OpenCL driver that runs on this machine's processor: `make drivers`.

    python -m tests.drivers                          every driver: smoke and check
    python -m tests.drivers rusticl-26 zink-26       some of them
    python -m tests.drivers pocl-7 --stages smoke,tests
    python -m tests.drivers pocl-7 --stages tests --sample 40

Drivers that are not installed are fetched from Debian into build/drivers, 600 MB each.
A stage runs in processes of its own, which may crash or hang. What came out is kept in
docs/reference/drivers.json, and docs/reference/drivers.md is written of it.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

from tests import programs
from tests.drivers import drivers

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "drivers"
KNOWN = ROOT / "docs" / "reference" / "drivers.json"
PAGE = ROOT / "docs" / "reference" / "drivers.md"
PYTEST = "-m pytest -q -p no:cacheprovider -n 1 --max-worker-restart=100".split()
#: The arguments of a stage, and for how many seconds at most.
STAGES = {
    "smoke": ([*PYTEST, "tests/drivers"], 1200),
    "check": (["-m", "torch_ocl", "check", "--report", str(FOLDER / "check.md")], 1800),
    "tests": ([*PYTEST, "-m", "not slow", "tests"], 4 * 3600),
}
VERSION = (
    "import torch; p = torch.ocl.get_device_properties(0); "
    "print(p.platform_name, p.driver_version, sep='|')"
)


def parse():
    parser = argparse.ArgumentParser(prog="python -m tests.drivers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("drivers", nargs="*", help=f"of {', '.join(drivers.NAMES)}; default: all")
    parser.add_argument("--stages", default="smoke,check", help=f"of {', '.join(STAGES)}")
    parser.add_argument(
        "--sample", type=int, default=1, help="of tests with many cases, one in so many"
    )
    return parser.parse_args()


def run(command, environment, seconds):
    """The output of a process, and how it ended: an exit code, or None after so many seconds."""
    try:
        done = programs.run(command, seconds, cwd=ROOT, env=environment)
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace"), None
    return done.stdout, done.returncode


def outcome(output, code, seconds):
    """A stage's result in a few words."""
    if code is None:
        return f"more than {seconds} s"
    counted = re.findall(r"^=* ?((?:\d+ \w+,? ?)+) in [\d.]+s", output, re.MULTILINE)
    if counted:
        return counted[-1].strip()
    if code == 0:
        return "passed"
    lines = output.strip().splitlines() or [f"exit code {code}"]
    return f"failed: {lines[-1][:80]}"


def attempt(driver, stages, share):
    """Runs the stages on a driver, of tests with many cases one in `share`; returns an entry of the
    page."""
    command, environment = drivers.prepare(driver, FOLDER)
    environment["TORCH_OCL_TEST_SAMPLE"] = str(share)
    said, code = run([*command, "-c", VERSION], environment, 300)
    if code != 0:
        return {"driver": driver.name, "version": "", "stages": {"start": outcome(said, code, 300)}}
    platform, version = said.strip().splitlines()[-1].split("|")
    entry = {
        "driver": driver.name,
        "platform": platform,
        "version": version.split()[0] if version else "",
        "date": datetime.date.today().isoformat(),
        "stages": {},
    }
    for stage in stages:
        arguments, seconds = STAGES[stage]
        FOLDER.mkdir(parents=True, exist_ok=True)
        output, code = run([*command, *arguments], environment, seconds)
        (FOLDER / f"{driver.name}-{stage}.log").write_text(output)
        entry["stages"][stage] = outcome(output, code, seconds)
        if stage == "tests" and share > 1:
            entry["stages"][stage] += f" (sample 1/{share})"
        print(f"{driver.name}: {stage}: {entry['stages'][stage]}", flush=True)
    return entry


def page(known):
    """The text of docs/reference/drivers.md."""
    rows = [
        f"| {e['driver']} | {e.get('platform', '')} | {e['version']} | "
        + " | ".join(e["stages"].get(stage, "") for stage in STAGES)
        + f" | {e.get('date', '')} |"
        for e in known
    ]
    return "\n".join(
        [
            "# Drivers",
            "",
            "These OpenCL drivers run on a processor and need no GPU. `make drivers` tries them. "
            "zink-26-nvidia is Mesa's OpenCL over NVIDIA's Vulkan driver, where there is one.",
            "",
            "- **smoke**: a call or two of each engine",
            "- **check**: `python -m torch_ocl check`",
            "- **tests**: all tests that are not slow, or a sample of them",
            "",
            "Names with `as-gpu` take the kernels for GPUs, and so does zink.",
            "",
            f"| driver | platform | version | {' | '.join(STAGES)} | date |",
            "|---" * (4 + len(STAGES)) + "|",
            *rows,
            "",
        ]
    )


def main():
    chosen = parse()
    stages = chosen.stages.split(",")
    wrong = [n for n in chosen.drivers if n not in drivers.NAMES] + [
        s for s in stages if s not in STAGES
    ]
    if wrong:
        sys.exit(f"not known: {', '.join(wrong)}")
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else []
    failed = False
    possible = [driver.name for driver in drivers.DRIVERS if driver.is_possible]
    for name in chosen.drivers or possible:
        try:
            entry = attempt(drivers.named(name), stages, chosen.sample)
        except RuntimeError as error:  # its packages, or what the system must have, are not there
            sys.exit(str(error))
        before = next((e for e in known if e["driver"] == name), {"stages": {}})
        if before.get("version") == entry["version"]:
            entry["stages"] = before["stages"] | entry["stages"]
        known = [e for e in known if e["driver"] != name] + [entry]
        failed |= any(re.search("fail|error|more than", text) for text in entry["stages"].values())
        known.sort(key=lambda e: drivers.NAMES.index(e["driver"]))
        KNOWN.write_text(json.dumps(known, indent=1) + "\n")
        PAGE.write_text(page(known))
    sys.exit(failed)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    main()
