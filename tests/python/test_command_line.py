"""python -m torch_ocl: info and cache, on a machine in order and in faulty surroundings."""

import json
import os
import stat
import subprocess
import sys

import pytest
import torch

from tests import fresh
from torch_ocl import __main__
from torch_ocl.cli import cache, info


def command(*arguments, **environment):
    """Runs `python -m torch_ocl` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "torch_ocl", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def report():
    return info.collect()


def test_info(report):
    done = command()
    assert done.returncode == bool(report["problems"]), done.stderr
    for index in range(torch.ocl.device_count()):
        properties = torch.ocl.get_device_properties(index)
        assert f"ocl:{index}  {properties.name}" in done.stdout
        assert properties.driver_version in done.stdout
    assert done.stdout.count("works     yes") == torch.ocl.device_count()
    assert torch.__version__ in done.stdout and report["loader"] in done.stdout


def test_info_says_why_import_torch_leaves_the_device_out():
    assert "leaves ocl out" not in command(TORCH_OCL_AUTOLOAD="always").stdout
    said = "import torch leaves ocl out: TORCH_OCL_AUTOLOAD=never. import torch_ocl adds it."
    done = command(TORCH_OCL_AUTOLOAD="never")
    assert not done.stderr and said in done.stdout
    assert said.split(": ", 1)[1].startswith(
        json.loads(command("--json", TORCH_OCL_AUTOLOAD="never").stdout)["stands_back"]
    )


def test_info_for_programs(report):
    found = json.loads(command("--json").stdout)
    assert found.keys() == report.keys()
    assert [d["name"] for d in found["devices"]] == [d["name"] for d in report["devices"]]
    assert all(device["works"] for device in found["devices"])


@pytest.mark.parametrize(
    "environment, said",
    [
        ({"TORCH_OCL_DEVICES": "nothing"}, 'TORCH_OCL_DEVICES="nothing" matches none of'),
        ({"TORCH_OCL_LOADER": "/nonexistent"}, "no ICD loader (libOpenCL.so.1) could be opened"),
    ],
    ids=["selection", "loader"],
)
def test_no_device(environment, said):
    done = command("info", "--json", **environment)
    assert done.returncode == 1 and not done.stderr
    found = json.loads(done.stdout)
    assert found["devices"] == [] and said in found["problems"][0]
    text = info.text(found)
    assert "What is wrong:" in text and said in " ".join(text.split()) and "works" not in text


def test_an_extension_that_can_t_be_loaded(monkeypatch):
    reason = "torch_ocl could not be loaded: it was built for torch 1.0"
    monkeypatch.setattr(torch.ocl, "unavailable_reason", lambda: reason)
    monkeypatch.setattr(info, "_native", lambda: None)
    found = info.collect()
    assert found["problems"][0] == reason and not found["devices"] and found["cache"] is None
    assert reason in " ".join(info.text(found).split())


def test_devices_that_are_left_out(report):
    found = {**report, "left_out": ["GPU of (Mesa): its compiler is missing"]}
    assert "Left out:\n  - GPU of (Mesa): its compiler is missing" in info.text(found)


def test_a_device_that_computes_nothing(monkeypatch, capsys):
    monkeypatch.setattr(info, "_trial", lambda index: "RuntimeError: the driver failed")
    assert __main__.main([]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "works no: RuntimeError: the driver failed" in text
    assert "or leave the device out by TORCH_OCL_DEVICES." in text


def test_a_trial_says_what_went_wrong():
    assert info._trial(0) == ""
    assert info._trial(torch.ocl.device_count()).startswith("RuntimeError")


def test_unknown_variables():
    done = command(TORCH_OCL_DEVICE="0")
    assert "TORCH_OCL_DEVICE is unknown: did you mean TORCH_OCL_DEVICES?" in done.stdout


def test_a_cache_that_is_not_used(tmp_path):
    tmp_path.chmod(0o777)
    done = command(TORCH_OCL_CACHE="1", TORCH_OCL_CACHE_DIR=str(tmp_path))
    assert "cache: not used" in done.stdout
    assert command("cache", TORCH_OCL_CACHE="0").stdout == "not used\n"


def test_cache_size_and_clear(tmp_path, monkeypatch, capsys):
    program, other = tmp_path / f"{0xABC:032x}.bin", tmp_path / "tuning.csv"
    program.write_bytes(bytes(3000)), other.write_text("kept")
    (tmp_path / f"{1:032x}.bin").symlink_to(other)
    monkeypatch.setattr(cache, "_folder", lambda: str(tmp_path))
    monkeypatch.setenv("TORCH_OCL_CACHE_SIZE", "2")
    assert cache.contents() == {
        "folder": str(tmp_path),
        "programs": 1,
        "bytes": 3000,
        "limit": 2 * 2**20,
    }
    assert __main__.main(["cache"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: 1 programs, 2.9 KiB of at most 2.0 MiB\n"
    assert __main__.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "removed 1 programs, 2.9 KiB\n"
    assert not program.exists() and other.read_text() == "kept"
    assert cache.contents()["programs"] == 0


WARM = """
import sys, torch
from torch_ocl import __main__
from torch_ocl.cli import warm as _warm
def add(device, dtype):
    torch.ones(3, device=device, dtype=dtype) + 1
if sys.argv[1] == "less":
    _warm.WORK = {"an addition": add}
sys.exit(__main__.main(["cache", "warm", "--dtype", "float32", "bfloat16"]))
"""


def warm(how_much, cache):
    environment = {**os.environ, "TORCH_OCL_CACHE": "1", "TORCH_OCL_CACHE_DIR": str(cache)}
    done = fresh.run_script(WARM, how_much, environment=environment)
    assert done.returncode == 0, done.stderr
    *rows, last = done.stdout.splitlines()
    return int(rows[-1].split(" programs")[0].split()[-1]), int(last.split()[0])


@pytest.mark.parametrize("how_much", ["less", pytest.param("all", marks=pytest.mark.slow)])
def test_warm(how_much, tmp_path):
    """The second run finds what the first one built."""
    cache = tmp_path / "cache"
    built, found = warm(how_much, cache)
    assert built > 0 == found
    assert sum(path.suffix == ".bin" for path in cache.iterdir()) == built
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert warm(how_much, cache) == (0, built)


@pytest.mark.slow
def test_warm_by_several_processes(tmp_path):
    """They share the cache; each program is there for the next run."""
    arguments = ["cache", "warm", "--only", "linear layers, losses, optimizers"]
    variables = {"TORCH_OCL_CACHE": "1", "TORCH_OCL_CACHE_DIR": str(tmp_path / "cache")}
    first = command(*arguments, "--jobs", "2", "--dtype", "float32", "bfloat16", **variables)
    assert first.returncode == 0, first.stderr
    assert "optimizers, float32" in first.stdout and "optimizers, bfloat16" in first.stdout
    again = command(*arguments, **variables)
    assert " 0 programs built" in again.stdout
    assert int(again.stdout.splitlines()[-1].split()[0]) > 10


def test_warm_without_a_cache_or_a_device(capsys):
    done = command("cache", "warm", TORCH_OCL_CACHE="0")
    assert done.returncode == 1 and "nothing would be kept" in done.stdout
    done = command("cache", "warm", TORCH_OCL_DEVICES="nothing")
    assert done.returncode == 1 and "No OpenCL device is selected" in done.stderr
    done = command("cache", "warm", "--dtype", "float64", TORCH_OCL_WITHOUT="fp64")
    assert done.returncode == 1 and "has no double precision" in done.stderr
    for device, said in (("ocl:99", "out of range"), ("cpu", "expected an ocl device")):
        assert __main__.main(["cache", "warm", "--device", device]) == 1
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["cache", "warm", "--dtype", "int7"]])
def test_arguments_that_make_no_sense(arguments, capsys):
    with pytest.raises(SystemExit) as done:
        __main__.main(arguments)
    assert done.value.code == 2 and "invalid choice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TORCH_OCL_GEMM", "foo", "TORCH_OCL_GEMM=foo is none of"),
        ("TORCH_OCL_VERBOSE", "build,dispach", "TORCH_OCL_VERBOSE=dispach is none of build,"),
        ("TORCH_OCL_TUNE_AS", "xx", "TORCH_OCL_TUNE_AS=xx is none of cpu, gpu"),
        ("TORCH_OCL_WITHOUT", "fp64,zz", "TORCH_OCL_WITHOUT=zz is none of fp64,"),
        ("TORCH_OCL_MEMORY_FRACTION", "7", "TORCH_OCL_MEMORY_FRACTION=7 is no number"),
    ],
)
def test_values_that_mean_nothing(variable, value, said):
    done = command(**{variable: value})
    assert said in " ".join(done.stdout.split()) and "Nothing is wrong" not in done.stdout
