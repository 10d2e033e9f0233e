"""A bar for commands that take minutes."""

import sys

_WIDTH = 30


def show(part: float, text: str) -> None:
    """A bar on a terminal, and nothing elsewhere. At the end it goes."""
    if not sys.stderr.isatty():
        return
    if part >= 1:
        sys.stderr.write("\r\x1b[K")
    else:
        full = int(part * _WIDTH)
        bar = "#" * full + "." * (_WIDTH - full)
        sys.stderr.write(f"\r[{bar}] {100 * part:3.0f}%  {text}\x1b[K")
    sys.stderr.flush()
