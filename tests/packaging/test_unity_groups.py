"""Which sources are compiled as one file: those that share no name which only one of them means."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("unity_groups", ROOT / "tools" / "unity_groups.py")
unity_groups = importlib.util.module_from_spec(spec)
spec.loader.exec_module(unity_groups)

FILE = """// run() of a comment
#include "run.h"
namespace ocl::{engine} {{
namespace {{
{declared}
}}  // namespace
void {engine}_entry() {{ {used}; }}
}}  // namespace ocl::{engine}
"""


def source(engine="gemm", declared="", used="", head=""):
    return unity_groups.read(head + FILE.format(engine=engine, declared=declared, used=used))


@pytest.mark.parametrize(
    ("name", "declaration"),
    [
        ("run", "void run(Plan& plan) {"),
        ("kRows", "constexpr int kColumns = 1, kRows = 2;"),
        ("Plan", "struct Plan {"),
        ("engine", "const Engine engine{"),
        ("Operand", "using Operand = spatial::Plan;"),
        ("table", "const int table[4] = {"),
    ],
)
def test_a_name_of_one_file(name, declaration):
    declares, uses = source(declared=declaration), source(used=f"x = {name}")
    assert declares.clashes(uses) and uses.clashes(declares)
    assert declares.clashes(source(declared=declaration))
    assert not declares.clashes(source(engine="conv", used=f"x = {name}"))
    assert not declares.clashes(source(used="x = 1"))


def test_using_declarations():
    """May be repeated, but not mean something else."""
    declares = source(declared="using at::Tensor;", used="Tensor x")
    assert not declares.clashes(source(declared="using at::Tensor;", used="Tensor y"))
    assert not declares.clashes(source(used="at::Tensor y"))
    for other in (
        source(declared="using mine::Tensor;"),
        source(declared="struct Tensor {"),
        source(used="Tensor y"),
    ):
        assert declares.clashes(other) and other.clashes(declares)
    assert not declares.clashes(source(engine="conv", used="Tensor y"))
    named = source(declared="namespace shapes = at::native;")
    assert not named.clashes(source(declared="namespace shapes = at::native;"))
    assert named.clashes(source(declared="namespace shapes = mine;"))


def test_macros_and_what_forbids_headers():
    macro = source(engine="conv", head="#define LIMIT 3\n")
    assert macro.clashes(source(used="LIMIT")) and not macro.clashes(source())
    asserting = source(head="#define TORCH_ASSERT_ONLY_METHOD_OPERATORS\n")
    assert asserting.clashes(source()) and not asserting.clashes(asserting)


def test_groups_have_no_clashes():
    sources = {
        str(path): unity_groups.read(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "csrc" / "engine").rglob("*.cpp"))
    }
    groups = unity_groups.groups(sources)
    assert sorted(name for group in groups for name in group) == sorted(sources)
    assert max(map(len, groups)) <= unity_groups.MOST and len(groups) < len(sources) / 4
    for group in groups:
        for name in group:
            assert not any(sources[name].clashes(sources[o]) for o in group if o != name)
