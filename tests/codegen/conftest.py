"""A table and functors of a test's own, and the generator run over them."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from codegen import generate  # noqa: E402


class Project:
    """codegen's inputs and outputs in a temporary folder."""

    def __init__(self, root: pathlib.Path):
        self.table_dir = root / "ops"
        self.functor_dir = root / "functors"
        self.out = root / "gen"
        self.table_dir.mkdir()
        self.functor_dir.mkdir()

    def table(self, text: str, file: str = "test.yaml") -> None:
        (self.table_dir / file).write_text(text)

    def functors(self, text: str, file: str = "test.clh") -> None:
        (self.functor_dir / file).write_text(text)

    def generate(self, *options: str) -> int:
        paths = ["--out", str(self.out), "--table", str(self.table_dir)]
        return generate.main([*paths, "--functors", str(self.functor_dir), *options])

    def text(self, name: str) -> str:
        return (self.out / name).read_text()

    def all_text(self, pattern: str) -> str:
        return "".join(path.read_text() for path in sorted(self.out.glob(pattern)))


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path)


@pytest.fixture(autouse=True)
def _pending_device_errors_belong_to_their_test():
    """Overrides tests/conftest.py's: generating needs no device and no built torch_ocl."""
