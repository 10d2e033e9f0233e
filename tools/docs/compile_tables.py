"""Tables of the results under torch.compile, for generate.py: summary(), failures(), breaks()."""

from __future__ import annotations

import re
from collections import defaultdict

from coverage_tables import DTYPES, table

from tests.coverage import results as files
from tests.coverage.compiled import results


def _load() -> dict[str, dict]:
    return files.load(results.DOCUMENTED)


def summary() -> str:
    """Per runtime and dtype: how many OpInfos pass, and how the others fail."""
    rows = []
    for runtime, part in _load().items():
        for dtype in DTYPES:
            count, generated = results.counts(part["ops"], dtype)
            total = sum(count.values()) - count["eager"]
            if total:
                passing = sum(count[name] for name in results.PASSING)
                names = ("pass", "breaks", "upstream", "gap", "wrong")
                row = [runtime, dtype, str(part["about"]["samples"]), str(total)]
                row += [str(count[name]) for name in names]
                rows.append([*row, str(generated), f"{100 * passing / total:.1f} %"])
    header = ["runtime", "dtype", "samples", "of", "one graph", "breaks", "upstream"]
    return table([*header, "fails", "wrong", "generated", "pass"], rows)


def _with_reasons(kinds: tuple[str, ...]) -> list[tuple[str, str, str, str]]:
    """(runtime, op, dtypes, reason) of the cases that ended so."""
    found = []
    for runtime, part in _load().items():
        for op, dtypes in part["ops"].items():
            reasons: dict[str, list[str]] = defaultdict(list)
            for dtype, short in DTYPES.items():
                if dtype in dtypes and results.kind(dtypes[dtype]) in kinds:
                    reasons[dtypes[dtype][0]].append(short)
            found += [(runtime, op, " ".join(names), why) for why, names in reasons.items()]
    return found


def failures() -> str:
    """Ops that don't pass, and why."""
    found = _with_reasons(results.FAILING)
    rows = [[runtime, f"`{op}`", names, why] for runtime, op, names, why in found]
    return table(["runtime", "op", "dtypes", "why"], rows) if rows else "None.\n"


def breaks() -> str:
    """Dynamo's words on the ops that break their graph."""
    ops: dict[str, set[str]] = defaultdict(set)
    for _, op, _, why in _with_reasons(("breaks",)):
        said = re.sub(r"^breaks: \w+: ", "", why)
        ops[re.split(r" Explanation: | \(unhinted", said)[0]].add(op)
    rows = [[why, ", ".join(f"`{op}`" for op in sorted(ops[why]))] for why in sorted(ops)]
    return table(["Dynamo says", "ops"], rows) if rows else "None.\n"
