"""The parameters of a kernel, read from its source.

Drivers tell them too (clGetKernelArgInfo), but not of programs that come from a binary, as most do.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

_SPACES = ("global", "constant", "local", "private")
_QUALIFIERS = {"const", "volatile", "restrict", "__restrict", "__restrict__", "register"}
_SIGNS = {"unsigned", "signed"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_OPAQUE = re.compile(r"image\w*_t|sampler_t|pipe|queue_t|event_t|reserve_id_t|clk_event_t")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter: `type` is what a pointer points to, in one word ("uint", "float4").

    `span` is where its text lies in the source, None if it was not read from there. Where macros
    leave the type open, type and space are "": the compiler knows them.
    """

    name: str
    space: str
    type: str
    is_pointer: bool
    span: tuple[int, int] | None = None

    @property
    def is_buffer(self) -> bool:
        return self.is_pointer and self.space in ("global", "constant")

    @property
    def is_local(self) -> bool:
        return self.is_pointer and self.space == "local"

    @property
    def is_opaque(self) -> bool:
        """An image, a sampler or the like."""
        return _OPAQUE.fullmatch(self.type) is not None

    def __str__(self) -> str:
        space = "" if self.space == "private" else f"{self.space} "
        return f"{space}{self.type}{'*' if self.is_pointer else ''} {self.name}"


@dataclasses.dataclass(frozen=True)
class Signature:
    """A kernel's parameters, and where in the source its body begins."""

    parameters: tuple[Parameter, ...]
    body: int


class Unreadable(Exception):
    """The source leaves the parameters to the preprocessor."""


#: No parts of a signature: comments, strings, attributes.
_BLANKED = re.compile(
    r'//(?:\\\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    r"|__attribute__\s*(?!\(\(\s*(?:__)?ext_vector_type)\(\((?:[^()]|\([^()]*\))*\)\)",
    re.S,
)


def _bare(source: str) -> str:
    """The source with spaces for comments, strings and attributes, of the same length and lines."""
    return _BLANKED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)


_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*(\w*)(\(?)((?:\\\n|[^\n])*)", re.M)


def _definitions(code: str, options: Sequence[str]) -> tuple[dict[str, list[str]], bool]:
    """The text that each macro without arguments stands for: every definition there is. One that a
    condition decides on, or that is taken back, counts as several. And whether a condition decides
    on what follows the code."""
    found: dict[str, list[str]] = {}
    depth, guard, guards = 0, "", []
    for directive, name, is_function, text in _DIRECTIVE.findall(code):
        if directive.startswith("if"):
            guard = name if directive == "ifndef" else ""
            guards.append(False)
            depth += 1
            continue
        if directive == "define":
            # A file that keeps itself from being read twice is no condition.
            if name == guard and not text.strip() and guards:
                guards[-1] = True
                depth -= 1
            found.setdefault(name, []).append("(" if is_function else text.strip())
            if depth:
                found[name].append("by a condition")
        elif directive == "undef":
            found.setdefault(name, []).append("taken back")
        elif directive == "endif" and guards:
            depth -= not guards.pop()
        guard = ""
    for option in options:
        if define := re.fullmatch(r"-D\s*(\w+)(?:=(\S*))?", option):
            found.setdefault(define[1], []).append("1" if define[2] is None else define[2])
    return found, depth > 0


#: A vector as Clang writes one.
_EXTENDED = re.compile(
    r"\btypedef\s+(\w+)\s+(\w+)\s+__attribute__\s*\(\(\s*(?:__)?ext_vector_type(?:__)?\s*"
    r"\(\s*(\d+)\s*\)\s*\)\)\s*;"
)


#: The type of a type, or of a value that is cast to one.
_TYPE_OF = re.compile(
    r"\b(?:__typeof__|__typeof|typeof)\s*\(\s*"
    r"(?:\(\s*([\w\s]+?)\s*\)\s*\w+|([\w\s]+?))\s*\)"
)


def _declarations(code: str) -> list[tuple[str, str, bool]]:
    """(text, name, whether it is a pointer) of each name that a typedef declares. Arrays count as
    what they are made of: a pointer to both is the same address."""
    code = re.sub(r"\benum\b[\s\w]*\{[^}]*\}", " int ", code)  # OpenCL C 1.2, 6.1: enums are ints
    code = re.sub(_EXTENDED, r"typedef \1\3 \2;", code)
    code = re.sub(_TYPE_OF, lambda found: found[1] or found[2], code)
    found = []
    for declared in re.findall(r"\btypedef\s+([\w\s*,\[\]]+);", code):
        first, *others = declared.split(",")
        if (parts := re.fullmatch(r"([\w\s]+?)([\s*]+)(\w+)\s*(?:\[[^*]*)?", first)) is None:
            continue
        text = parts[1]
        names = [(parts[2], parts[3])]
        for other in others:
            if more := re.fullmatch(r"([\s*]*)(\w+)\s*(?:\[[^*]*)?", other):
                names.append((more[1], more[2]))
        found += [(text, name, "*" in stars) for stars, name in names]
    return found


def _typedefs(code: str) -> dict[str, list[str]]:
    """The type that each typedef of no pointer stands for: every definition there is, each once."""
    found: dict[str, list[str]] = {}
    for text, name, is_pointer in _declarations(code):
        if not is_pointer and text not in found.setdefault(name, []):
            found[name].append(text)
    return found


def _pointer_types(code: str) -> dict[str, list[str]]:
    """Typedefs of pointers: what each name stands for, as of a macro."""
    found: dict[str, list[str]] = {}
    for text, name, is_pointer in _declarations(code):
        if is_pointer:
            found.setdefault(name, []).append(text + "*")
    return found


def candidates(type_: str, source: str) -> list[str]:
    """The types that a typedef may stand for, where branches of #if give it several."""
    typedefs = _typedefs(_bare(source))
    reached, seen = [type_], {type_}
    for name in reached:
        for text in typedefs.get(name, ()):
            plain = plain_type(text.split())
            if plain not in seen:
                seen.add(plain)
                reached.append(plain)
    return [name for name in reached if name not in typedefs]


def _expand(text: str, macros: Mapping[str, Sequence[str]]) -> str:
    """The text with macros' definitions; Unreadable where there is more than one."""
    for _ in range(16):

        def definition(found: re.Match[str]) -> str:
            known = macros.get(found[0])
            if known is None:
                return found[0]
            if len(known) != 1 or known[0] == "(":
                raise Unreadable
            return known[0]

        expanded = _IDENTIFIER.sub(definition, text)
        if expanded == text:
            break
        text = expanded
    return text


def plain_type(words: Sequence[str], typedefs: Mapping[str, Sequence[str]] | None = None) -> str:
    """A type's words as one: "unsigned int" is uint, a typedef what it stands for. One that has
    several definitions stays as it is: see candidates()."""
    words = [word for word in words if word not in _QUALIFIERS]
    for _ in range(16):
        texts = (typedefs or {}).get(words[0], ()) if len(words) == 1 else ()
        if len(texts) != 1:
            break
        words = [w for w in texts[0].split() if w not in _QUALIFIERS]
    if words[:1] == ["enum"]:
        return "int"
    sign = _SIGNS & set(words)
    if sign or (len(words) > 1 and words[-1] == "int"):
        rest = [word for word in words if word not in _SIGNS and word != "int"] or ["int"]
        words = [("u" if "unsigned" in sign else "") + rest[0], *rest[1:]]
    return " ".join(words)


def _parameter(
    text: str,
    start: int,
    macros: Mapping[str, Sequence[str]],
    typedefs: Mapping[str, Sequence[str]],
) -> Parameter:
    as_array = re.search(r"\[[^\[\]]*\]\s*$", text)  # C11, 6.7.6.3: `x[]` is a pointer
    text = text[: as_array.start()] if as_array else text
    span = (start, start + len(text) + (len(as_array[0]) if as_array else 0))
    try:
        plain = _expand(text, macros)
    except Unreadable:
        last = re.search(r"(\w+)\s*\Z", text)
        if last is None or last[1] in macros or not re.fullmatch(r"[\w\s*]+", text):
            raise
        return Parameter(last[1], "", "", as_array is not None or "*" in text, span)
    if not re.fullmatch(r"[\w\s*]+", plain):
        raise Unreadable
    words = re.findall(r"\w+|\*", plain)
    if as_array:
        words.insert(-1, "*")
    if words.count("*") > 1 or not words or not _IDENTIFIER.fullmatch(words[-1]):
        raise Unreadable
    name = words.pop()
    is_pointer = "*" in words
    spaces = [s for word in words for s in _SPACES if word in (s, "__" + s)]
    names = {prefix + s for s in _SPACES for prefix in ("", "__")}
    access = {"read_only", "write_only", "read_write"}
    access |= {"__" + a for a in access}
    kept = [word for word in words if word not in names | access | {"*"}]
    space = spaces[0] if spaces else "private"
    if not kept or not re.search(rf"\b{name}\s*$", text):
        raise Unreadable  # without a name, or with one that a macro writes
    if as_array and space == "private":
        raise Unreadable  # the driver's error says what is wrong
    type_ = plain_type(kept, typedefs)
    # A typedef may have the space: `typedef global float gf;`.
    for word in type_.split():
        if word in names and is_pointer:
            space = word.removeprefix("__")
            type_ = plain_type([other for other in type_.split() if other != word], typedefs)
    return Parameter(name, space, type_, is_pointer, span)


def _split(text: str, start: int) -> list[tuple[str, int]]:
    """The parts between commas outside parentheses, each with its place."""
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(text + ","):
        if character == "," and depth == 0:
            parts.append((text[begin:at], start + begin))
            begin = at + 1
        depth += (character == "(") - (character == ")")
    return parts


def read_signature(source: str, name: str, options: Sequence[str] = ()) -> Signature:
    """The signature of a kernel. Raises Unreadable if the text alone does not tell it: made by a
    macro, declared twice, with a type that has two definitions."""
    code = _bare(source)
    places = [m for m in re.finditer(rf"\b{re.escape(name)}\s*\(", code)]
    if len(places) != 1:
        raise Unreadable
    before = code[: places[0].start()]
    if re.search(r"(?:^|\n)[ \t]*#(?:\\\n|[^\n])*\Z", before):
        raise Unreadable  # within a macro
    head = before[max(before.rfind(c) for c in ";}") + 1 :]
    macros, conditional = _definitions(before, options)
    if conditional:
        raise Unreadable
    head = _expand(head, {name: texts for name, texts in macros.items() if len(texts) == 1})
    if not re.search(r"\b(?:__)?kernel\b", head) or not re.search(r"\bvoid\b", head):
        raise Unreadable
    begin = end = places[0].end()
    depth = 1
    while depth:
        if end >= len(code) or code[end] in "{};#":
            raise Unreadable
        depth += (code[end] == "(") - (code[end] == ")")
        end += 1
    body = re.match(r"[\s\\]*\{", code[end:])
    if body is None:
        raise Unreadable
    text = code[begin : end - 1].replace("\\\n", " \n")
    typedefs = _typedefs(code)
    pointers = _pointer_types(code)
    for name in macros.keys() & (typedefs.keys() | pointers.keys()):
        macros[name].append("a type, too")
    macros = pointers | macros
    parts = [] if text.strip() in ("", "void") else _split(text, begin)
    return Signature(
        tuple(_parameter(part, at, macros, typedefs) for part, at in parts), end + body.end()
    )


def told_parameter(space: str, type_name: str, name: str, source: str) -> Parameter:
    """A parameter as clGetKernelArgInfo tells it."""
    # A pointer to an array is the address of its first element.
    array = r"(\(\s*\*\s*\))?\s*\[\w*\]"
    type_name = re.sub(array, lambda found: "*" if found[1] else "", type_name)
    spaces = {prefix + word for word in _SPACES for prefix in ("", "__")}
    words = [word for word in re.findall(r"[A-Za-z_]\w*", type_name) if word not in spaces]
    typedefs = _typedefs(_bare(source))
    return Parameter(name, space, plain_type(words, typedefs), "*" in type_name)


def may_have_kernels(source: str, options: str) -> bool:
    """Whether a source, its options, or what it leaves to the driver to include, has the word
    `kernel`."""
    return re.search(r"kernel|#[ \t]*include\b", _bare(source)) is not None or "kernel" in options


def may_have_local_variables(source: str) -> bool:
    """Whether a source, or what it leaves to the driver to include, has the word `local`."""
    code = _bare(source)
    return re.search(r"\b(?:__)?local\b|#[ \t]*include\b", code) is not None


def with_wrapper(source: str, parameters: Sequence[Parameter], name: str) -> str:
    """The source with a kernel more, `name`_ocl_offsets, that takes what with_offsets() adds and
    calls the kernel: for kernels whose text can't be changed."""
    taken, given, more = [], [], []
    for number, p in enumerate(parameters):
        own = f"a{number}"
        star = "*" if p.is_pointer else ""
        space = "" if p.space == "private" else f"{p.space} "
        taken.append(f"{space}{p.type}{star} {own}")
        if p.is_buffer:
            more.append(f"uint {own}_offset")
            own = f"({space}{p.type}*)(({space}char*){own} + {own}_offset)"
        given.append(own)
    return (
        f"{source}\nkernel void {name}_ocl_offsets({', '.join(taken + more)}) "
        f"{{ {name}({', '.join(given)}); }}\n"
    )


def with_offsets(source: str, parameters: Sequence[Parameter], body: int) -> str:
    """The source of the same kernel with a `uint` more at the end for each buffer, in order: the
    bytes from the buffer's beginning to the first element. Lines stay where they are."""
    code = _bare(source).replace("\\\n", " \n")
    edits, more, moves = [], "", ""
    for p in parameters:
        if not p.is_buffer:
            continue
        start, end = p.span
        found = re.search(rf"\b{p.name}\s*(\[[^\[\]]*\])?\s*$", code[start:end])
        place, is_array = start + found.start(), found[1] is not None
        type_ = " ".join(code[start:place].split())
        type_ += "*" if is_array else ""
        base, offset = f"{p.name}_ocl_base", f"{p.name}_ocl_offset"
        edits.append((place, place + len(p.name), base))
        more += f", uint {offset}"
        moves += f" {type_} {p.name} = ({type_})(({p.space} char*){base} + {offset});"
    close = parameters[-1].span[1]
    edits += [(close, close, more), (body, body, moves)]
    for start, end, text in reversed(edits):
        source = source[:start] + text + source[end:]
    return source
