"""torch.ocl.tunable: names, settings, files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.ocl import tunable


@pytest.fixture(autouse=True)
def _settings_are_put_back():
    duration, iterations = tunable.get_max_tuning_duration(), tunable.get_max_tuning_iterations()
    yield
    tunable.enable(False)
    tunable.tuning_enable(True)
    tunable.set_max_tuning_duration(duration)
    tunable.set_max_tuning_iterations(iterations)
    tunable.set_filename("")


def test_names_are_upstreams():
    own = {"get_constants", "set_constant", "write_file"}
    assert set(tunable.__all__) - own <= set(dir(torch.cuda.tunable))
    for name in tunable.__all__:
        assert getattr(tunable, name).__doc__


def test_settings():
    assert not tunable.is_enabled() and tunable.tuning_is_enabled()
    tunable.enable()
    tunable.tuning_enable(False)
    assert tunable.is_enabled() and not tunable.tuning_is_enabled()
    tunable.set_max_tuning_duration(123)
    tunable.set_max_tuning_iterations(4)
    assert tunable.get_max_tuning_duration() == 123
    assert tunable.get_max_tuning_iterations() == 4
    for setter in (tunable.set_max_tuning_duration, tunable.set_max_tuning_iterations):
        for value in (0, -1, 2**63):
            with pytest.raises(ValueError, match="from 1 to"):
                setter(value)
        for value in (1.5, "a", None):
            with pytest.raises(TypeError):
                setter(value)
    for setter in (tunable.enable, tunable.tuning_enable):
        for value in (None, 3, "yes"):
            with pytest.raises(TypeError, match="True or False"):
                setter(value)
    for value in (3, b"name"):
        with pytest.raises(TypeError):
            tunable.set_filename(value)
    for function in (tunable.set_filename, tunable.read_file, tunable.write_file):
        with pytest.raises(ValueError, match="null character"):
            function("a\0b")


def test_filenames():
    usual = tunable.get_filename()
    index = torch.ocl.current_device()
    for name, own in [("a.csv", "a{}.csv"), ("a", "a{}"), ("x.y/a", "x.y/a{}"), (".a", ".a{}")]:
        tunable.set_filename(name)
        assert tunable.get_filename() == name
        tunable.set_filename(name, insert_device_ordinal=True)
        assert tunable.get_filename() == own.format(index)
    tunable.set_filename(Path("x.y") / "a.csv")
    assert tunable.get_filename() == "x.y/a.csv"
    tunable.set_filename("")
    assert tunable.get_filename() == usual


def test_validators_name_what_results_depend_on():
    validators = dict(tunable.get_validators())
    properties = torch.ocl.get_device_properties()
    assert validators["DEVICE_NAME"] == properties.name
    assert validators["DRIVER_VERSION"] == properties.driver_version
    assert validators["COMPUTE_UNITS"] == str(properties.max_compute_units)
    assert validators["TORCH_OCL_VERSION"]


def test_files(tmp_path):
    path = tmp_path / "results.csv"
    assert not tunable.read_file(str(path))
    assert tunable.write_file(str(path))
    with path.open("a") as file:
        file.write("gemm_f32_f32_f32,nnn_m1_n1_k1_b7,direct,0.25\n")
    before = tunable.get_results()
    assert tunable.read_file(str(path))
    added = ("gemm_f32_f32_f32", "nnn_m1_n1_k1_b7", "direct", 0.25)
    assert tunable.get_results() == tuple(sorted({*before, added}))
    tunable.set_filename(str(tmp_path / "other.csv"))
    assert tunable.write_file() and tunable.read_file()
    assert "nnn_m1_n1_k1_b7,direct,0.25\n" in (tmp_path / "other.csv").read_text()


def test_environment():
    script = """
import torch
t = torch.ocl.tunable
print(t.is_enabled(), t.tuning_is_enabled(), t.get_max_tuning_duration(),
      t.get_max_tuning_iterations(), t.get_filename())
"""
    names = ["", "_TUNING", "_DURATION", "_ITERATIONS", "_FILENAME"]

    def settings(*values):
        variables = {"TORCH_OCL_TUNABLE" + name: v for name, v in zip(names, values, strict=True)}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split(), done.stderr.count("warning")

    assert settings("1", "0", "70", "8", "/x.csv") == (["True", "False", "70", "8", "/x.csv"], 0)
    default = [str(tunable.get_max_tuning_duration()), str(tunable.get_max_tuning_iterations())]
    assert settings("0", "1", "", "", "/x.csv") == (["False", "True", *default, "/x.csv"], 0)
    assert settings("yes", "", "0", "-3", "x") == (["False", "True", *default, "x"], 3)
