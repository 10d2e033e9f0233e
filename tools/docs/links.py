"""Checks the links within the repository of its Markdown files: `make lint`.

    python tools/docs/links.py [file ...]

A link's file must exist, and its anchor must be a heading there. Links to other sites are left
alone. Code blocks and code spans have no links. Without arguments it reads all
Markdown files of the repository.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: [text](target), [text](target "title"), and images.
LINK = re.compile(r"(?P<before>\]\()(?P<target>[^()\s]+)(?P<after>(?: \"[^\"]*\")?\))")
CODE = re.compile(
    r"^ {0,8}(?P<fence>`{3,}|~{3,}).*?^ {0,8}(?P=fence)[`~]*\s*?$"
    r"|(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE | re.DOTALL,
)
HEADING = re.compile(r"^#{1,6} +(.+?)\s*#*$", re.MULTILINE)


def is_local(target: str) -> bool:
    return not re.match(r"[a-z]+:", target)


def replace_links(text: str, replace: Callable[[str], str]) -> str:
    """The text with replace(target) for each link's target, outside of code."""
    hidden: list[str] = []

    def hide(found: re.Match[str]) -> str:
        hidden.append(found[0])
        return f"\ue000{len(hidden) - 1}\ue001"

    text = CODE.sub(hide, text)
    text = LINK.sub(lambda m: m["before"] + replace(m["target"]) + m["after"], text)
    return re.sub("\ue000(\\d+)\ue001", lambda m: hidden[int(m[1])], text)


def anchors(text: str) -> set[str]:
    """The names that GitHub and MyST give to headings."""
    names: set[str] = set()
    for heading in HEADING.findall(re.sub(r"^(`{3,}|~{3,}).*?^\1", "", text, flags=re.M | re.S)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number, name = 0, slug
        while name in names:
            number += 1
            name = f"{slug}-{number}"
        names.add(name)
    return names


def problem(target: str, origin: Path) -> str | None:
    """The fault of a link of the file `origin`."""
    if not is_local(target):
        return None
    path, _, anchor = target.partition("#")
    file = (origin.parent / path).resolve() if path else origin
    if not file.exists():
        return "there is no such file"
    if anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
        return "there is no such heading"
    return None


def problems(path: Path) -> list[str]:
    found: list[str] = []

    def look(target: str) -> str:
        if wrong := problem(target, path):
            found.append(f"{path.relative_to(ROOT)}: {target}: {wrong}")
        return target

    replace_links(path.read_text(encoding="utf-8"), look)
    return found


def tracked() -> list[Path]:
    """All Markdown files that git knows, but those that stand for others."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [path for path in paths if path.exists() and not path.is_symlink()]


def main(arguments: Sequence[str]) -> int:
    paths = [Path(name).resolve() for name in arguments] or tracked()
    found = [text for path in paths for text in problems(path)]
    print("\n".join(found) or f"{len(paths)} files: all links within the repository lead somewhere")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
