"""Fills in the generated parts of the documentation: `make docs`, or with --check only compares.

A generated part stands between two comments of a Markdown file:

    <!-- generated: ops-summary -->
    <!-- end generated -->

Its name is a key of PARTS below, or `file <path>`: a file of the repository, such as an example.
FILES has what is generated whole.
"""

from __future__ import annotations

import argparse
import json
import re
import runpy
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import api_pages
import compile_tables
import coverage_tables
import distributed_page
import engine_page
import names_pages
import speed_picture
import yaml
from coverage_tables import table

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md", "docker/README.md")
MEASUREMENTS = ROOT / "docs" / "measurements"
MANIFEST = ROOT / "torch_ocl" / "ops_manifest.json"
GAPS = ROOT / "tests" / "coverage" / "known_gaps.yaml"
MARKED = re.compile(
    r"(?P<begin><!-- generated: (?P<name>[^>]+?) -->\n).*?(?P<end><!-- end generated -->)",
    re.DOTALL,
)
# The implementation behind a registered function, by the op table's kind.
KINDS = {
    "pointwise": "pointwise functor",
    "kernel": "kernel behind upstream's function",
    "impl": "own implementation",
    "native": "upstream's, over views and other ops",
}


def manifest() -> dict[str, dict]:
    return json.loads(MANIFEST.read_text(encoding="utf-8"))


def gaps() -> dict[str, dict[str, str]]:
    return (yaml.safe_load(GAPS.read_text(encoding="utf-8")) or {}) if GAPS.exists() else {}


def root_name(function: str) -> str:
    """`add_.Tensor` -> `add`."""
    base = function.split(".")[0]
    return base if base.startswith("__") else base.rstrip("_")


def ops_summary() -> str:
    """Per section of the op table: how many ops and functions, and some names."""
    sections: dict[str, set[str]] = defaultdict(set)
    counts: dict[str, int] = defaultdict(int)
    for function, entry in manifest().items():
        sections[entry["section"]].add(root_name(function))
        counts[entry["section"]] += 1
    rows = []
    for section, names in sorted(sections.items()):
        public = sorted({name if name.startswith("__") else name.lstrip("_") for name in names})
        shown = ", ".join(f"`{name}`" for name in public[:8]) + (", ..." if len(public) > 8 else "")
        rows.append([section, str(len(names)), str(counts[section]), shown])
    total = sum(counts.values())
    rows.append(["**all**", str(len(set().union(*sections.values()))), str(total), ""])
    return table(["family", "ops", "ATen functions", "among them"], rows)


def ops_all() -> str:
    """Every op: its registered ATen functions and what runs behind them."""
    by_section: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    functions = manifest()
    for function, entry in functions.items():
        by_section[entry["section"]][root_name(function)].append(function)
    text = ""
    for section, ops in sorted(by_section.items()):
        rows = []
        for op, names in sorted(ops.items()):
            kinds = sorted({KINDS[functions[name]["kind"]] for name in names})
            rows.append(
                [f"`{op}`", " ".join(f"`{name}`" for name in sorted(names)), "; ".join(kinds)]
            )
        text += f"\n## {section}\n\n" + table(["op", "registered", "implementation"], rows)
    return text


def ops_gaps() -> str:
    """The list the op matrix of the tests is held to."""
    rows = [
        [f"`{op}`", dtype, reason]
        for op, reasons in sorted(gaps().items())
        for dtype, reason in sorted(reasons.items())
    ]
    return table(["op", "dtype", "why"], rows) if rows else "None.\n"


def speed() -> str:
    """By table of measurements: the device, what it is beside, how many times as fast it is."""
    rows = [
        [one.device, one.driver, one.beside, str(len(one.ratios)), f"{one.speed} times as fast"]
        for one in speed_picture.tables(MEASUREMENTS)
    ]
    return table(["device", "OpenCL driver", "beside", "cases", "mean speed"], rows)


def speed_in_words() -> str:
    """A sentence for each of PyTorch's own devices: of the fastest driver, where there are two."""
    tables = sorted(speed_picture.tables(MEASUREMENTS), key=lambda one: one.mean, reverse=True)
    best = {one.beside: one for one in tables}
    said = [
        f"On an {one.device} it is **{one.speed} times as fast as PyTorch's own "
        f"{beside.removesuffix(' torch')} code**: the geometric mean of {len(one.ratios)} cases.\n"
        for beside, one in sorted(best.items())
    ]
    return "".join(said)


def libraries() -> str:
    """A row for each library: the version tried, what works, what doesn't and why."""
    path = ROOT / "docs" / "reference" / "libraries.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for name, tried in found.items():
        works = [check["what"] for check in tried["checks"] if not check["error"]]
        others = [check for check in tried["checks"] if check["error"]]
        missing = [f"{check['what']} ({check['fails'] or check['error']})" for check in others]
        version = tried["version"] or ""
        rows.append([name, version, "; ".join(works), "; ".join(missing)])
    checks = [check for tried in found.values() for check in tried["checks"]]
    working = sum(not check["error"] for check in checks)
    text = f"{working} of {len(checks)} checks work, of {len(found)} libraries:\n\n"
    return text + table(["library", "version", "works", "doesn't"], rows)


def environment() -> str:
    """The variables that the package reads, and those of others."""
    # The file alone: the package would load torch.
    listed = runpy.run_path(str(ROOT / "torch_ocl" / "_environment.py"))
    variables = {**listed["VARIABLES"], **listed["OTHERS_VARIABLES"]}
    return table(["variable", "meaning"], [[f"`{name}`", text] for name, text in variables.items()])


PARTS: dict[str, Callable[[], str]] = {
    "api": api_pages.api,
    "compile-coverage-breaks": compile_tables.breaks,
    "compile-coverage-failures": compile_tables.failures,
    "compile-coverage-summary": compile_tables.summary,
    "distributed-features": distributed_page.features,
    "distributed-upstream": distributed_page.upstream,
    "engines": engine_page.engines,
    "environment": environment,
    "names": names_pages.names,
    "names-counts": names_pages.counts,
    "op-coverage-all": coverage_tables.every_op,
    "op-coverage-gaps": coverage_tables.gaps,
    "op-coverage-host": coverage_tables.host_staged,
    "op-coverage-summary": coverage_tables.summary,
    "libraries": libraries,
    "ops-summary": ops_summary,
    "speed": speed,
    "speed-in-words": speed_in_words,
    "ops-all": ops_all,
    "ops-gaps": ops_gaps,
}


#: Whole files that are generated.
FILES: dict[str, Callable[[], str]] = {
    "docs/speed.svg": lambda: speed_picture.svg(MEASUREMENTS),
}


def file_part(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    language = {".py": "python", ".clh": "c", ".cl": "c"}.get(Path(path).suffix, "")
    return f"```{language}\n{text.rstrip()}\n```\n"


def part(name: str) -> str:
    if name.startswith("file "):
        return file_part(name.removeprefix("file "))
    if name not in PARTS:
        raise KeyError(f"no generated part is called {name!r}")
    return PARTS[name]()


def fill_in(text: str) -> str:
    return MARKED.sub(lambda match: match["begin"] + part(match["name"]) + match["end"], text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail if out of date")
    check = parser.parse_args().check
    stale = []

    def update(path: Path, new: str) -> None:
        if not path.exists() or new != path.read_text(encoding="utf-8"):
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(new, encoding="utf-8")

    for path in sorted(path for pattern in DOCUMENTS for path in ROOT.glob(pattern)):
        update(path, fill_in(path.read_text(encoding="utf-8")))
    for name, make in FILES.items():
        update(ROOT / name, make())
    if stale:
        print(("out of date: " if check else "updated: ") + ", ".join(stale))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
