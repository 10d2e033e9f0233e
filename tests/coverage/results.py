"""The results of the op matrix: docs/reference/op-coverage.json, one line an op and runtime.

    {"<runtime>": {"about": {...}, "ops": {"<OpInfo>": {"<dtype>": ["<verdict>", "<checks>"]}}}}

A verdict is "native", "host: <ops that were computed on the host>" or "gap: <check>: <error>";
checks are letters of CHECK_LETTERS, those that looked at a sample and passed.
"""

import json
import pathlib
import re

PATH = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "op-coverage.json"
#: The checks that letters stand for.
CHECK_LETTERS = {
    "forward": "f",
    "noncontiguous": "n",
    "out": "o",
    "inplace": "i",
    "backward": "b",
    "forward_ad": "d",
    "errors": "e",
    "refused": "r",
}
LONGEST_REASON = 140


def verdict(result):
    """(verdict, letters of the checks that passed) of a worker's result."""
    letters = "".join(
        letter for name, letter in CHECK_LETTERS.items() if result.get("looked_at", {}).get(name)
    )
    if result["failed"]:
        return "gap: " + "; ".join(
            f"{n}: {_short(e)}" for n, e in result["failed"].items()
        ), letters
    if result["fallbacks"]:
        return "gap: ran on the CPU: " + ", ".join(sorted(result["fallbacks"])), letters
    if not letters:
        return "gap: no sample was checked", letters
    if result["host_staged"]:
        return "host: " + ", ".join(sorted(result["host_staged"])), letters
    return "native", letters


def _short(error):
    text = re.sub(r"\s+", " ", error.split(" (dtypes: ")[0]).replace("|", "/")
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + "..."


def load(path=None):
    path = path or PATH
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def save(results, path=None):
    blocks = []
    for runtime, part in sorted(results.items()):
        ops = ",\n".join(
            f"   {json.dumps(op)}: {json.dumps(dtypes)}"
            for op, dtypes in sorted(part["ops"].items())
        )
        about = json.dumps(part["about"])
        blocks.append(
            f' {json.dumps(runtime)}: {{\n  "about": {about},\n  "ops": {{\n{ops}\n  }}\n }}'
        )
    (path or PATH).write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def counts(ops, dtype):
    """{"native", "host", "gap"} of one dtype."""
    kinds = [entry[dtype][0].split(":")[0] for entry in ops.values() if dtype in entry]
    return {kind: kinds.count(kind) for kind in ("native", "host", "gap")}
