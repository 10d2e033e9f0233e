"""The lessons of docs/kernels run, and their exercises can be solved: answers that are right pass
the checkers, the lessons' own first tries do not."""

import os
import re
from pathlib import Path

import matplotlib
import pytest
import torch

from tests import fresh
from tests.packaging import lesson_answers as answers
from tests.packaging.test_doc_blocks import blocks
from torch_ocl.utils import exercises

LESSONS = Path(__file__).resolve().parents[2] / "docs" / "kernels"
if not LESSONS.exists():
    pytest.skip("not run from the source tree", allow_module_level=True)
PAGES = sorted(LESSONS.glob("lesson*.md"))
SMALL = {"LESSON_SIZE": "128", "LESSON_ELEMENTS": "100003"}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_lesson_runs(page, tmp_path):
    """As its notebook does. Its exercise is not solved yet, and says why."""
    code = "\n".join(block for _, block in blocks(page.read_text(encoding="utf-8")))
    environment = os.environ | SMALL | {"MPLBACKEND": "agg"}
    done = fresh.run_script(code, environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not yet" in done.stdout.splitlines()[-1], done.stdout


def test_lessons_are_listed():
    index = (LESSONS / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\((lesson\w+)\.md\)", index) == [page.stem for page in PAGES]
    assert len(PAGES) == 6


def test_what_the_sixth_lesson_shows_is_there():
    page = (LESSONS / "lesson6_op.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    files = ("kernels/pointwise/ops/unary.clh", "codegen/ops/pointwise.yaml")
    shown = [text.strip("\n") for language, text in blocks if not language]
    for text, file in zip(shown, files, strict=True):
        assert text in (LESSONS.parents[1] / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("checker", "right", "wrong"),
    [
        (exercises.relu, answers.relu, lambda x: x.clamp_min(0).nan_to_num()),
        (exercises.mean_squared_error, answers.mean_squared_error, lambda x, y: (x - y).mean()),
        (exercises.maximum, answers.maximum, lambda x: x.nan_to_num().amax()),
        (exercises.shift, answers.shift, lambda x: x.roll(1)),
        (exercises.xlog1py, answers.xlog1py, torch.xlogy),
    ],
    ids=lambda value: getattr(value, "__name__", "wrong"),
)
def test_exercises(checker, right, wrong, capsys):
    assert checker(right), capsys.readouterr().out
    assert not checker(wrong)
    assert "not yet. For arguments of the shapes [" in capsys.readouterr().out


class WithoutGradient(torch.autograd.Function):
    """relu whose gradient forgets the one that comes in."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx, grad):
        return torch.where(ctx.saved_tensors[0] <= 0, 0.0, 1.0)


def half_written(x):
    y = torch.empty_like(x)
    y[: x.numel() // 2] = x[: x.numel() // 2]
    return y


@pytest.mark.parametrize(
    ("checker", "wrong", "said"),
    [
        (exercises.relu, WithoutGradient.apply, "the gradient of argument 0 is 1 at"),
        (
            exercises.relu,
            lambda x: x.contiguous().relu().flatten(),
            "wanted torch.float32 of [7, 6]",
        ),
        (exercises.relu, lambda x: x.clamp_min(0).nan_to_num(), "(where argument 0 is nan)"),
        (exercises.shift, half_written, "was not written"),
        (exercises.xlog1py, lambda x, y: x * (1 + y).log(), "3 of 3 are wrong"),
    ],
)
def test_what_is_said_of_wrong_answers(checker, wrong, said, capsys):
    assert not checker(wrong)
    assert said in capsys.readouterr().out


def test_what_is_timed_is_checked(capsys):
    kept, first = {}, {}

    def by_address(a, b):
        return kept.setdefault((a.data_ptr(), b.data_ptr()), a @ b)

    def of_one_size(a, b):
        return a @ first.setdefault(b.shape, b.clone())

    def beyond_384(a, b):
        c = a @ b
        c[384:] = 0
        return c

    for wrong in (by_address, of_one_size, beyond_384):
        assert not exercises.matrix_product(wrong, size=512, goal=0.01), wrong
    assert not exercises.matrix_product(lambda a, b: ((a @ b), a.fill_(0))[0], size=256, goal=0.01)
    assert "it changes its arguments" in capsys.readouterr().out
    assert not exercises.maximum(lambda x: x[:2000].amax(), elements=10**6)
    with pytest.raises(ValueError, match="size is 0"):
        exercises.matrix_product(answers.product, size=0)


def test_the_exercise_of_products(capsys):
    """Tests share the cores, so speed is another one's."""
    assert exercises.matrix_product(answers.product, size=256, goal=0.01), capsys.readouterr().out
    assert not exercises.matrix_product(answers.product, size=256, goal=100.0)
    assert "and not yet 10000%" in capsys.readouterr().out
    assert not exercises.matrix_product(lambda a, b: a @ b.t(), size=256)
    assert not exercises.matrix_product(lambda a, b: (a @ b).cpu(), size=256)
    assert "is on cpu, not on ocl" in capsys.readouterr().out
    assert not exercises.matrix_product(lambda a: a, size=256)
    assert "TypeError" in capsys.readouterr().out


@pytest.mark.slow
def test_sixty_percent_can_be_reached():
    """By the answer that the lesson's hints lead to. Other programs may take the cores at times."""
    assert any(exercises.matrix_product(answers.product) for _ in range(10))


def test_plots():
    matplotlib.use("agg")
    flops, bandwidth = exercises.roofline()
    figure = exercises.plot_roofline({"half": (flops / bandwidth, flops / 2)})
    assert figure.axes[0].get_xlabel() == "operations for each byte"
    assert len(exercises.plot_shares({"a": 0.1, "b": 0.7}).axes[0].patches) == 2
