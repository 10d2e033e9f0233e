"""Commits have a scope and a body, as CONTRIBUTING.md asks.

    python tools/commit_message.py [FILE]

It judges the message in FILE, which git's commit-msg hook names. Without one it judges the commits
since START; a clone without START has none. Messages of merges are git's own, and pass.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

#: The last commit that nothing was asked of.
START = "c7902868676f2f58c4561f9dda2edaa8fb5b1c84"
_SCOPE = re.compile(r"[A-Za-z][\w.,/ -]*: \S")
#: Lines that are no body: git's comments, and who signed.
_NOT_SAID = re.compile(r"#|[A-Z][\w-]+-by: ")


def faults(message: str) -> list[str]:
    """Lists what a message lacks."""
    lines = message.partition("\n# ------------------------ >8")[0].splitlines()
    subject, *rest = [line.strip() for line in lines if not _NOT_SAID.match(line)] or [""]
    if subject.startswith("Merge "):
        return []
    found = [] if _SCOPE.match(subject) else ["a scope, as in `gemm: what changes`"]
    if rest[:1] != [""] or not any(rest):
        found.append("a body behind an empty line: why, and what was measured")
    return found


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], capture_output=True, text=True)


def commits() -> dict[str, str]:
    """The messages of the commits that are judged, by their short hashes."""
    if git("cat-file", "-e", START).returncode != 0:
        return {}
    log = git("log", "--format=%h%n%B%x00", "HEAD", f"^{START}")
    log.check_returncode()
    entries = [entry.strip("\n").partition("\n") for entry in log.stdout.split("\0")]
    return {name: message for name, _, message in entries if name}


def main(arguments: list[str]) -> int:
    if arguments:
        messages = {arguments[0]: Path(arguments[0]).read_text(encoding="utf-8")}
    else:
        messages = commits()
    lacks = {name: faults(message) for name, message in messages.items()}
    for name, missing in lacks.items():
        subject = messages[name].partition("\n")[0]
        for what in missing:
            print(f'{name} "{subject}" lacks {what}')
    if any(lacks.values()):
        return 1
    print(f"{len(messages)} commits have a scope and a body")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
