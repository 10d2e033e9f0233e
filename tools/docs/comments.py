"""Comments have subjects: none begins with a word that leaves the reader to find what it is about.

    python tools/docs/comments.py [FILE OR FOLDER ...]

`make lint` names the folders that it keeps so. It looks at the first word of a comment, of a
docstring, and of a comment behind code, in the files that git knows.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: "Of no elements there is ..." speaks of an empty tensor, "The same for GPUs" of a kernel.
WITHOUT_SUBJECT = re.compile(r"(Of|Likewise|What|The same)\b")
C_LIKE = (".cpp", ".h", ".cl", ".clh")
HASHED = (".py", ".yaml", ".txt", "Makefile", ".cmake")


def comments(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """The first line of each comment and docstring: its number, and its words."""
    alone = re.compile(rf'^\s*({mark}|r?""")\s*(.*)$')
    behind = re.compile(rf"\S.*\s(?:{mark})\s+(.*)$")
    inside = False  # of a block of comments or a docstring
    quoted = False
    for number, line in enumerate(text.splitlines(), 1):
        if quoted:
            quoted = '"""' not in line
            continue
        found = alone.match(line)
        if found and found[1].endswith('"""'):
            yield number, found[2]
            quoted = '"""' not in found[2]
            inside = False
        elif found:
            if not inside:
                yield number, found[2]
            inside = bool(found[2])
        else:
            inside = False
            if after := behind.search(line):
                yield number, after[1]


def complaints(path: Path) -> list[str]:
    """A line for each comment of the file that lacks a subject."""
    mark = r"///?<?" if path.suffix in C_LIKE else r"#:?"
    return [
        f'{path}:{number}: a comment without a subject: "{words[:60]}"'
        for number, words in comments(path.read_text(encoding="utf-8"), mark)
        if WITHOUT_SUBJECT.match(words)
    ]


def main(arguments: list[str]) -> int:
    names = subprocess.run(
        ["git", "ls-files", "--", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    paths = [ROOT / name for name in names if name.endswith(C_LIKE + HASHED)]
    found = [line for path in paths if path.exists() for line in complaints(path)]
    print("\n".join(found) if found else f"{len(paths)} files: all comments have subjects")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
