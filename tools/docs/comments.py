"""Comments have subjects: none begins with a word that leaves the reader to find what it is about.

    python tools/docs/comments.py [FILE OR FOLDER ...]

`make lint` names the folders that it keeps so. It looks at the first word of a comment, of a
docstring, and of a comment behind code, in the files that git knows.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: "Of no elements there is ..." speaks of an empty tensor, "The same for GPUs" of a kernel.
WITHOUT_SUBJECT = re.compile(r"(Of|Likewise|What|The same)\b")
C_LIKE = (".c", ".cpp", ".h", ".cl", ".clh")
HASHED = (".yaml", ".txt", "Makefile", ".cmake")
_MARKS = re.compile(r"///?<?|/\*+")
_TEXT = re.compile(r'"(?:\\.|[^"\\])*"')


def comments(text: str, marks: re.Pattern[str] | str) -> Iterator[tuple[int, str]]:
    """The first line of each comment: its number, and its words."""
    start = re.compile(marks)
    inside = False  # of a block of comments
    for number, line in enumerate(text.splitlines(), 1):
        stripped = _TEXT.sub('""', line).strip()
        if found := start.match(stripped):
            words = stripped[found.end() :].strip()
            if not inside:
                yield number, words
            inside = bool(words)
            continue
        inside = False
        if behind := re.search(rf"\s(?:{start.pattern})\s", stripped):
            yield number, stripped[behind.end() :].strip()


def python_comments(text: str) -> Iterator[tuple[int, str]]:
    """The first line of each comment and docstring of Python: its number, and its words."""
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and body and (said := ast.get_docstring(node)):
            yield body[0].lineno, said.splitlines()[0]
    last = 0, False  # the line of the comment before, and whether it had words
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        words, number = token.string.lstrip("#:").strip(), token.start[0]
        alone = token.line.lstrip().startswith("#")
        if not (alone and last == (number - 1, True)):
            yield number, words
        last = number, alone and bool(words)


def complaints(path: Path) -> list[str]:
    """A line for each comment of the file that lacks a subject."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = python_comments(text)
    else:
        found = comments(text, _MARKS if path.suffix in C_LIKE else "#:?")
    return [
        f'{path}:{number}: a comment without a subject: "{words[:60]}"'
        for number, words in sorted(found)
        if WITHOUT_SUBJECT.match(words)
    ]


def main(arguments: list[str]) -> int:
    names = subprocess.run(
        ["git", "ls-files", "--", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    paths = [ROOT / name for name in names if name.endswith((*C_LIKE, *HASHED, ".py"))]
    found = [line for path in paths if path.exists() for line in complaints(path)]
    print("\n".join(found) if found else f"{len(paths)} files: all comments have subjects")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
