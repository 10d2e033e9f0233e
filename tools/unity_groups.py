"""Which source files can be compiled as one: prints "file;group" lines for CMake's unity builds.

    python tools/unity_groups.py FILE...

Half of a file's time is what ATen's headers cost, so that eight files as one take little longer
than two. Files that are compiled together share their anonymous namespaces and macros. So a group
has no two files of which one declares a name there that the other one mentions, and both are in
namespaces where it would be seen. Using-declarations and other names of namespaces may be
repeated. Colouring that graph is greedy, hardest file first (Welsh and
Powell, 1967). Files without a group are compiled alone.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

#: Most op files define this first.
_ASSERTION = "TORCH_ASSERT_ONLY_METHOD_OPERATORS"
MOST = 8  # files of a group: larger ones need too much memory, and leave cores idle at the end
_ANONYMOUS = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.S | re.M)
_NO_NAMES = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^#\s*include[^\n]*', re.S | re.M)
#: Using-declarations, and other names of namespaces: they may be repeated.
_ALIAS = re.compile(r"^using\s+([\w:]+::(\w+))\s*;|^namespace\s+(\w+)\s*=\s*([\w:]+)\s*;", re.M)
#: Declarations outside of anonymous namespaces that are for the file all the same.
_OUTSIDE = r"static\b|using\b|namespace\s+\w+\s*="
_KEYWORDS = frozenset(
    "auto bool char class const constexpr double enum float inline int operator static struct "
    "template typename union using void at c10 ocl std int64_t "
    # Their functions have a number of their own.
    "TORCH_LIBRARY_FRAGMENT TORCH_LIBRARY_IMPL".split()
)


@dataclass(frozen=True)
class Source:
    """The names that a file declares for itself, the macros it defines, and all names in it."""

    own: frozenset[str]
    aliases: dict[str, str]  # what using-declarations and names of namespaces stand for
    macros: frozenset[str]
    mentioned: frozenset[str]
    unqualified: frozenset[str]  # mentioned without a namespace or an object before them
    namespaces: frozenset[str]
    asserts: bool  # defines _ASSERTION, which forbids headers to what follows

    def clashes(self, other: "Source") -> bool:
        if self.asserts != other.asserts:
            return True
        if self.macros & other.mentioned or other.macros & self.mentioned:
            return True
        if not (self._hides(other) or other._hides(self)):
            return False
        return any(
            f"{a}::".startswith(f"{b}::") or f"{b}::".startswith(f"{a}::")
            for a in self.namespaces
            for b in other.namespaces
        )

    def _hides(self, other: "Source") -> bool:
        """Whether it declares a name that the other one means something else by."""
        if self.own & other.mentioned:
            return True
        return any(
            other.aliases.get(name) != meant
            and (name in other.aliases or name in other.unqualified)
            for name, meant in self.aliases.items()
        )


def _declared(lines: list[str]) -> set[str]:
    """The names that declarations at the beginning of a line are for."""
    names: set[str] = set()
    for line in lines:
        if line[:1] in " \t#}" or not line.strip() or _ALIAS.match(line):
            continue
        names.update(re.findall(r"\b(?:struct|class|enum|union)\s+(?:class\s+)?(\w+)", line))
        names.update(re.findall(r"\busing\s+(?:[\w:]+::)?(\w+)\s*[;=]", line))
        names.update(re.findall(r"\bnamespace\s+(\w+)\s*=", line))
        head = re.split(r"[({=;]", line)[0]
        names.update(re.findall(r"(?<![\w:])(\w+)\s*(?:\[[^\]]*\])?\s*$", head))
        if re.match(r"constexpr|const|static|inline", line):
            names.update(re.findall(r",\s*(\w+)\s*=", line))
    return names - _KEYWORDS


def _aliases(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for meant, name, space, space_meant in _ALIAS.findall(text):
        found[name or space] = meant or space_meant
    return found


def read(text: str) -> Source:
    own: set[str] = set()
    for region in _ANONYMOUS.findall(text):
        own |= _declared(_NO_NAMES.sub(" ", region).split("\n"))
    rest = _NO_NAMES.sub(" ", _ANONYMOUS.sub("", text)).split("\n")
    own |= _declared([line for line in rest if re.match(_OUTSIDE, line)])
    bare = _NO_NAMES.sub(" ", text)
    return Source(
        own=frozenset(own),
        aliases=_aliases(bare),
        macros=frozenset(re.findall(r"^#\s*define\s+(\w+)", text, re.M)) - {_ASSERTION},
        mentioned=frozenset(re.findall(r"\b[A-Za-z_]\w*\b", bare)) - _KEYWORDS - {_ASSERTION},
        unqualified=frozenset(re.findall(r"(?<![\w:.>])[A-Za-z_]\w*\b", bare)),
        namespaces=frozenset(re.findall(r"^namespace\s+([\w:]+)\s*\{", bare, re.M)),
        asserts=_ASSERTION in bare,
    )


def groups(sources: dict[str, Source]) -> list[list[str]]:
    """Files that can be compiled together, at most MOST at a time."""
    clashes = {
        name: {o for o in sources if o != name and sources[name].clashes(sources[o])}
        for name in sources
    }
    found: list[list[str]] = []
    for name in sorted(sources, key=lambda name: (-len(clashes[name]), name)):
        for group in found:
            if len(group) < MOST and not clashes[name] & set(group):
                group.append(name)
                break
        else:
            found.append([name])
    return found


def main(files: list[str]) -> None:
    sources = {file: read(Path(file).read_text(encoding="utf-8")) for file in files}
    for number, group in enumerate(groups(sources)):
        if len(group) > 1:
            for name in sorted(group):
                print(f"{name};{number}")


if __name__ == "__main__":
    main(sys.argv[1:])
