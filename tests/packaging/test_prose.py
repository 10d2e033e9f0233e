"""tools/docs/prose.py counts running text alone, and the files on its list keep to its limits."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "docs" / "prose.py"
if not SCRIPT.exists():
    pytest.skip("not run from the source tree", allow_module_level=True)
specification = importlib.util.spec_from_file_location("prose", SCRIPT)
prose = importlib.util.module_from_spec(specification)
sys.modules["prose"] = prose  # where dataclasses look their module up
specification.loader.exec_module(prose)

MARKDOWN = """\
# A heading. It isn't counted.

Underlined
==========

One two three. Four five,
six seven `eight in code.` Nine [ten eleven](a/link.md). **Twelve** thirteen!

```c
int code. No sentence.
<!-- no comment -->
```

    code, too

<!-- a comment. Of two sentences. -->
| a | table |
|---|---|
| x. | Y. |

a | table
--|--
without | its edges

- An item.

  Its second paragraph has six words.
- Another item

<!-- generated: part -->
Generated. Text.
<!-- end generated -->
"""


def test_what_is_counted():
    found = [prose.sentences(paragraph) for paragraph in prose.paragraphs(MARKDOWN)]
    assert found == [
        [
            "One two three.",
            f"Four five, six seven {prose.CODE} Nine ten eleven.",
            "Twelve thirteen!",
        ],
        ["An item."],
        ["Its second paragraph has six words."],
        ["Another item"],
    ]
    assert prose.measure(MARKDOWN) == prose.Figures(6, 2.5, 8, 13)


@pytest.mark.parametrize(
    "text, count",
    [
        ("Some types, e.g. Half, are stored, i.e. Nothing is computed in them.", 1),
        ("By S. L. Moshier et al. The rest is ours.", 1),
        ("Version 2.13 is out. So is 3.0.", 2),
        ("It ends in a quote (as here.) Then it goes on.", 2),
        ("See no. 5. There is no. It is so.", 3),
        ("Read `a.cl`. `b.cl` is next.", 2),
        ("Is it? Yes! Really... it is.", 3),
    ],
)
def test_sentences(text, count):
    assert len(prose.sentences(prose.without_inline_markup(text))) == count


def test_words():
    assert prose.words(prose.without_inline_markup("a + `b + c` - d = *e*, f-g")) == 5
    assert prose.measure("") == prose.Figures(0, 0, 0, 0)


@pytest.mark.parametrize("length, status", [(16, 0), (17, 1)])
def test_limits_hold_for_the_files_on_the_list(tmp_path, capsys, length, status):
    checked = tmp_path / "kernels" / "README.md"
    other = tmp_path / "examples" / "notes.md"
    checked.parent.mkdir(), other.parent.mkdir()
    checked.write_text("A" + " word" * (length - 1) + ".\n")
    other.write_text("A" + " word" * 200 + ".\n")
    assert prose.main([], root=tmp_path) == status
    assert ("median 17 > 16" in capsys.readouterr().out) == bool(status)
    assert prose.main([str(other)], root=tmp_path) == 0


def test_the_files_on_the_list_are_within_the_limits(capsys):
    status = prose.main([str(path) for path in prose.files_of(prose.CHECKED, prose.ROOT)])
    assert status == 0, capsys.readouterr().out
