"""tools/docs/links.py finds links that lead nowhere, and leaves alone what is none."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "tools" / "docs"
if not FOLDER.exists():
    pytest.skip("not run from the source tree", allow_module_level=True)
sys.path.insert(0, str(FOLDER))
links = importlib.import_module("links")
sys.path.remove(str(FOLDER))

PAGE = """\
# A page: of `code` and [links](other.md)

[itself](#two-words), [other](other.md#a-page-of-code-and-links), ![image](missing.png)
[gone](gone.md "title"), [folder](sub/), [no heading](other.md#nowhere), [site](https://a.b/c.md)

`[no](link.md)` and [`code`](gone.py)

```
# no heading
[no](link.md)
```

- item

  ```text
  [no](link.md)
  ```

## Two words
## Two words
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "ROOT", tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("page.md", "other.md"):
        (tmp_path / name).write_text(PAGE)
    return tmp_path / "page.md"


def test_links_that_lead_nowhere(page, capsys):
    assert links.problems(page) == [
        "page.md: missing.png: there is no such file",
        "page.md: gone.md: there is no such file",
        "page.md: other.md#nowhere: there is no such heading",
        "page.md: gone.py: there is no such file",
    ]
    assert links.main([str(page)]) == 1
    assert "gone.py" in capsys.readouterr().out
    page.write_text("[fine](other.md#two-words-1)")
    assert links.main([str(page)]) == 0


def test_anchors():
    assert links.anchors(PAGE) == {"a-page-of-code-and-links", "two-words", "two-words-1"}


def test_only_targets_are_replaced():
    text = links.replace_links(PAGE, lambda target: target.replace("gone", "there"))
    assert text == PAGE.replace("(gone", "(there")


def test_the_documents(capsys):
    assert links.main([]) == 0, capsys.readouterr().out
