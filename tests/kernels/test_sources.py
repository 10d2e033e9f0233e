"""The kernel sources against each other and against the op table: no device needed."""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
SOURCES = sorted(p for p in KERNELS.rglob("*") if p.suffix in {".cl", ".clh"})
FUNCTOR_FILES = sorted((KERNELS / "pointwise" / "ops").glob("*.clh"))


def name(path):
    return str(path.relative_to(KERNELS))


def table_functors():
    """Functor -> its line in the op table."""
    functors = {}
    for line in (ROOT / "codegen" / "ops" / "pointwise.yaml").read_text().splitlines():
        found = re.search(r"pointwise: (\{[^}]*\}|\w+)", line)
        if not found:
            continue
        value = found[1]
        names = re.findall(r": *(\w+)", value) if value.startswith("{") else [value]
        functors.update(dict.fromkeys(names, line.strip()))
    return functors


def defined_functors(files=FUNCTOR_FILES):
    text = "".join(path.read_text() for path in files)
    return re.findall(r"^#define (c?op2?_\w+)", text, re.MULTILINE)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_includes_exist(path):
    for include in re.findall(r'^\s*#include\s+"(.*)"', path.read_text(), re.MULTILINE):
        assert (KERNELS / include).is_file(), f"{name(path)} includes {include}"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_balanced_conditionals(path):
    """The expander inlines a file once, wherever its first include stands: a conditional left open
    would swallow the includer."""
    depth = 0
    for line in path.read_text().splitlines():
        if re.match(r"\s*#\s*if", line):
            depth += 1
        elif re.match(r"\s*#\s*endif", line):
            depth -= 1
        assert depth >= 0
    assert depth == 0


def included(path):
    """`path` and all that it includes."""
    found = [path]
    for file in found:
        names = re.findall(r'^\s*#\s*include\s+"(.*)"', file.read_text(), re.MULTILINE)
        found += [KERNELS / name for name in names if KERNELS / name not in found]
    return found


def macros(path, directive):
    return set(re.findall(rf"^\s*#\s*{directive}\s+(\w+)", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", [p for p in SOURCES if p.suffix == ".cl"], ids=name)
def test_functions_leave_options_alone(path):
    """A function's macro with the name of a program's option would replace it."""
    files = included(path)
    functions = [file for file in files if file.parent.name == "math"]
    others = [file for file in files if file not in functions]
    options = set().union(*(macros(file, "ifndef") for file in others))
    for file in functions:
        assert not (macros(file, "define") - macros(file, "ifndef")) & options


@pytest.mark.parametrize("path", sorted(KERNELS.rglob("*arguments.clh")), ids=name)
def test_arguments_need_no_float64(path):
    """A field of type double does not compile on devices without it."""
    code = re.sub(r"//.*", "", path.read_text())
    assert not re.search(r"\bdouble\d*\b", code)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_starts_with_a_comment(path):
    assert path.read_text().startswith("// ")


def without_macros(text):
    """The lines, with those of macros as they are where a macro stands."""
    lines, body = [], None
    for line in text.splitlines():
        if body is None and not (re.match(r"\s*#\s*define\b", line) and line.endswith("\\")):
            lines.append(line)
            continue
        body = [] if body is None else body
        body.append(line.rstrip("\\ "))
        if not line.endswith("\\"):
            lines += [body[0], *textwrap.dedent("\n".join(body[1:])).split("\n")]
            body = None
    return lines


def functions(text):
    """The name of each function and its number of lines, from its attributes to its last brace.
    Those that macros make are counted, too."""
    found, first = [], None
    for number, line in enumerate(without_macros(text)):
        if first is None and re.match(r"(kernel|static|inline)\b", line):
            first, words = number, ""
        if first is None:
            continue
        words += line.split("//")[0] + " "
        if line == "}" or re.match(r"\S.*[;}]$", line):
            name = re.search(r"([\w#]+)\(", re.sub(r"__attribute__\(\(.*?\)\)\)?", "", words))
            if name and "{" in words:
                found.append((name[1], number - first + 1))
            first = None
    return found


def test_lengths_of_functions_are_counted():
    text = """
static inline int one(int x) { return x; }
static const int number = 1;
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
two(global int* x) {
  if (x) {
  }
}
#define DEFINE_BOTH(S, n) \\
  /* Both. */             \\
  static inline S##n three_##S##n(S##n x) { \\
    return x;             \\
  }                       \\
  static inline S##n four_##S##n(S##n x) { return x; }
kernel void five(void) {
}
"""
    counted = [("one", 1), ("two", 5), ("three_##S##n", 3), ("four_##S##n", 1), ("five", 2)]
    assert functions(text) == counted


def test_functions_of_macros_are_found():
    """A macro of 126 lines makes eight functions."""
    text = (KERNELS / "math" / "float_bessel.clh").read_text()
    assert len(functions(text)) == 8


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_functions_are_below_100_lines(path):
    assert not [(f, lines) for f, lines in functions(path.read_text()) if lines >= 100]


def test_every_functor_of_the_op_table_is_defined():
    defined = {re.sub(r"^c?op2?_", "", functor) for functor in defined_functors()}
    missing = {f: line for f, line in table_functors().items() if f not in defined}
    assert not missing


def test_no_functor_is_defined_twice():
    functors = defined_functors([path for path in FUNCTOR_FILES if path.stem != "special_float"])
    assert sorted(set(functors)) == sorted(functors)


def test_functors_of_floats_stand_for_special_ones():
    """A program includes one of both files."""
    folder = KERNELS / "pointwise" / "ops"
    floats = defined_functors([folder / "special_float.clh"])
    assert len(set(floats)) == len(floats)
    assert set(floats) <= set(defined_functors([folder / "special.clh"]))


def test_floors_include_those_of_the_table():
    """csrc/README.md says which."""
    allowed = {
        row[1]: {row[1], *re.findall(r"`(\w+)`", row[2])}
        for row in re.finditer(
            r"^\| \[(\w+)/\].*\| ([^|]*) \|$", (ROOT / "csrc/README.md").read_text(), re.MULTILINE
        )
    }
    assert set(allowed) == {path.name for path in (ROOT / "csrc").iterdir() if path.is_dir()}
    for path in sorted((ROOT / "csrc").glob("*/**/*.[ch]*")):
        floor = path.relative_to(ROOT / "csrc").parts[0]
        for line in re.findall(r'^#include "(\w+)/.*\.h"', path.read_text(), re.MULTILINE):
            if (ROOT / "csrc" / line).is_dir():
                assert line in allowed[floor], f"{path} includes {line}"


def test_lists_of_kernels_beside_ops_are_named():
    """csrc/README.md names those that no engine's folder has."""
    found = set()
    for path in (ROOT / "csrc" / "ops").glob("**/*.cpp"):
        found |= set(re.findall(r'^(?:const )?Engine \w+\{"(\w+)"', path.read_text(), re.MULTILINE))
    text = (ROOT / "csrc/README.md").read_text()
    listed = re.search(r"names as engines have: ([^.]*)\.", text)[1]
    assert re.findall(r"`(\w+)`", listed) == sorted(found)


def test_every_source_of_floor_1_has_a_header():
    sources = (ROOT / "csrc" / "opencl").glob("*.cpp")
    assert not [path.name for path in sources if not path.with_suffix(".h").exists()]


def test_every_engine_has_a_folder():
    """Headers that several engines share lie on the ground floor."""
    shared = {
        "ceil_div",
        "device_constants",
        "device_rows",
        "device_table",
        "device_tiles",
        "dispatch",
        "dtype",
        "epilogue",
        "geometry",
        "kernel_types",
        "lanes",
        "modified_kernels",
        "occupancy",
        "quarantine",
    }
    shared |= {"row_major", "row_share"}
    files = (ROOT / "csrc" / "engine").glob("*.*")
    assert {path.stem for path in files} <= shared
