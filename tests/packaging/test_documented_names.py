"""Every name of this package that the documentation mentions exists, under the path given there."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\b(?:torch_ocl|torch\.ocl|torch\.backends\.ocl)(?:\.[A-Za-z_]\w*)+")
#: Files, CMake's targets and ops have such names, too.
OTHERS = re.compile(
    r"torch\.ocl\.x$|torch_ocl\.(so|egg-info|dist-info)$|torch_ocl\.\w+\.cmake_prefix_path$"
)
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def documented():
    """Names, each with the first page that mentions it."""
    found = {}
    for page in PAGES:
        for name in NAME.findall(page.read_text(encoding="utf-8")):
            if not OTHERS.search(name):
                found.setdefault(name, str(page.relative_to(ROOT)))
    return found


def resolve(name):
    """The object of a dotted name: modules are imported, the rest are attributes."""
    parts = name.split(".")
    module = importlib.import_module(parts[0])
    for end in range(len(parts), 1, -1):
        try:
            module = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        break
    else:
        end = 1
    for part in parts[end:]:
        module = getattr(module, part)
    return module


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="not run from the source tree")
def test_documented_names_exist():
    names = documented()
    assert len(names) > 50
    missing = {}
    for name, page in names.items():
        try:
            resolve(name)
        except AttributeError as error:
            missing[name] = (page, str(error))
    assert not missing


def test_the_package_has_few_entries():
    """A new module belongs into one of the folders."""
    if not (ROOT / "csrc").is_dir():
        pytest.skip("not run from the source tree")
    built = {
        "_built_for.py",
        "device_count",
        "build_worker",
        "include",
        "ops_manifest.json",
        "share",
        "__pycache__",
    }
    entries = {p.name for p in (ROOT / "torch_ocl").iterdir() if p.suffix != ".so"} - built
    assert len(entries) <= 16, sorted(entries)
