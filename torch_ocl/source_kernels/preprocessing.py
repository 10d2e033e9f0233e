"""A user's source is prepared before a driver gets it: includes, and the lines it came from."""

import linecache
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType

_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]')
_ONCE = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+once\b")
_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


#: A file that keeps itself from being read twice.
_GUARD = re.compile(
    r"(?:\s|//[^\n]*\n|/\*.*?\*/)*#[ \t]*ifndef[ \t]+(\w+)[ \t]*\n[ \t]*#[ \t]*define[ \t]+\1\b",
    re.S,
)


def _line(number: int, file: str) -> str:
    escaped = file.replace("\\", "\\\\").replace('"', "'")
    return f'#line {number} "{escaped}"\n'


def read(path: Path) -> str:
    """The text of a file, without a byte order mark. ValueError with its name if it isn't UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None


def check_text(source: str, path: Path | None) -> None:
    """Raises ValueError for what a driver can't be given, or what is a file's name."""
    place = f" of {path}" if path else ""
    if "\0" in source:
        raise ValueError(f"the source{place} has a null character")
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the source{place} is no text: {error}") from None
    if path is None and re.fullmatch(r"\S+\.(?:cl|ocl|clh|h)", source.strip()):
        raise ValueError(f"{source!r} is a file's name: pass pathlib.Path({source!r})")


def read_options(options: str | Sequence[str]) -> list[str]:
    """Options one by one, each with its value ("-I folder"): a string is read as a shell does, and
    so are strings of a sequence that have several in them, or quotes."""
    words: list[str] = []
    for text in [options] if isinstance(options, str) else options:
        several = isinstance(options, str) or re.search(r"\s-[A-Za-z]|[\"'].*\s", text)
        words += shlex.split(text) if several else [text.strip()]
    read: list[str] = []
    for word in words:
        if read and read[-1] in ("-I", "-D"):
            read[-1] += " " + word
        else:
            read.append(word)
    return read


def split_options(options: Sequence[str]) -> tuple[str, list[str]]:
    """Values with blanks in them, which drivers read each in their own way, as lines in front of
    the source, and the options for the driver. expand() looks into folders with blanks."""
    lines, others = "", []
    for option in options:
        value = re.fullmatch(r"-([DI])\s*(\S.*)", option, re.S)
        if value is None or not re.search(r"\s", value[2]):
            others.append(option)
        elif value[1] == "D":
            name, _, text = value[2].partition("=")
            lines += f"#define {name} {' '.join(text.split())}\n"
    return lines, others


def uncached(text: str) -> str:
    """The text with something new in it, if files are left that the compiler is to include: the
    caches of programs go by the text, and would not see that a file changed."""
    left = re.search(r"#[ \t]*include\b", text)
    return f"{text}\n// {time.time_ns()}\n" if left else text


def include_folders(options: Sequence[str]) -> list[Path]:
    """The folders that -I names."""
    return [Path(o.removeprefix("-I").strip()) for o in options if o.startswith("-I")]


def _commented_lines(source: str) -> set[int]:
    """The lines that begin within a comment."""
    lines: set[int] = set()
    for found in _COMMENT_OR_STRING.finditer(source):
        if found[0].startswith("/*"):
            first = source.count("\n", 0, found.start())
            lines.update(range(first + 1, first + 1 + found[0].count("\n")))
    return lines


def expand(
    source: str,
    folders: Sequence[Path],
    file: str,
    number: int,
    within: Sequence[Path] = (),
    once: set[Path] | None = None,
) -> str:
    """The source, its lines numbered from that one of `file` on, with the text of the files that it
    includes: so the program cache, whose key is the text, sees that a file changed. What is not
    found is left to the driver."""
    lines = source.splitlines(keepends=True)
    commented = _commented_lines(source)
    once = set() if once is None else once  # the files that say #pragma once
    for at, line in enumerate(lines):
        if at in commented:
            continue
        if within and _ONCE.match(line):
            once.add(within[-1])
            lines[at] = "\n"
        found = _INCLUDE.match(re.sub(r"/\*.*?\*/", " ", line))
        path = found and next((f / found[1] for f in folders if (f / found[1]).is_file()), None)
        if not path:
            continue
        path = path.resolve()
        text = ""
        if path in within and path not in once and not _GUARD.match(read(path)):
            # It counts how often it is read: the compiler's affair.
            lines[at] = f'#include "{path}"\n'
            continue
        if path not in within and path not in once:
            text = expand(read(path), [path.parent, *folders], str(path), 1, [*within, path], once)
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


def files_with(source: str) -> list[str]:
    """The files of the modules that have the string as a global variable."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [
        module.__file__
        for module in modules
        if getattr(module, "__file__", None) and source in _strings_of(module)
    ]


def _strings_of(module: ModuleType) -> list[str]:
    return [value for value in list(vars(module).values()) if type(value) is str]


def find_source(source: str, files: Sequence[str]) -> tuple[str, int] | None:
    """The file and the line where the source stands as a string literal, an f-string or one whose
    indentation was taken off. None if its lines are in none of the files, one below the other."""
    wanted = source.split("\n")
    if not source.strip():
        return None
    return _find_literal(wanted, files) or _find_template(wanted, files)


def _find_literal(wanted: Sequence[str], files: Sequence[str]) -> tuple[str, int] | None:
    for file in files:
        raw = [line.rstrip("\n") for line in linecache.getlines(file)]
        plain = [line.replace("\\\\", "\\") for line in raw]  # escaped, as in most strings
        for at in range(len(raw) - len(wanted) + 1):
            if _stands_at(wanted, plain, at) or _stands_at(wanted, raw, at):
                return file, at + 1
    return None


def _find_template(wanted: Sequence[str], files: Sequence[str]) -> tuple[str, int] | None:
    """Where the lines may come from by an f-string or textwrap.dedent. Only for several lines, of
    which one has a word of its own."""
    first = next(i for i, line in enumerate(wanted) if line.strip())
    texts = [line.strip() for line in "\n".join(wanted[first:]).rstrip().split("\n")]
    for file in files if len(texts) > 1 else ():
        lines = [line.strip() for line in linecache.getlines(file)]
        for at in range(len(lines) - len(texts) + 1):
            block = lines[at : at + len(texts)]
            block[0] = re.split(_QUOTES, block[0])[-1].strip()
            block[-1] = re.split(_QUOTES, block[-1])[0].strip()
            if not all(map(_may_become, block, texts)):
                continue
            if any(re.search(r"\w", re.sub(_PLACEHOLDER, "", line)) for line in block):
                return file, at + 1 - first
    return None


_QUOTES = re.compile("\"\"\"|'''")
_PLACEHOLDER = re.compile(r"(?<!\{)\{[^{}]+\}")


def _may_become(line: str, text: str) -> bool:
    """Whether a line of an f-string, or of another string, can have become the text."""
    if line == text:
        return True
    before = re.split("[{}]", line)[0]
    if before == line or not text.startswith(before):
        return False
    parts = re.split(r"(\{\{|\}\}|\{[^{}]+\})", line.replace("\\\\", "\\"))
    braces = {"{{": r"\{", "}}": r"\}"}
    parts[1::2] = [braces.get(part, ".*") for part in parts[1::2]]
    parts[::2] = map(re.escape, parts[::2])
    return re.fullmatch("".join(parts), text) is not None


def _stands_at(wanted: Sequence[str], lines: Sequence[str], at: int) -> bool:
    if len(wanted) == 1:
        return wanted[0] in lines[at]
    last = at + len(wanted) - 1
    return (
        lines[at].endswith(wanted[0])
        and lines[last].startswith(wanted[-1])
        and all(lines[at + i] == wanted[i] for i in range(1, len(wanted) - 1))
    )
