"""A step of training on machines that something is wrong with: it works, or one line says why."""

import os
import pathlib
import re
import resource
import subprocess
import sys

import pytest
import torch

# PoCL has no device without files of its own, whatever ours are.
NEEDS_FILES = "Portable" in torch.ocl.get_device_properties(0).platform_name
ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
x = torch.randn(5, 6)
def gradients(x):
    model.zero_grad()
    model(x).square().sum().backward()
    return [p.grad.cpu().clone() for p in model.parameters()]
expected = gradients(x)
model.to("ocl")
for found, of_cpu in zip(gradients(x.to("ocl")), expected, strict=True):
    torch.testing.assert_close(found, of_cpu)
print("right, built", torch.ocl.program_stats()["built"])
"""


def run(*arguments, setup=None, without=(), **environment):
    """A Python process; `setup` runs in it before Python starts."""
    kept = {name: value for name, value in os.environ.items() if name not in without}
    kept = {"TORCH_OCL_FIRST_USE_CHECK": "0", **kept, "TORCH_OCL_CACHE": "1", **environment}
    return subprocess.run(
        [sys.executable, *arguments],
        preexec_fn=setup,
        env=kept,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def refused(setup=None, **settings):
    """Whether the driver itself fails, for which a step raised."""
    done = run("-c", STEP, setup=setup, **settings)
    said = re.search(r"^RuntimeError: .*(cl[A-Z]\w+ failed|OpenCL)", done.stderr, re.MULTILINE)
    return done.returncode == 1 and said


def step(most_lines=0, **settings):
    """The programs that a step built, which was right and said at most so many lines of ours."""
    done = run("-c", STEP, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "crash" not in done.stderr, done.stderr
    ours = [line for line in done.stderr.splitlines() if "torch_ocl" in line]
    assert len(ours) <= most_lines, done.stderr
    if most_lines:
        assert ours and "cache" in ours[0], done.stderr
    return int(re.search(r"right, built (\d+)", done.stdout)[1])


@pytest.mark.parametrize("mask", [0o077, pytest.param(0o777, marks=pytest.mark.slow)])
def test_a_strict_umask(tmp_path, mask):
    settings = {"TORCH_OCL_CACHE_DIR": str(tmp_path / "cache"), "setup": lambda: os.umask(mask)}
    assert step(**settings) > 0
    assert step(**settings) == 0
    files = list((tmp_path / "cache").glob("*.bin"))
    assert files and all(path.stat().st_mode & 0o777 == 0o600 for path in files)


def test_a_home_that_can_not_be_written():
    settings = {"HOME": "/proc", "without": ("XDG_CACHE_HOME", "TORCH_OCL_CACHE_DIR")}
    assert refused(**settings) if NEEDS_FILES else step(most_lines=1, **settings) > 0


@pytest.mark.slow
def test_no_home(tmp_path):
    settings = {"without": ("HOME", "XDG_CACHE_HOME"), "TORCH_OCL_CACHE_DIR": str(tmp_path)}
    assert step(**settings) > 0
    # The user's entry names it.
    done = run("-m", "torch_ocl", without=("HOME", "XDG_CACHE_HOME", "TORCH_OCL_CACHE_DIR"))
    assert "Traceback" not in done.stderr and "torch" in done.stdout, done.stderr


@pytest.mark.slow
def test_no_folder_for_temporary_files(tmp_path):
    settings = {"TMPDIR": "/nowhere", "TORCH_OCL_CACHE_DIR": str(tmp_path)}
    assert step(**settings) > 0
    assert step(**settings) == 0


def test_a_disk_that_is_full(tmp_path):
    """Files end after some bytes, as on a disk that fills up while a program is stored."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    settings = {"TORCH_OCL_CACHE_DIR": str(tmp_path / "cache")}
    if NEEDS_FILES:
        assert refused(setup=limit, **settings)
    else:
        assert step(most_lines=1, setup=limit, **settings) > 0
    assert not list((tmp_path / "cache").glob("*.bin"))
    assert step(**settings) > 0
    assert step(**settings) == 0


@pytest.mark.slow
@pytest.mark.parametrize("gibibytes", [2, 8])
def test_little_address_space(gibibytes):
    """Drivers may map more than that at once."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (gibibytes << 30,) * 2)

    done = run("-c", STEP, setup=limit, TORCH_OCL_CACHE="0")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    if done.returncode == 1:
        assert re.search("memory|OpenCL|thread", done.stderr.splitlines()[-1]), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_locale_without_unicode(tmp_path, locale):
    folder = tmp_path / "Schlüssel 鍵"
    settings = {
        "LC_ALL": locale,
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
        "TORCH_OCL_CACHE_DIR": str(folder),
    }
    assert step(**settings) > 0
    assert step(**settings) == 0 and list(folder.glob("*.bin"))
    for command in ((), ("cache", "info"), ("devices",)):
        done = run("-m", "torch_ocl", *command, **settings)
        assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.slow
def test_a_clock_that_goes_back(tmp_path):
    # Megabytes: as few as a step's programs fit in, so that all stores look at the times.
    size = "16" if NEEDS_FILES else "1"
    settings = {"TORCH_OCL_CACHE_DIR": str(tmp_path), "TORCH_OCL_CACHE_SIZE": size}
    assert step(**settings) > 0
    for path in tmp_path.iterdir():
        os.utime(path, (4e9, 4e9))
    assert step(**settings) == 0
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    assert step(**settings) == 0


def test_a_folder_that_others_can_write(tmp_path):
    """As two users would who share it: each could run what the other put there."""
    folders = ["/dev/shm"]
    if os.geteuid() == 0:  # who alone can give a folder away
        os.chown(tmp_path, 12345, 12345)
        folders.append(str(tmp_path))
    for folder in folders:
        assert step(most_lines=1, TORCH_OCL_CACHE_DIR=folder) > 0


@pytest.mark.slow
def test_two_processes_store_the_same_programs(tmp_path):
    """Without locks, which some network file systems lack: a file comes into its place whole."""
    environment = {**os.environ, "TORCH_OCL_CACHE": "1", "TORCH_OCL_CACHE_DIR": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", STEP], env=environment, cwd=ROOT) for _ in range(2)
    ]
    assert [one.wait(300) for one in both] == [0, 0]
    assert step(TORCH_OCL_CACHE_DIR=str(tmp_path)) == 0
    assert not list(tmp_path.glob("*.tmp"))


def test_nothing_locks():
    sources = (ROOT / "csrc").rglob("*.cpp")
    assert not [p for p in sources if re.search(r"\bflock\(|F_SETLK|\blockf\(", p.read_text())]
