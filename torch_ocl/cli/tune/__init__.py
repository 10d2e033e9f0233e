"""`python -m torch_ocl tune` measures a device, and keeps what kernels are chosen and sized by.

It measures what a launch costs, tries other values of the constants that matter most
(``torch.ocl.tunable.get_constants()``), and searches for the tiles of common products. What is
clearly faster is kept in the tuner's file, and used from then on."""

import json
import math
import os
import select
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

import torch

from torch_ocl import _C
from torch_ocl.cli import progress

#: In the cache's folder: programs use the tuner's results where it lies (tuner.cpp).
MARK = "use_tuned"
#: Seconds without a word after which the process is ended: a build or a run hangs.
_SILENCE = 300.0


@dataclass
class Findings:
    """The outcome of a search: constants that are better, constants that were measured, and seconds
    of work before and after."""

    constants: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    fault: str = ""


def tune(device: str, seconds: float, share: bool) -> int:
    """Searches for about so many seconds. Prints a table, and with `share` a row for the device
    table. Returns 1 where the search crashed or hung; what it had found by then is kept."""
    torch.ocl.set_device(device)
    folder = _C.cache_folder()
    path = torch.ocl.tunable.get_filename()
    if not folder or not path:
        raise RuntimeError("tune keeps its results in the cache's folder, and there is none")
    with tempfile.TemporaryDirectory() as own:
        file = os.path.join(own, "tuned.csv")
        findings = _search(f"ocl:{torch.ocl.current_device()}", seconds, file)
        kept = _gains(findings) and _keep(findings, file, path)
    if kept:
        with open(os.path.join(folder, MARK), "w"):
            pass
    print(_table(findings))
    if kept:
        print(f"\nkept in {path}; programs use it from now on (tune --forget removes it)")
    else:
        print("\nnothing is faster than what is used already, and nothing was kept")
    if share:
        print("\n" + _row(findings))
    if findings.fault:
        print(findings.fault, file=sys.stderr)
    return 1 if findings.fault else 0


def forget(device: str) -> int:
    """Removes the device's results, and has programs use none. Returns the exit status, 0."""
    torch.ocl.set_device(device)
    gone = False
    for path in (torch.ocl.tunable.get_filename(), os.path.join(_C.cache_folder(), MARK)):
        if path and os.path.exists(path):
            os.unlink(path)
            gone = True
    print("removed what was tuned" if gone else "nothing was tuned")
    return 0


def _search(device: str, seconds: float, file: str) -> Findings:
    findings = Findings()
    command = [sys.executable, "-m", "torch_ocl.cli.tune.worker", device, str(seconds)]
    environment = {**os.environ, "TORCH_OCL_TUNABLE_FILENAME": file, "TORCH_OCL_TUNABLE": "1"}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=environment)
        assert process.stdout is not None
        while True:
            if not select.select([process.stdout], [], [], _SILENCE)[0]:
                process.kill()
                findings.fault = "the search hung, and was ended"
                break
            line = process.stdout.readline()
            if not line:
                break
            _take(json.loads(line), findings)
        code = process.wait()
        progress.show(1, "")
        if code and not findings.fault:
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-1:]
            findings.fault = f"the search ended with exit status {code}: {''.join(last)}"
    return findings


def _ratios(findings: Findings) -> list[float]:
    return [after / before for before, after in findings.times.values()]


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _gains(findings: Findings) -> bool:
    return bool(findings.times) and _mean(_ratios(findings)) < 1


def _keep(findings: Findings, file: str, path: str) -> bool:
    """Moves the search's results to the device's file, without constants that were only tried.
    False where it has none: what got faster was noise."""
    if not os.path.exists(file):
        return False
    with open(file) as text:
        lines = text.readlines()
    with open(file, "w") as text:
        for line in lines:
            operation, name = line.split(",")[:2]
            if operation != "device" or name in findings.constants:
                text.write(line)
    tunable = torch.ocl.tunable
    return tunable.read_file(file) and tunable.write_file(path)


def _take(line: dict, findings: Findings) -> None:
    if "part" in line:
        progress.show(min(line["part"], 0.99), line["text"])
    elif "measured" in line:
        findings.measured[line["measured"]] = line["value"]
    elif "constant" in line:
        findings.constants[line["constant"]] = line["value"]
    else:
        findings.times[line["work"]] = line["before"], line["after"]


def _table(findings: Findings) -> str:
    lines = ["| work | before, ms | after, ms | ratio |", "| --- | --- | --- | --- |"]
    for work, (before, after) in findings.times.items():
        ratio = after / before
        lines.append(f"| {work} | {1e3 * before:.3f} | {1e3 * after:.3f} | {ratio:.2f} |")
    if ratios := _ratios(findings):
        lines.append(f"\ngeometric mean of {len(ratios)} ratios: {_mean(ratios):.3f}")
    lines += [f"measured: {name} is {value:g}" for name, value in findings.measured.items()]
    lines += [f"{name} = {value:g}" for name, value in findings.constants.items()]
    return "\n".join(lines)


def _row(findings: Findings) -> str:
    """A row of csrc/engine/device_rows.h."""
    properties = torch.ocl.get_device_properties(torch.ocl.current_device())
    lines = [
        f"// {properties.name}, driver {properties.driver_version}: python -m torch_ocl tune",
        f"// beside those of {_C.device_row(torch.ocl.current_device())['device_class']}:",
    ]
    lines += [f"row.{name} = {value:g};" for name, value in findings.constants.items()]
    return "\n".join(lines)


def main(options) -> int:
    """The command's exit status."""
    if options.forget:
        return forget(options.device)
    print(f"Times kernels for about {options.seconds:g} s.", file=sys.stderr)
    return tune(options.device, options.seconds, options.share)
