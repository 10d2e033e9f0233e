"""OpenCL C as it is written: lines with blocks, and the bodies of loops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sympy
from torch._inductor.utils import IndentedBuffer


class Code(IndentedBuffer):
    """An IndentedBuffer with blocks."""

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Braces around what is written inside, behind a head such as that of a loop."""
        self.writeline(head + " {")
        with self.indent():
            yield
        self.writeline("}")


@dataclass(frozen=True)
class Body:
    """Statements with the declarations of the loop indices that they use.

    Attributes:
        code: Their text.
        outer: Loop indices that it uses and doesn't declare.
        memory: Declarations of the local memory that it uses.
    """

    code: Code
    outer: tuple[sympy.Symbol, ...]
    memory: tuple[str, ...] = ()
