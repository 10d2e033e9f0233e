"""The table's form: what optable.py takes and what it refuses, without torch."""

import pytest

from codegen.errors import TableError
from codegen.optable import load_table


def load(project, text, **options):
    project.table(text)
    return load_table(project.table_dir, **options)


def problems(project, text, **options):
    with pytest.raises(TableError) as error:
        load(project, text, **options)
    return error.value.problems


def test_every_kind_is_read(project):
    entries = load(
        project,
        """
first:
  abs.out: {pointwise: abs, stub: abs_stub, flags: [bits], scalars: 2}
  cumsum: {kernel: cumsum, stub: cumsum_stub}
  round.decimals: {pointwise: {round_decimals_stub: round_decimals, round_stub: round}}
second:
  mm: {impl: ours, since: 2.10, until: 2.13}
  set_: {native: set_anything}
  sort.stable: {stubs: {sort_stub: sort}}
  view: {native: true}
""",
    )
    by_name = {entry.name: entry for entry in entries}
    assert [e.name for e in entries] == sorted(by_name)
    assert by_name["abs.out"].stubs == (("abs_stub", "abs"),)
    assert by_name["abs.out"].flags == ("bits",) and by_name["abs.out"].scalars == 2
    assert by_name["cumsum"].kind == "kernel" and by_name["cumsum"].section == "first"
    assert by_name["round.decimals"].stubs[1] == ("round_stub", "round")
    assert (by_name["mm"].since, by_name["mm"].until) == ((2, 10), (2, 13))
    assert by_name["set_"].native == "set_anything"
    assert by_name["sort.stable"].stubs == (("sort_stub", "sort"),)
    assert by_name["view"].native is None and by_name["view"].where == "test.yaml:10"


def test_files_are_one_table(project):
    project.table("a:\n  mm: {impl: ours}\n", "one.yaml")
    project.table("a:\n  mm: {impl: ours}\n", "two.yaml")
    with pytest.raises(TableError, match=r"two.yaml:2: mm is already at one.yaml:2"):
        load_table(project.table_dir)


@pytest.mark.parametrize(
    "body, message",
    [
        ("  sin: {impl: ours}\n  cos: {impl: ours}", "cos must stand before sin"),
        ("  mm: {impl: ours}\n  mm: {impl: ours}", "mm is already at test.yaml:2"),
        ("  mm: {}", "needs exactly one of impl, kernel, native, pointwise"),
        ("  mm: {impl: ours, native: true}", "needs exactly one of"),
        ("  mm: {impl: theirs}", "impl must be 'ours'"),
        ("  mm: {impl: ours, flags: [bits]}", "impl takes no flags"),
        ("  mm: {impl: ours, sicne: 2.12}", "impl takes no sicne"),
        ("  mm: {impl: ours, since: new}", "since must be a torch version"),
        ("  sin: {pointwise: sin}", "pointwise needs a stub"),
        ("  sin: {pointwise: sin, stub: 3}", "must be names"),
        ("  sin: {pointwise: {a: b}, stub: c}", "stub is for one pointwise"),
        ("  sin: {pointwise: {a: b, a: c}}", "a stub is named twice"),
        ("  sin: {pointwise: sin, stub: sin_stub, flags: bits}", "flags must be a list of names"),
        ("  sin: {pointwise: sin, stub: sin_stub, scalars: many}", "scalars must be a number"),
        ("  sin: {kernel: sin, stub: sin_stub, flags: [bits]}", "kernel takes no flags"),
        ("  view: {native: 'a b'}", "native must be true or the name"),
        ("  view: [native]", "expected a mapping"),
        ("  2mm: {impl: ours}", "not an ATen function name"),
        ("  mm: {impl: ours", "not YAML"),
    ],
)
def test_refused(project, body, message):
    found = problems(project, f"ops:\n{body}\n")
    assert any(message in text for text in found), found


def test_all_problems_at_once_with_file_and_line(project):
    found = problems(project, "ops:\n  sin: {pointwise: sin}\n  cos: {impl: no}\n")
    assert [text.split(": ")[0] for text in found] == ["test.yaml:2", "test.yaml:3", "test.yaml:3"]


def test_an_empty_folder_is_an_error(project):
    with pytest.raises(TableError, match="no .*yaml"):
        load_table(project.table_dir)


def test_versions(project):
    text = """
new:
  mm: {impl: ours, since: 2.13}
old:
  mm: {native: true, until: 2.12}
"""
    assert load(project, text, torch_version=(2, 12))[0].kind == "native"
    assert load(project, text, torch_version=(2, 13))[0].kind == "impl"
    assert len(load(project, text)) == 2  # no version asked for, no overlap
    found = problems(project, text.replace("2.12", "2.13"), torch_version=(2, 13))
    assert "already at" in found[0]
