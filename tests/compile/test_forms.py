"""torch_ocl/inductor from the loop nest to the text: forms, layouts, and the way between files."""

import ast
import collections
import contextlib
import dataclasses
import pathlib
import sys

import pytest
import torch

from tests.as_gpu import run_as_gpu, takes_gpu_kernels
from torch_ocl.inductor import forms, kernel
from torch_ocl.inductor.forms import columns, rows, tiles

FOLDER = pathlib.Path(kernel.__file__).parent
# The words of all files: they know dtypes, values and devices, and no kernel.
VOCABULARY = {"values.py", "types.py", "device.py"}
WRITING = {"kernel.py", "plan", "forms", "text"}


def place(frame):
    """A frame's file, where it is one that makes texts."""
    path = pathlib.Path(frame.f_code.co_filename) if frame else None
    if path is None or not path.is_relative_to(FOLDER):
        return None
    name = path.relative_to(FOLDER).as_posix()
    return name if name.split("/")[0] in WRITING and name not in VOCABULARY else None


@contextlib.contextmanager
def returns():
    """Counts how often control returns from one of these files to another."""
    found = collections.Counter()

    def profile(frame, event, _):
        if event == "return":
            here, back = place(frame), place(frame.f_back)
            if here and back and here != back:
                found[here, back] += 1

    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)


@torch._inductor.config.patch(force_disable_caches=True)
def compiled(function, *shapes):
    torch._dynamo.reset()
    torch.compile(function)(*(torch.ones(shape, device="ocl") for shape in shapes))


def test_returns_between_files(monkeypatch):
    """A column reduction is written with few of them (docs/design/compile.md), also on GPUs, where
    lines of a work-group combine what they have of the rows."""
    counts = []
    write = kernel.layout_of

    def counted(nest):
        with returns() as found:
            layout = write(nest)
        counts.append(found)
        return layout

    monkeypatch.setattr(kernel, "layout_of", counted)
    compiled(lambda x: x.sum(0), (4096, 64))
    assert counts and all(0 < found.total() <= 25 for found in counts), counts


def imports_of(path):
    """The files of the folder that one imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("torch_ocl"):
            continue
        for name in [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]:
            base = FOLDER.parents[1] / name.replace(".", "/")
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                if (
                    file.is_file()
                    and file.is_relative_to(FOLDER)
                    and file != FOLDER / "__init__.py"
                ):
                    yield file


def test_no_circle_of_files():
    left = {path: {*imports_of(path)} - {path} for path in FOLDER.rglob("*.py")}
    while free := {path for path, needed in left.items() if not needed & left.keys()}:
        for path in free:
            del left[path]
    assert not left, {p.name: sorted(n.name for n in needed) for p, needed in left.items()}


def attributes_set(path):
    """The attributes of `self` that a file sets anywhere but in a constructor."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
                if ast.unparse(node).startswith("self."):
                    yield ast.unparse(node)


def test_nothing_is_noted_while_text_is_written():
    """A text says itself which indices and functions it needs."""
    files = [path for folder in ("forms", "text") for path in (FOLDER / folder).glob("*.py")]
    # A value varies, or never does.
    assert {name for path in files for name in attributes_set(path)} == {"self._varies[value]"}


PROGRAMS = {
    "rows": (lambda x: x.softmax(-1), [(64, 200)], ("item_rows", "group_rows")),
    "kept rows": (lambda x: x.log_softmax(-1) * x, [(7, 37)], ("item_rows", "group_rows")),
    "lanes": (lambda x: x.cos() + 1, [(64, 51)], ("item_lanes", "group_lanes")),
    "lines": (lambda x, y: x * y, [(4, 16, 9, 9), (16, 1, 1)], ("item_lanes", "group_lanes")),
    "columns": (lambda x: x.amax(0), [(300, 64)], ("item_lanes", "group_columns")),
    "odd columns": (lambda x: x.softmax(0), [(130, 9)], ("item_lanes", "group_columns")),
    "tiles": (lambda x, y: x.t() + y, [(64, 48), (48, 64)], ("item_lanes", "group_tiles")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_layouts(name, monkeypatch):
    """A form doesn't change while it writes; its layout says all, and can't be changed."""
    function, shapes, names = PROGRAMS[name]
    layouts = []
    for module in (rows, columns, tiles):
        for form in vars(module).values():
            if isinstance(form, type) and "layout" in vars(form):

                def layout(self, upstream=form.layout):
                    before = {key: repr(value) for key, value in vars(self).items()}
                    made = upstream(self)
                    assert before == {key: repr(value) for key, value in vars(self).items()}
                    again = upstream(self)
                    assert made == again
                    layouts.append(made)
                    return made

                monkeypatch.setattr(form, "layout", layout)
    compiled(function, *shapes)
    made = layouts[0]
    assert made.form == names[takes_gpu_kernels()]
    shared = made.form in ("group_columns", "group_tiles")
    assert (made.lines > 1) == shared and (made.group > 1) == takes_gpu_kernels()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.width = 1


def test_all_forms_are_known():
    """Those that are written are those of the launcher's README."""
    text = (FOLDER.parents[1] / "csrc/engine/generated/README.md").read_text()
    classes = {
        form.name
        for module in (rows, columns, tiles)
        for form in vars(module).values()
        if isinstance(form, type) and issubclass(form, forms.Form) and form.name
    }
    assert {line.split("|")[1].strip() for line in text.splitlines() if "| GPUs |" in line} | {
        line.split("|")[1].strip() for line in text.splitlines() if "| CPUs |" in line
    } == classes


def test_kernels_for_gpus():
    run_as_gpu(__file__)
