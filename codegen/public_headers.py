"""Copies csrc/extension.h and all that it includes to a folder, for extensions.

    python codegen/public_headers.py --csrc csrc --out build/gen/include/torch_ocl

The copies include each other as "torch_ocl/...", so that an extension needs one include folder and
may have a folder `engine` of its own. With --list it prints their names instead.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

ROOT = "extension.h"
INCLUDE = re.compile(r'^(#include ")([^"]+)(")', re.MULTILINE)


def public_headers(csrc: Path) -> list[str]:
    """extension.h and what it includes, at any depth, sorted. OSError if one is missing."""
    found: set[str] = set()
    left = [ROOT]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        text = (csrc / name).read_text(encoding="utf-8")
        left += [match[2] for match in INCLUDE.finditer(text)]
    return sorted(found)


def public_text(csrc: Path, name: str) -> str:
    """The header's text as it is installed."""
    text = (csrc / name).read_text(encoding="utf-8")
    return INCLUDE.sub(r"\1torch_ocl/\2\3", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csrc", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="the folder torch_ocl of an include folder")
    parser.add_argument("--list", action="store_true", help="print the headers and stop")
    arguments = parser.parse_args()
    names = public_headers(arguments.csrc)
    if arguments.list:
        print("\n".join((arguments.csrc / name).as_posix() for name in names))
        return
    if arguments.out is None:
        parser.error("--out is missing")
    for name in names:
        path, text = arguments.out / name, public_text(arguments.csrc, name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in sorted(arguments.out.rglob("*.h")):  # of an earlier build
        if path.relative_to(arguments.out).as_posix() not in names:
            path.unlink()


if __name__ == "__main__":
    main()
