"""Every Python block of README, the user guide and the lessons runs, one after another."""

import os
import re
from pathlib import Path

import pytest

from tests import fresh

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (
    "README.md",
    "docs/user/*.md",
    "docs/index.md",
    "docs/performance.md",
    "docs/kernels/*.md",
)
#: A block, with the indentation of the list that it may stand in.
BLOCK = re.compile(
    r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


def blocks(text):
    """(line, code) of each."""
    for found in BLOCK.finditer(text):
        indent = len(found["indent"])
        lines = [line[indent:] for line in found["code"].splitlines()]
        yield text.count("\n", 0, found.start()) + 2, "\n".join(lines)


PATHS = {
    path.relative_to(ROOT).as_posix(): path
    for pattern in DOCUMENTS
    for path in sorted(ROOT.glob(pattern))
    if "```python" in path.read_text(encoding="utf-8")
}
if not PATHS:
    pytest.skip("not run from the source tree", allow_module_level=True)


#: The variables that torchrun sets for a single process.
TORCHRUN = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PATHS)
def test_blocks_run(name, tmp_path):
    text = PATHS[name].read_text(encoding="utf-8")
    # An error names the document and its line.
    code = "".join(
        f"exec(compile({chr(10) * (line - 1) + block!r}, {name!r}, 'exec'), globals())\n"
        for line, block in blocks(text)
    )
    done = fresh.run_script(code, environment=os.environ | TORCHRUN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_no_block_is_overlooked():
    """Blocks of another name, such as py, would not be run."""
    for name, path in PATHS.items():
        text = path.read_text(encoding="utf-8")
        languages = re.findall(r"^ *```(\w+)$", text, re.MULTILINE)
        assert set(languages) <= {"python"}, name
        assert len(list(blocks(text))) == languages.count("python")


def test_an_error_names_its_line(tmp_path):
    text = "# Title\n\n- item\n\n  ```python\n  x = 1\n  assert x == 2\n  ```\n"
    ((line, code),) = blocks(text)
    assert (line, code) == (6, "x = 1\nassert x == 2")
