"""The package's work for a device: programs to compile, and launches of their kernels."""

import collections
import dataclasses
import pathlib
import re
import subprocess
import sys

from tests.silicon import driver

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Options that say what device it is, which all programs of a device share.
COMMON = ("-DOCL_HAS_", "-DOCL_DEVICE_", "-DOCL_UNROLL_", "-DOCL_ROUGH_", "-cl-")


@dataclasses.dataclass(frozen=True)
class Launch:
    """A kernel's launch: sizes of 0 are the driver's to choose."""

    kernel: str
    local_size: tuple
    local_memory: int
    global_size: tuple


@dataclasses.dataclass(frozen=True)
class Program:
    """A program's text and options, in files, and the launches of its kernels."""

    path: pathlib.Path
    launches: tuple

    @property
    def name(self):
        """A hash of text and options."""
        return self.path.stem

    @property
    def text(self):
        return self.path.read_text(errors="replace")

    @property
    def options(self):
        return self.path.with_suffix(".opt").read_text().split()

    @property
    def own_options(self):
        """Those that tell it from other programs of its file."""
        return [option for option in self.options if not option.startswith(COMMON)]

    @property
    def file(self):
        """The kernel file that it was made of, or "generated"."""
        found = re.search(r'^#line \d+ "([^"]+)"', self.text, re.MULTILINE)
        return found[1] if found and found[1].endswith((".cl", ".clh")) else "generated"

    @property
    def launched(self):
        """Names of the kernels that ran."""
        return {launch.kernel for launch in self.launches}


def run(profile, workloads, folder):
    """Runs workloads on the device; returns the captured programs' folder, and what went wrong."""
    captured = folder / "captured" / profile.name
    command = [sys.executable, "-m", "tests.silicon.workloads", *workloads]
    done = subprocess.run(
        command,
        env=driver.environment(profile, folder, captured),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{profile.name}: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return captured, done.stdout


def read(captured):
    """The programs of a folder that a kernel was launched of."""
    launches = collections.defaultdict(list)
    for file in captured.glob("launches.*"):
        for line in file.read_text().splitlines():
            name, kernel, *numbers = line.split()
            sizes = tuple(map(int, numbers))
            launches[name].append(Launch(kernel, sizes[:3], sizes[3], sizes[4:]))
    found = [Program(captured / f"{name}.cl", tuple(of)) for name, of in launches.items()]
    # A sample stays the same when a kernel's text changes: names are hashes of texts.
    there = (program for program in found if program.path.exists())
    return sorted(there, key=lambda p: (p.file, p.own_options, p.name))


def sample(programs, count):
    """That many of them: of each file in turn the one whose options are the least like those of the
    file's that were taken."""
    files = collections.defaultdict(list)
    for program in programs:
        files[program.file].append((program, frozenset(program.own_options)))
    # Files with many programs first: what networks run most of.
    files = dict(sorted(files.items(), key=lambda item: -len(item[1])))
    taken = collections.defaultdict(list)
    while sum(map(len, taken.values())) < min(count, len(programs)):
        for file, candidates in files.items():
            left = [one for one in candidates if one not in taken[file]]
            if left and sum(map(len, taken.values())) < count:
                taken[file].append(max(left, key=lambda one: unlike(one, taken[file])))
    return [program for chosen in taken.values() for program, _ in chosen]


def unlike(one, others):
    """How many options tell it from the nearest of the others; of the first, how many it has."""
    program, options = one
    nearest = min((len(options ^ of) for _, of in others), default=len(options))
    return nearest, program.name
