"""tools/commit_message.py asks commits for a scope and a body."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "commit_message.py"


def run(folder, *arguments, script=SCRIPT):
    done = subprocess.run(
        [sys.executable, script, *arguments], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, done.stdout.count("lacks")


@pytest.mark.parametrize(
    ("message", "lacking"),
    [
        ("gemm: tiles by registers\n\nThey spilled: 3.1 ms from 4.5.\n", 0),
        ("source kernels, graphs.auto: names\n\nOne word.\n# a comment of git's\n", 0),
        ("docs: a line\n", 1),
        ("gemm: tiles\nby registers\n", 1),
        ("gemm: tiles\n\n# a comment of git's\n", 1),
        ("gemm: tiles\n\nSigned-off-by: A <a@b.c>\n", 1),
        ("Tiles by registers\n\nThey spilled.\n", 1),
        ("Merge branch 'main' into other\n", 0),
        ("", 2),
    ],
)
def test_messages(tmp_path, message, lacking):
    """As the hook calls it, with a file."""
    path = tmp_path / "message"
    path.write_text(message)
    assert run(tmp_path, path) == (int(lacking > 0), lacking)


def test_commits_of_a_clone(tmp_path):
    """Those behind the first one count, and none where that one isn't there."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    commit = [*git, "commit", "-q", "--allow-empty", "--no-verify", "-m"]
    subprocess.run([*commit, "first"], check=True)
    first = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    since_first = tmp_path / "since_first.py"
    source, changed = re.subn('START = "[0-9a-f]+"', f'START = "{first.stdout.strip()}"',
                              SCRIPT.read_text(encoding="utf-8"))  # fmt: skip
    assert changed == 1
    since_first.write_text(source, encoding="utf-8")
    subprocess.run([*commit, "gemm: tiles\n\nThey spilled."], check=True)
    assert run(tmp_path, script=since_first) == (0, 0)
    subprocess.run([*commit, "more"], check=True)
    assert run(tmp_path, script=since_first) == (1, 2)
    assert run(tmp_path) == (0, 0)
