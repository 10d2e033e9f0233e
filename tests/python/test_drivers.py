"""Which loaders and drivers are found, by any loader, without the user's help."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_ocl import _loader

DEVICES = """
import torch
properties = map(torch.ocl.get_device_properties, range(torch.ocl.device_count()))
print([(p.platform_name, p.name) for p in properties])
"""


def devices(**environment):
    environment = {**os.environ, "TORCH_OCL_DEVICES": "", **environment}
    # A process of its own: LD_LIBRARY_PATH counts when one starts.
    command = [sys.executable, "-c", DEVICES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def system_loaders():
    """Debian's, ocl-icd, does not know OCL_ICD_FILENAMES."""
    folders = (Path("/usr/lib"), Path("/usr/lib64"), *Path("/usr/lib").glob("*-linux-gnu"))
    return [str(path) for folder in folders if (path := folder / "libOpenCL.so.1").exists()]


@pytest.mark.slow
def test_every_loader_finds_the_same_devices():
    expected = devices()
    for loader in _loader.find_loaders() + system_loaders():
        assert devices(TORCH_OCL_LOADER=loader) == expected, loader


@pytest.mark.slow
def test_the_system_s_folder_named_by_the_user():
    """With a slash at its end or without."""
    found = [
        devices(TORCH_OCL_LOADER=loader, OCL_ICD_VENDORS=f"/etc/OpenCL/vendors{end}")
        for loader in _loader.find_loaders() + system_loaders()
        for end in ("", "/")
    ]
    assert len(set(found)) <= 1, found


@pytest.mark.skipif(not _loader.find_icd_files(), reason="no driver from pip is installed")
def test_drivers_named_by_the_user_are_found_by_every_loader(tmp_path):
    """By the name of a library alone, too, and while the folder of the system's names nothing."""
    driver = Path(_loader.find_icd_files()[0])
    # The package names pip's driver by itself: this one has another name.
    (tmp_path / "libsome.so.1").symlink_to(driver)
    paths = f"{tmp_path}:{driver.parent}"
    for loader in _loader.find_loaders() + system_loaders():
        named = {"OCL_ICD_VENDORS": "/nonexistent/", "OCL_ICD_FILENAMES": "libsome.so.1"}
        found = devices(TORCH_OCL_LOADER=loader, LD_LIBRARY_PATH=paths, **named)
        assert found.count("('") == 1 and "Intel" in found, loader


def test_drivers_without_an_icd_file(tmp_path, monkeypatch):
    """A container with an NVIDIA GPU has the driver, but no .icd file; conda has a folder of its
    own."""
    system, conda = tmp_path / "vendors", tmp_path / "conda"
    folder = conda / "etc" / "OpenCL" / "vendors"
    folder.mkdir(parents=True), system.mkdir()
    monkeypatch.setattr(_loader, "_VENDORS", str(system))
    (system / "pocl.icd").write_text("/usr/lib/x86_64-linux-gnu/libpocl.so.2.10.0\n")
    (system / "empty.icd").write_text("")
    os.mkfifo(system / "pipe.icd")
    (folder / "rusticl.icd").write_text("/opt/conda/lib/libRusticlOpenCL.so.1\n")
    find = _loader.find_unlisted_drivers
    assert "libnvidia-opencl.so.1" in find({})
    assert "libpocl.so.2" not in find({}) and "libRusticlOpenCL.so.1" in find({})
    found = find({"CONDA_PREFIX": str(conda)})
    assert found[0] == "/opt/conda/lib/libRusticlOpenCL.so.1"
    assert "libRusticlOpenCL.so.1" not in found
    # Who says which drivers to take gets no others.
    for variable in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"):
        assert find({variable: "/some/driver.so"}) == []
    assert set(find({})) <= set(_loader.find_drivers())
