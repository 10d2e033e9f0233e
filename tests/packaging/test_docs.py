"""The documentation is that of the code: its generated parts, and the environment variables."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
IN_SOURCE_TREE = (ROOT / "torch_ocl" / "ops_manifest.json").exists()
BUILT_WITH_PINNED_TORCH = torch.__version__.startswith("2.13.")


@pytest.mark.skipif(not BUILT_WITH_PINNED_TORCH, reason="the tables are those of torch 2.13")
@pytest.mark.skipif(not IN_SOURCE_TREE, reason="not run from the source tree")
def test_generated_parts_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr + "\nRun `make docs`."


@pytest.mark.skipif(not IN_SOURCE_TREE, reason="not run from the source tree")
def test_environment_variables_are_documented() -> None:
    reads = r"(?:getenv\(|positive_number\(|switched_on\(|environ\S*[\[(])\"(TORCH_OCL_\w+)\""
    read = set()
    for folder, pattern in (("csrc", "*.cpp"), ("torch_ocl", "*.py")):
        for path in (ROOT / folder).rglob(pattern):
            read |= set(re.findall(reads, path.read_text()))
    readme = (ROOT / "README.md").read_text()
    assert {name for name in read if f"`{name}`" not in readme} == set()
