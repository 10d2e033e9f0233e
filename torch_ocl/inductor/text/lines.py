"""Lines of OpenCL C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch._inductor.utils import IndentedBuffer


class Lines(IndentedBuffer):
    """An IndentedBuffer with blocks."""

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Braces around what is written inside, behind a head such as that of a loop."""
        self.writeline(head + " {")
        with self.indent():
            yield
        self.writeline("}")
