"""The lessons of docs/kernels run, and their pages show parts that are there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

LESSONS = Path(__file__).resolve().parents[2] / "docs" / "kernels"
if not LESSONS.exists():
    pytest.skip("not run from the source tree", allow_module_level=True)
SCRIPTS = sorted(LESSONS.glob("lesson*.py"))
PAGES = sorted(LESSONS.glob("*.md"))
SMALL = {"lesson3_matmul": ["--size", "128"], "lesson4_reductions": ["--elements", "100003"]}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_lesson_runs(script):
    arguments = SMALL.get(script.stem, [])
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_lessons_and_pages_belong_together():
    assert len(SCRIPTS) == 6
    assert [page.stem for page in PAGES] == ["index", *(script.stem for script in SCRIPTS)]
    index = (LESSONS / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\((lesson\w+)\.md\)", index) == [script.stem for script in SCRIPTS]


INCLUDE = re.compile(r"```\{literalinclude\} (\S+)\n((?::.*\n)*)```")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_shows_what_is_there(page):
    shown = []
    for file, options in INCLUDE.findall(page.read_text(encoding="utf-8")):
        if file.endswith(".txt"):  # a table that `make docs-site` measures
            makefile = (LESSONS.parents[1] / "Makefile").read_text(encoding="utf-8")
            measured = re.search(r"for lesson in (.*); do", makefile)
            assert measured and file.removesuffix(".txt") in measured[1].split()
            continue
        text = (page.parent / file).read_text(encoding="utf-8")
        at = 0
        for option, marker in re.findall(r':(start|end)-\w+: "(.*)"', options):
            at = text.find(marker, at)
            assert at >= 0, f"{file} has no {marker!r} to {option} at"
            if marker.endswith(tuple("abcdefghijklmnopqrstuvwxyz")) and "begin: " in marker:
                shown.append((file, marker))
    names = [name for _, name in shown]
    assert len(set(names)) == len(names)
    if page.stem != "index":
        script = page.with_suffix(".py").read_text(encoding="utf-8")
        assert sorted(re.findall(r"(?:#|//) begin: \w+", script)) == sorted(names)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_error_that_the_fifth_lesson_quotes():
    page = (LESSONS / "lesson5_debugging.md").read_text(encoding="utf-8")
    line = int(re.search(r"lesson5_debugging\.py:(\d+):", page)[1])
    text = (LESSONS / "lesson5_debugging.py").read_text(encoding="utf-8").splitlines()[line - 1]
    assert "facto;" in text
