"""The page of process groups for generate.py: what works, and tests that can't pass."""

from __future__ import annotations

import runpy
from pathlib import Path

import yaml
from coverage_tables import table

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "distributed"


def features() -> str:
    """A table for each part of features.yaml."""
    parts = yaml.safe_load((TESTS / "features.yaml").read_text(encoding="utf-8"))
    return "\n".join(f"**{part}**\n\n" + _table(found) for part, found in parts.items())


def _table(found: list[dict]) -> str:
    rows = []
    for feature in found:
        links = []
        for name in feature["tests"]:
            file, _, function = name.rpartition(".")
            path = (TESTS / f"{file}.py").resolve().relative_to(ROOT)
            links.append(f"[`{function}`](../../{path})")
        rows.append([feature["what"], ", ".join(links)])
    return table(["works", "shown by"], rows)


def upstream() -> str:
    """The tests of upstream_known.py, with the reasons."""
    known = runpy.run_path(str(TESTS / "upstream_known.py"))["FAILS"]
    return table(["test", "why"], [[f"`{name}`", why] for name, why in sorted(known.items())])
