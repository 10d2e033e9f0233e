"""examples/generate.py with a tiny Llama, in every dtype and with weights of 8 and 4 bits."""

import re

import pytest
import torch

from tests.integrations import small


@pytest.fixture(scope="module")
def generate():
    import importlib.util

    from tests.examples.test_examples import EXAMPLES

    spec = importlib.util.spec_from_file_location("generate", EXAMPLES / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(generate, capsys, *arguments):
    generate.main(
        ["--model", str(small.llama_folder()), "--prompt", "the cat sees", "--tokens", "12"]
        + list(arguments)
    )
    *text, figures = capsys.readouterr().out.strip().splitlines()
    return text, figures


def test_the_text_is_that_of_the_cpu(generate, capsys):
    text, figures = run(generate, capsys)
    found = re.fullmatch(r"12 tokens, (\S+) tokens/s, (\d+) MiB at most", figures)
    assert found and float(found[1]) > 0 and int(found[2]) >= 0
    expected, of_the_cpu = run(generate, capsys, "--device", "cpu")
    assert text == expected and text and "MiB" not in of_the_cpu


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dtype", "bfloat16"],
        ["--dtype", "float16", "--temperature", "0.7"],
        ["--dtype", "bfloat16", "--quantize", "int8"],
        ["--dtype", "bfloat16", "--quantize", "int4"],
    ],
    ids=" ".join,
)
def test_dtypes_and_quantised_weights(generate, capsys, arguments):
    text, figures = run(generate, capsys, *arguments)
    assert text and re.match(r"\d+ tokens, ", figures)


@pytest.mark.parametrize("bits, limit", [("int8", 0.05), ("int4", 0.3)])
def test_quantised_scores_are_near(generate, bits, limit):
    ids = small.tokenizer()("the small cat sees", return_tensors="pt")["input_ids"].to("ocl")
    with torch.inference_mode():
        exact = small.llama().to("ocl")(ids).logits
        model, _ = generate.load(str(small.llama_folder()), "ocl", torch.bfloat16, bits)
        found = model(ids).logits.float()
    assert (found - exact).norm() < limit * exact.norm()


def test_four_bits_need_bfloat16(generate, capsys):
    with pytest.raises(SystemExit):
        run(generate, capsys, "--quantize", "int4")
    assert "needs --dtype bfloat16" in capsys.readouterr().err


def test_a_folder_that_is_not_there(generate, capsys, tmp_path):
    with pytest.raises(SystemExit):
        run(generate, capsys, "--model", str(tmp_path / "missing"))
    assert f"no such folder: {tmp_path / 'missing'}" in capsys.readouterr().err


def test_an_empty_prompt(generate, capsys):
    with pytest.raises(SystemExit):
        run(generate, capsys, "--prompt", "")
    assert "--prompt: it has no tokens" in capsys.readouterr().err
