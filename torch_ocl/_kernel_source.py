"""What is done to a user's source before a driver gets it: includes, and the lines it came from."""

import linecache
import re
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]')


def _line(number: int, file: str) -> str:
    escaped = file.replace("\\", "\\\\").replace('"', "'")
    return f'#line {number} "{escaped}"\n'


def include_folders(options: Sequence[str]) -> list[Path]:
    """The folders that -I names."""
    return [Path(f) for f in re.findall(r"(?:^|\s)-I\s*(\S+)", " ".join(options))]


def expand(
    source: str, folders: Sequence[Path], file: str, number: int, within: Sequence[Path] = ()
) -> str:
    """The source, its lines numbered from that one of `file` on, with the text of the files that it
    includes: so the program cache, whose key is the text, sees that a file changed. What is not
    found is left to the driver."""
    lines = source.splitlines(keepends=True)
    for at, line in enumerate(lines):
        found = _INCLUDE.match(line)
        path = found and next((f / found[1] for f in folders if (f / found[1]).is_file()), None)
        if not path:
            continue
        path = path.resolve()
        text = ""
        if path not in within:  # a file that includes itself has a guard, which ends it
            text = path.read_text(encoding="utf-8")
            text = expand(text, [path.parent, *folders], str(path), 1, [*within, path])
            text = text.removesuffix("\n") + "\n"
        lines[at] = text + _line(number + at + 1, file)
    return _line(number, file) + "".join(lines)


def files_of_callers(frame: FrameType | None) -> list[str]:
    """The source files of a frame and of those that called it, each once."""
    files: dict[str, None] = {}
    while frame is not None:
        files[frame.f_code.co_filename] = None
        frame = frame.f_back
    return list(files)


def find_source(source: str, files: Sequence[str]) -> tuple[str, int] | None:
    """The file and the line where the source stands as a string literal. None if its lines are in
    none of the files, one below the other."""
    wanted = source.split("\n")
    if not source.strip():
        return None
    for file in files:
        raw = [line.rstrip("\n") for line in linecache.getlines(file)]
        plain = [line.replace("\\\\", "\\") for line in raw]  # escaped, as in most strings
        for at in range(len(raw) - len(wanted) + 1):
            if _stands_at(wanted, plain, at) or _stands_at(wanted, raw, at):
                return file, at + 1
    return None


def _stands_at(wanted: Sequence[str], lines: Sequence[str], at: int) -> bool:
    if len(wanted) == 1:
        return wanted[0] in lines[at]
    last = at + len(wanted) - 1
    return (
        lines[at].endswith(wanted[0])
        and lines[last].startswith(wanted[-1])
        and all(lines[at + i] == wanted[i] for i in range(1, len(wanted) - 1))
    )
