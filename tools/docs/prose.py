"""Measures how long the sentences and paragraphs of Markdown files are.

    python tools/docs/prose.py [--long] [file ...]

Prints for each file its sentences, the median and the 90th percentile of their words, and the words
of the longest paragraph; with --long also the sentences that are too long. Without arguments it
reads the files that CHECKED names. Exits with 1 if one of these is past a limit.

Counted is running text alone: no code blocks, tables, headings, comments, or parts of a file that a
script fills in. A code span is one word, and an item of a list is a paragraph.
"""

import argparse
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Files that people write, also around the parts that scripts fill in.
CHECKED = (
    "*.md",
    "docs/*.md",
    "docs/design/*.md",
    "docs/kernels/*.md",
    "docs/measurements/*.md",
    "docs/reference/*.md",
    "docs/user/*.md",
    "codegen/ops/README.md",
    "csrc/engine/*/README.md",
    "docker/README.md",
    "kernels/README.md",
)

MEDIAN_LIMIT = 16
PERCENTILE_LIMIT = 30
PARAGRAPH_LIMIT = 120

#: Stands for a code span: a letter of no language, so that it is in no other word.
CODE = "\ue000"
#: A full stop after these ends no sentence.
ABBREVIATIONS = {"e.g.", "i.e.", "cf.", "vs.", "al.", "approx.", "resp."}
#: Nor after these, if a number follows.
BEFORE_NUMBERS = {"no.", "fig.", "sec.", "eq.", "ch.", "p.", "pp."}
#: The end of a word that may end a sentence, quotes and brackets included.
END = re.compile(r"[.!?…][\"'”’)\]]*$")
#: A word that may begin one.
BEGIN = re.compile(rf"[\"'“‘(\[]*[A-Z0-9{CODE}]")


@dataclass(frozen=True)
class Figures:
    """The measures of a file: numbers of words, but for the first."""

    sentences: int
    median: float
    percentile: int
    paragraph: int

    def faults(self) -> list[str]:
        measures = (
            ("median", self.median, MEDIAN_LIMIT),
            ("90th percentile", self.percentile, PERCENTILE_LIMIT),
            ("longest paragraph", self.paragraph, PARAGRAPH_LIMIT),
        )
        return [f"{name} {value:g} > {most}" for name, value, most in measures if value > most]


def without_code_blocks(text: str) -> str:
    """Fenced blocks become empty lines. Their contents may look like anything else."""
    lines, fence = [], ""
    for line in text.splitlines():
        found = re.match(r"[ \t>]*(?:[-*+] +|\d+[.)] +)?(`{3,}|~{3,})", line)
        if fence:
            if found and found[1].startswith(fence) and line.strip(" \t>") == found[1]:
                fence = ""
            lines.append("")
        elif found:
            fence = found[1]
            lines.append("")
        else:
            lines.append(line)
    return "\n".join(lines)


def without_inline_markup(text: str) -> str:
    """Code spans become CODE, links and emphasis their text, images and tags nothing."""
    text = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", CODE, text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])", "", text)
    text = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"<(https?:[^>\s]*)>", r"\1", text)
    text = re.sub(r"</?[A-Za-z][^>]*>", "", text)
    return re.sub(r"\*\*|__|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)", "", text)


def paragraphs(markdown: str) -> list[str]:
    """The running text: paragraphs and items of lists, without markup."""
    text = without_code_blocks(markdown)
    # Parts that a script fills in stand between two comments, whose second begins with "end".
    text = re.sub(r"<!-- *(?!end\b)[^>]*-->(?:(?!<!--).)*<!-- *end\b.*?-->", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    found: list[str] = []
    current: list[str] = []
    in_list = in_table = False

    def finish() -> None:
        plain = without_inline_markup(" ".join(current))
        if words(plain) > 0:
            found.append(plain)
        current.clear()

    lines = [re.sub(r"^( {0,3}> ?)+", "", line) for line in text.splitlines()]
    for number, line in enumerate(lines):
        after = lines[number + 1] if number + 1 < len(lines) else ""
        stripped = line.strip()
        if not stripped:
            finish()
            in_table = False
            continue
        if "|" in stripped and re.fullmatch(r"[|\s:-]*-[|\s:-]*", after) and "|" in after:
            in_table = True
        if in_table or stripped.startswith("|"):
            finish()
        elif re.match(r" {0,3}#{1,6}( |$)", line) or re.fullmatch(r"([-*_] *){3,}|=+", stripped):
            finish()
            in_list = False
        elif re.fullmatch(r"=+|-{2,}", after.strip()) and not current:
            in_list = False  # a heading that is underlined
        elif re.match(r" {0,3}\[[^\]]+\]: ", line):
            finish()  # the address of a link
        elif item := re.match(r"\s*(?:[-*+]|\d+[.)]) +(.*)", line):
            finish()
            in_list = True
            current.append(item[1])
        elif re.match(r" {4}|\t", line) and not current and not in_list:
            pass  # a code block by its indentation
        else:
            if not current and not line.startswith(" "):
                in_list = False
            current.append(stripped)
    finish()
    return found


def words(text: str) -> int:
    """Operators and dashes are none."""
    return sum(any(c.isalnum() or c == CODE for c in word) for word in text.split())


def ends_sentence(word: str, after: str) -> bool:
    if not END.search(word) or not BEGIN.match(after):
        return False
    bare = word.lower().strip("\"'“”‘’()[]")
    if bare in ABBREVIATIONS or (bare in BEFORE_NUMBERS and after[0].isdigit()):
        return False
    return re.fullmatch(r"\(?[A-Z]\.", word) is None  # an initial


def sentences(paragraph: str) -> list[str]:
    found: list[list[str]] = [[]]
    all_words = paragraph.split()
    for word, after in zip(all_words, [*all_words[1:], ""], strict=True):
        found[-1].append(word)
        if after and ends_sentence(word, after):
            found.append([])
    return [text for text in map(" ".join, found) if words(text) > 0]


def measure(markdown: str) -> Figures:
    texts = paragraphs(markdown)
    lengths = sorted(words(sentence) for text in texts for sentence in sentences(text))
    if not lengths:
        return Figures(0, 0, 0, 0)
    rank = -(-9 * len(lengths) // 10)  # the nearest, upwards
    longest = max(map(words, texts))
    return Figures(len(lengths), statistics.median(lengths), lengths[rank - 1], longest)


def files_of(patterns: Sequence[str], root: Path) -> list[Path]:
    return list(dict.fromkeys(path for p in patterns for path in sorted(root.glob(p))))


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="file")
    parser.add_argument("--long", action="store_true", help="print the sentences that are too long")
    options = parser.parse_args(arguments)
    checked = {path.resolve() for path in files_of(CHECKED, root)}
    failed = False
    print(f"{'sentences':>9} {'median':>6} {'90th':>4} {'paragraph':>9}  file")
    for path in options.files or files_of(CHECKED, root):
        path = path.resolve()
        text = path.read_text(encoding="utf-8")
        figures = measure(text)
        faults = figures.faults() if path in checked else []
        failed = failed or bool(faults)
        name = path.relative_to(root) if path.is_relative_to(root) else path
        print(
            f"{figures.sentences:9} {figures.median:6g} {figures.percentile:4} "
            f"{figures.paragraph:9}  {name}" + (f": {', '.join(faults)}" if faults else "")
        )
        if options.long:
            for sentence in (s for paragraph in paragraphs(text) for s in sentences(paragraph)):
                if words(sentence) > PERCENTILE_LIMIT:
                    print(f"    {words(sentence)}: {sentence.replace(CODE, '`...`')}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
