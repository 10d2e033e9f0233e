"""The benchmark harness: it measures, notices wrong results, and writes its report."""

import os
import re
import subprocess
import sys

import pytest
import torch
import torchvision

from benchmarks.__main__ import main
from benchmarks.cases import CASES, inference, large, large_models, models, naive
from benchmarks.harness import measure, report, untimed
from benchmarks.harness.case import Case, compile_models
from benchmarks.harness.engines import ENGINES
from benchmarks.harness.worker import Worker
from benchmarks.studies import bandwidth, breadth, network_profile
from benchmarks.studies.breadth_samples import OPS, SAMPLES
from torch_ocl.cli.peaks import Peaks, measure_peaks, mover, products_per_second
from torch_ocl.cli.probe import Kernel

QUICK = {"seconds": 0.0, "least_calls": 1}


def make_sum(device):
    x = torch.arange(1000.0).to(device)
    return lambda: x.sum()


def test_measures_and_checks():
    result = measure.run(Case("sum", "reduce", make_sum, repeats=2), **QUICK)
    assert result.error == ""
    assert result.ocl.wall > 0 and result.other.wall > 0
    assert result.ratio == result.ocl.wall / result.other.wall
    assert result.process_ratio == result.ocl.process / result.other.process

    wrong = Case("wrong", "reduce", lambda d: lambda: torch.ones(3, device=d) * (d == "cpu"))
    assert "not close" in measure.run(wrong, **QUICK).error
    exact = Case("exact", "reduce", make_sum, exact=lambda: torch.tensor(1.0))
    assert "not close" in measure.run(exact, **QUICK).error


def test_a_side_in_another_process():
    by_name = {case.name: case for case in CASES}
    with Worker("cpu") as worker:
        for name in ("MLP 300-300-300-1 batch 100 MSE SGD", "1000 adds of 10 elements"):
            result = measure.run(by_name[name], worker, **QUICK)
            assert result.error == ""
            assert 0 < result.other.wall < 10
        with pytest.raises(RuntimeError, match="unpack"):
            worker.ask("make", "no such case")


def test_the_other_process_has_cuda_alone():
    """Autograd knows one accelerator, so CUDA's backward passes need a process without `ocl`."""
    code = "import sys, benchmarks.harness.worker; sys.exit('torch_ocl' in sys.modules)"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_list(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--list", "--family", "naive"])
    assert not end.value.code
    assert [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()] == [
        case.name for case, _ in naive.naive_cases()
    ]


def test_peaks():
    peaks = measure_peaks(4)
    assert peaks.copy > 0 and peaks.read > 0
    has_double = torch.ocl.get_device_properties(0).has_fp64
    assert {"float32"} | ({"float64"} if has_double else set()) <= set(peaks.flops)
    assert min(peaks.flops.values()) > 0


def test_roofline():
    peaks = Peaks(copy=10.0, read=20.0, flops={"float32": 100.0, "float16": 50.0})

    def share(dtype="float32", **work):
        return peaks.roofline(Case("", "", make_sum, dtype=dtype, **work), 2.0)

    assert share(bytes=20.0) == 0.5
    assert share(bytes=20.0, flops=200.0) == 1.0  # the longer of the two
    assert share("bfloat16", flops=100.0) == 0.5
    assert share("float16", flops=100.0) == 0.5  # in float, which is faster here
    assert share("float64", flops=100.0) is None  # no peak is known
    assert share() is None
    assert peaks.roofline(Case("", "", make_sum, bytes=20.0), 2.0, moving=1.5) == 0.75
    assert peaks.may_be_bound_by_memory(Case("", "", make_sum, bytes=20.0, flops=100.0))
    assert not peaks.may_be_bound_by_memory(Case("", "", make_sum, bytes=20.0, flops=300.0))


def test_roofline_of_matrix_units(monkeypatch):
    peaks = Peaks(10.0, 20.0, {"float32": 100.0}, {"bfloat16": 800.0, "tf32": 400.0})
    assert peaks.flops_of("bfloat16") == 800.0 and peaks.flops_of("float16") == 100.0
    assert peaks.flops_of("float32") == 100.0
    monkeypatch.setattr("torch_ocl._C.allowed_float32_precision", lambda use: "tf32")
    assert peaks.flops_of("float32") == 400.0
    faster = peaks.or_more(Peaks(1.0, 30.0, {"float32": 90.0}, {"bfloat16": 900.0}))
    assert faster == Peaks(10.0, 30.0, {"float32": 100.0}, {"bfloat16": 900.0, "tf32": 400.0})
    assert "bfloat16 products 8e-07 GFLOP/s" in peaks.describe()
    assert min(products_per_second(64).values()) > 0


def test_mover():
    """It reads and writes all of the tensors, and says what it leaves out."""
    a, b, c, out = (torch.full((2**18,), i + 1.0, device="ocl") for i in range(4))
    wide = torch.empty(2**19, device="ocl")
    call, left = mover([a, b, c], [out])
    call()
    assert left == 0
    assert torch.equal(out.cpu(), torch.full((2**18,), 6.0))
    call, left = mover([a], [wide])
    call()
    assert left == 0
    assert torch.equal(wide.cpu(), torch.ones(2**19))


def test_bandwidth_refuses(capsys):
    for arguments in (["--op", "no such"], ["--op", "softmax", "--document"]):
        with pytest.raises(SystemExit):
            bandwidth.main(arguments)


def test_bandwidth(monkeypatch):
    monkeypatch.setattr(bandwidth, "ROUNDS", 1)
    monkeypatch.setattr(bandwidth, "CALLS", 1)
    for make in bandwidth.OPS.values():
        bytes_, *seconds = bandwidth.measure(make, 2**18)
        assert bytes_ > 0 and all(0 < s < 60 for s in seconds)


def test_naive_kernels(monkeypatch):
    monkeypatch.setattr(naive, "N", 64)
    monkeypatch.setattr(naive, "ELEMENTS", 4096)
    cases = naive.naive_cases()
    assert {case.name.split()[0] for case, _ in cases} == {"matmul", "relu", "squared"}
    for case, make in cases:
        sides = (measure.Side(call, "ocl") for call in (case.make("ocl"), make("ocl")))
        result = measure.compare(case, *sides, **QUICK)
        assert result.error == "", case.name


def test_source_kernel_errors():
    with pytest.raises(RuntimeError, match="broken"):
        Kernel("kernel void broken(global char* p) { p[0] = nothing; }", "broken")
    kernel = Kernel("kernel void one(global char* p, ulong o) { p[o] = 1; }", "one")
    out = torch.zeros(4, dtype=torch.uint8, device="ocl")
    with pytest.raises(ValueError, match="global and local"):
        kernel([1], [1, 1], out)
    kernel([1], [1], out[2:])
    assert out.cpu().tolist() == [0, 0, 1, 0]


def test_ops_without_a_case():
    def call():
        x = torch.ones(3, device="ocl", requires_grad=True)
        torch.autograd.grad((x.sigmoid() * 2).sum(), x)

    seen = untimed.record(call)
    assert {"sigmoid", "sigmoid_backward", "mul", "sum"} <= seen
    total, families = untimed.by_family(seen)
    left = {op for ops in families.values() for op in ops}
    assert left.isdisjoint(seen) and "native_layer_norm" in left
    assert total == len(left) + len(untimed.by_family(set())[1] and table_ops() & seen)
    assert untimed.by_family(table_ops())[1] == {}


def table_ops():
    return {op for ops in untimed.by_family(set())[1].values() for op in ops}


def test_document(tmp_path, capsys):
    path = tmp_path / "performance.md"
    path.write_text("Text.\n\n<!-- benchmarks: other -->\nKept.\n<!-- end benchmarks -->\n")
    for _ in range(2):  # the second time its section is replaced
        with pytest.raises(SystemExit) as done:
            main(["--quick", "--case", "1000 adds", "--document", str(path)])
        assert done.value.code == 0
    text = path.read_text()
    assert text.startswith("Text.") and "Kept." in text
    assert len(re.findall("<!-- benchmarks:", text)) == 2
    assert text.count("| 1000 adds of 10 elements |") == 1
    assert "python -m benchmarks" in text and torch.__version__ in text
    (image,) = re.findall(r"\]\((.*\.png)\)", text)
    assert (tmp_path / image).read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "peaks: copy" in printed and "programs built" in printed


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--family", "nope"], "invalid choice"),
        (["--case", "nope"], "no case has a name with 'nope': --list shows all"),
        (["--family", "gemm", "--case", "softmax"], "no case of the family gemm has a name"),
        (["--seconds", "-1"], "invalid positive"),
        (["--seconds", "nan"], "invalid positive"),
        (["--document", "--quick"], "whole section"),
        (["--document", "--family", "gemm"], "whole section"),
        (["--document", "missing/folder/file.md"], "there is no folder"),
    ],
)
def test_options_that_make_no_sense(options, reason, capsys):
    with pytest.raises(SystemExit) as done:
        main(options)
    assert done.value.code == 2 and reason in capsys.readouterr().err


def test_texts():
    assert report.time_text(2e-6) == "2.00 us" and report.time_text(0.5) == "500.000 ms"
    assert report.geometric_mean([2, 8]) == pytest.approx(4)
    assert report.untimed_text((5, {"unary": ["sin", "tan"]})) == [
        "2 of the 5 ops of the op table have no case:",
        "- unary: sin, tan",
    ]


def test_breadth(capsys):
    """Every op's inputs exist; one of them is measured, and its results agree."""
    assert all(name in SAMPLES for _, inputs, _ in OPS.values() for name in inputs)
    breadth.main(["--op", "linalg.lstsq", "--seconds", "0"])
    printed = capsys.readouterr().out
    assert "1 ops: geometric mean" in printed and "not close" not in printed
    with pytest.raises(SystemExit):
        breadth.main(["--op", "no such op"])


def test_profile_of_a_network(capsys):
    network_profile.main(["ResNet-50", "--batch", "1", "--rows", "5"])
    printed = capsys.readouterr().out
    assert printed.startswith("ResNet-50, batch of 1, float32\nKernel")
    assert "convolution" in printed and "on the device in" in printed


def test_networks_have_their_parameters():
    made = {"ResNet-18": models.resnet18(1000), "ResNet-50": models.resnet50()}
    for name, network in made.items():
        shapes = [tuple(p.shape) for p in network.parameters()]
        assert sorted(shapes) == sorted(models.parameter_shapes(name))


def listed(capsys, *options):
    with pytest.raises(SystemExit) as end:
        main(["--list", *options])
    assert not end.value.code
    return [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()]


def test_large_networks_are_for_gpus(capsys):
    """Beside a CPU they would take hours, so they have to be asked for."""
    names = list(large_models.NETWORKS)
    assert listed(capsys, "--family", "large") == names
    assert not set(names) & set(listed(capsys))


def test_compiled_cases_have_models(capsys):
    names = listed(capsys, "--compile")
    assert "ResNet-18 batch 8 at 64x64" in names and "mm 1024" not in names


def small_network(**options):
    return large_models.Network(
        lambda: torch.nn.Linear(6, 5), lambda: torch.randn(3, 6), classes=5, **options
    )


@pytest.mark.parametrize("options", [{}, {"training": False}, {"tf32": True}], ids=str)
def test_steps_of_large_networks(options):
    network = small_network(**options)
    before = torch.backends.fp32_precision
    out, expected = (large_models.step_of(network, device)() for device in ("ocl", "cpu"))
    torch.testing.assert_close(out.cpu(), expected)
    assert torch.backends.fp32_precision == before


def test_cases_of_large_networks():
    """A call is some steps; compiled or not, it computes the same."""
    make = large.steps_of(small_network())
    case = Case("small", "large", make, repeats=large.STEPS, for_gpus=True)
    assert measure.run(case, **QUICK).error == ""
    compile_models(True)
    try:
        assert measure.run(case, **QUICK).error == ""
    finally:
        compile_models(False)


SMALL_LLAMA = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize("kind", inference.FORMATS)
def test_tokens_of_files(kind, monkeypatch):
    """A file of each format: a token on `ocl` is the CPU's, and so is the next call's."""
    monkeypatch.setattr(inference, "LLAMA", SMALL_LLAMA)
    inference.llama_file.cache_clear()
    (case,) = (case for case in CASES if case.name.startswith(f"Llama 207M {kind}"))
    calls = [case.make(device) for device in ("ocl", "cpu")]
    for _ in range(2):
        results = [call() for call in calls]
        assert measure.check(case, *results) == "" and results[0].std() > 0.1
    inference.llama_file.cache_clear()


class StandIn:
    """An engine that is CPU torch."""

    title, package = "a stand-in", "torch"
    factor = 1

    @staticmethod
    def takes(case):
        return case.network is not None and case.dtype == "float32"

    def side(self, case):
        model, image = case.network()
        return measure.Side(lambda: model(image) * self.factor, "cpu")


def test_engines(monkeypatch, capsys):
    """Networks beside an engine: its results are checked."""
    monkeypatch.setitem(ENGINES, "standin", StandIn)
    monkeypatch.setattr(inference, "network", lambda name: (torch.nn.Softmax(0), torch.ones(9)))
    assert all(hasattr(torchvision.models, name) for name, _ in inference.NETWORKS.values())
    names = listed(capsys, "--against", "standin")
    assert "MobileNetV2" in names and "MobileNetV2 bfloat16" not in names
    assert not any("Llama" in name for name in names)
    assert "MobileNetV2" not in listed(capsys)
    options = ["--against", "standin", "--case", "ResNet-18", "--quick"]
    with pytest.raises(SystemExit) as done:
        main(options)
    assert not done.value.code and "failed" not in capsys.readouterr().out
    monkeypatch.setattr(StandIn, "factor", 2)
    with pytest.raises(SystemExit) as done:
        main(options)
    assert done.value.code and "WRONG" in capsys.readouterr().out
    monkeypatch.setattr(StandIn, "package", "not_there")
    with pytest.raises(SystemExit):
        main(options)
    assert "needs its package" in capsys.readouterr().err
