"""The documentation is that of the code: its generated parts, and the environment variables."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_ocl import _environment, testing

ROOT = Path(__file__).resolve().parents[2]
IN_SOURCE_TREE = (ROOT / "torch_ocl" / "ops_manifest.json").exists()
BUILT_WITH_PINNED_TORCH = torch.__version__.startswith("2.13.")


@pytest.mark.skipif(not BUILT_WITH_PINNED_TORCH, reason="the tables are those of torch 2.13")
@pytest.mark.skipif(not IN_SOURCE_TREE, reason="not run from the source tree")
def test_generated_parts_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "docs" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr + "\nRun `make docs`."


@pytest.mark.skipif(not IN_SOURCE_TREE, reason="not run from the source tree")
def test_environment_variables_are_listed() -> None:
    """Those that the sources read are the listed ones, which the documentation is made from."""
    reads = r"(?:getenv\(|positive_number\(|switched_on\(|environ\S*[\[(])\"(TORCH_OCL_\w+)\""

    def read(*folders: str) -> set[str]:
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
        paths.append(ROOT / "torch_ocl_autoload.py")
        sources = [path.read_text() for path in paths if path.suffix in (".cpp", ".h", ".py")]
        return {name for source in sources for name in re.findall(reads, source)}

    assert tuple(testing.engines()) == _environment.ENGINES
    engines = {f"TORCH_OCL_{engine.upper()}" for engine in _environment.ENGINES}
    names = set(_environment.names())
    assert read("csrc", "torch_ocl") == names - engines
    of_tests = read("tests") - names
    assert of_tests == set(_environment.TEST_VARIABLES)


@pytest.mark.skipif(not IN_SOURCE_TREE, reason="not run from the source tree")
def test_every_public_name_is_on_the_api_page() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\.\. auto\w+:: (\w+)$", page, re.MULTILINE))
    modules = (torch.ocl, torch.ocl.amp, torch.ocl.tunable, torch.backends.ocl)
    names = {name for module in modules for name in module.__all__}
    # Submodules, and what __getattr__ makes.
    assert names - listed == {"amp", "tunable", "default_generators"}
