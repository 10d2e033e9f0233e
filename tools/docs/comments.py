"""Comments have subjects: none begins with a word that leaves the reader to find what it is about.

    python tools/docs/comments.py [FILE OR FOLDER ...]

`make lint` names the folders that it keeps so. It looks at the first word of a comment, of a
docstring, and of a comment behind code, in the files that git knows, and at the first words of
their other sentences.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: "Of no elements there is ..." speaks of an empty tensor, "The same for GPUs" of a kernel.
WITHOUT_SUBJECT = re.compile(r"(Of|Likewise|What|The\s+same)\b")
#: A sentence inside may be about "What is left", which it names, or about "The same message".
WITHOUT_SUBJECT_INSIDE = re.compile(
    r"(?<=[.!?]\s)\s*(?:Of|Likewise|The\s+same(?=\W*$|[.,:;]|\s+(?:again|as|by|for|holds|in|of|on)\b))\b"
)
C_LIKE = (".c", ".cpp", ".h", ".cl", ".clh")
HASHED = (".yaml", ".txt", "Makefile", ".cmake", ".in", ".sh", ".toml", "/run")
_MARKS = re.compile(r"///?<?|/\*+")
_TEXT = re.compile(r'"(?:\\.|[^"\\])*"')
#: The lines of a comment: the number of the first one, and their words.
Comment = tuple[int, list[str]]


def comments(text: str, marks: re.Pattern[str] | str) -> Iterator[Comment]:
    """Each comment of a text: lines in a row that begin with a mark, or one behind code."""
    start = re.compile(marks)
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = _TEXT.sub('""', line).strip()
        found = start.match(stripped)
        words = stripped[found.end() :].strip() if found else ""
        if block and not words:
            yield number - len(block), block
            block = []
        if words:
            block.append(words)
        elif not found and (behind := re.search(rf"\s(?:{start.pattern})\s", stripped)):
            yield number, [stripped[behind.end() :].strip()]


def python_comments(text: str) -> Iterator[Comment]:
    """Each docstring and comment of Python."""
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and body and (said := ast.get_docstring(node)):
            yield body[0].lineno, said.splitlines()
    alone: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words, number = token.string.lstrip("#:").strip(), token.start[0]
            if not token.line.lstrip().startswith("#"):
                yield number, [words]
            elif words:
                alone[number] = words
    for number in alone:
        if number - 1 not in alone:
            rows = itertools.takewhile(alone.__contains__, itertools.count(number))
            yield number, [alone[row] for row in rows]


def without_subject(comment: Comment) -> Iterator[tuple[int, str]]:
    """The line and the words of each sentence that lacks one."""
    number, lines = comment
    text = "\n".join(lines)
    found = [match for match in (WITHOUT_SUBJECT.match(text),) if match]
    found += WITHOUT_SUBJECT_INSIDE.finditer(text)
    for match in found:
        at = match.start() + len(match[0]) - len(match[0].lstrip())
        yield number + text.count("\n", 0, at), " ".join(text[at : at + 60].split())


def complaints(path: Path) -> list[str]:
    """A line for each sentence of the file's comments that lacks a subject."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = python_comments(text)
    else:
        found = comments(text, _MARKS if path.suffix in C_LIKE else "#:?")
    bad = [one for comment in found for one in without_subject(comment)]
    return [
        f'{path}:{number}: a comment without a subject: "{words}"' for number, words in sorted(bad)
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
