"""One exception for everything that can be wrong with the op table."""


class TableError(Exception):
    """The op table contradicts itself, this torch or the kernels; carries every problem found."""

    def __init__(self, problems: list[str]):
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


class Problems:
    """Collects problems, so that one run reports them all."""

    def __init__(self):
        self._found: list[str] = []

    def add(self, where: str, text: str) -> None:
        """Notes a problem at `where` (file:line, an entry)."""
        self._found.append(f"{where}: {text}")

    def raise_if_any(self) -> None:
        """Throws TableError if a problem was noted."""
        if self._found:
            raise TableError(self._found)
