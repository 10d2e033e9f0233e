"""Tables of the op matrix's results, for generate.py: summary(), host_staged(), gaps(), every_op();
and table(), which lays out any."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.coverage import gaps as known_gaps  # noqa: E402
from tests.coverage import results  # noqa: E402

DTYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "bool": "bool",
    "complex64": "c64",
}


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; every row has as many cells as the header."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def summary() -> str:
    """Per runtime and dtype: how many OpInfos pass every check, natively or on the host."""
    rows = []
    for runtime, part in results.load().items():
        for dtype in DTYPES:
            count = results.counts(part["ops"], dtype)
            total = sum(count.values())
            if total:
                share = f"{100 * (count['native'] + count['host']) / total:.1f} %"
                row = [runtime, dtype, str(total), str(count["native"])]
                rows.append([*row, str(count["host"]), str(count["gap"]), share])
    return table(["runtime", "dtype", "of", "native", "host-staged", "gaps", "pass"], rows)


def host_staged() -> str:
    """Work on the host, and for which ops."""
    users: dict[str, set[str]] = defaultdict(set)
    for part in results.load().values():
        for op, dtypes in part["ops"].items():
            for verdict, _ in dtypes.values():
                if verdict.startswith("host: "):
                    for staged in verdict.removeprefix("host: ").split(", "):
                        users[staged].add(op)
    rows = [
        [f"`{staged}`", ", ".join(f"`{op}`" for op in sorted(ops))]
        for staged, ops in sorted(users.items())
    ]
    return table(["ATen function", "ops that run it"], rows) if rows else "None.\n"


def gaps() -> str:
    """Ops that don't pass, and why."""
    rows = []
    known = known_gaps.load()
    for runtime, part in results.load().items():
        for op, dtypes in part["ops"].items():
            reasons: dict[str, list[str]] = defaultdict(list)
            for dtype, (verdict, _) in dtypes.items():
                if verdict.startswith("gap: "):
                    reason = known_gaps.reason(known, op, dtype) or verdict.removeprefix("gap: ")
                    reasons[reason].append(DTYPES[dtype])
            for reason, names in reasons.items():
                rows.append([runtime, f"`{op}`", " ".join(names), reason])
    return table(["runtime", "op", "dtypes", "why"], rows) if rows else "None.\n"


def every_op() -> str:
    """Every OpInfo: its dtypes by how they pass, and the checks that had samples."""
    text = ""
    for runtime, part in results.load().items():
        rows = []
        for op, dtypes in part["ops"].items():
            kinds: dict[str, list[str]] = defaultdict(list)
            letters = set()
            for dtype, short in DTYPES.items():
                if dtype in dtypes:
                    verdict, checked = dtypes[dtype]
                    kinds[verdict.split(":")[0]].append(short)
                    letters |= set(checked)
            checks = "".join(c for c in results.CHECK_LETTERS.values() if c in letters)
            columns = [" ".join(kinds[kind]) for kind in ("native", "host", "gap")]
            rows.append([f"`{op}`", checks, *columns])
        about = part["about"]
        text += f"\n## {runtime}\n\n{about['device']}, torch {about['torch']}, "
        text += f"{about['samples']} samples of each op.\n\n"
        text += table(["op", "checks", "native", "host-staged", "gap"], rows)
    return text
