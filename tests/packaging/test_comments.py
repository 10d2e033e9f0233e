"""tools/docs/comments.py finds comments without a subject, wherever they stand."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "docs" / "comments.py"
specification = importlib.util.spec_from_file_location("comments", SCRIPT)
tool = importlib.util.module_from_spec(specification)
specification.loader.exec_module(tool)

PYTHON = '''"""What a module has."""
TEXT = r"""
# What a text has is no comment.
"""


def run():
    """Likewise a function."""
    x = 1  # The same behind code
    # Of a block,
    # the end begins anew. Likewise this
    # sentence. What is named may stand inside. The
    # same holds for words. Of course.
    return x, "# What a string has"
'''
CODE = """/* What a block has. */
int a;  // Of an a
/// The same as a.
// It goes on.
const char* b = "// What a string has";
  // Likewise here,
  // of which this is a part. Of C++ each sentence is looked at. The same word may be meant.
"""
HASHES = """# Of a script. It goes on. The same
# again.
run "# What a text has"  # Likewise
"""


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.py", PYTHON, [1, 8, 9, 10, 11, 12, 13]),
        ("a.c", CODE, [1, 2, 3, 6, 7]),
        ("run", HASHES, [1, 1, 3]),
    ],
)
def test_comments_without_a_subject_are_found(tmp_path, name, text, lines):
    path = tmp_path / name
    path.write_text(text)
    found = [int(line.split(":")[1]) for line in tool.complaints(path)]
    assert found == lines
