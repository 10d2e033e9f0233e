"""Nothing computes on the host uncounted: what each op copies there and back, and each place in the
sources that has to do with the host's tensors."""

import re
from pathlib import Path

import pytest
import torch

from tests.coverage import scope
from tests.coverage.runner import Runner
from tests.coverage.traffic import NUMBERS, Traffic, measured

ROOT = Path(__file__).resolve().parents[2]
#: Ops that copy more than a few numbers and count nothing, and why.
COPIES = {
    "nn.functional.ctc_loss": "reads the lengths of the sequences, which decide shapes",
    "to": "was asked to",
}


def dense(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to("ocl")


def sparse(layout, *shape):
    return dense(*shape).relu().to_sparse(layout=layout)


def symmetric(n):
    matrix = dense(n, n)
    return matrix + matrix.t()


COO, CSR, CSC = torch.sparse_coo, torch.sparse_csr, torch.sparse_csc
#: Ops without samples in PyTorch's op tests.
BEYOND = {
    "COO and its values": lambda: sparse(COO, 40, 50).coalesce(),
    "COO by dense": lambda: torch.sparse.mm(sparse(COO, 40, 50), dense(50, 30)),
    "CSR by dense": lambda: sparse(CSR, 40, 50) @ dense(50, 30),
    "CSC by dense": lambda: sparse(CSC, 40, 50) @ dense(50, 30),
    "sparse by sparse": lambda: torch.sparse.mm(sparse(COO, 40, 50), sparse(COO, 50, 30)),
    "sampled_addmm": lambda: torch.sparse.sampled_addmm(
        sparse(CSR, 40, 50), dense(40, 30), dense(30, 50)
    ),
    "sparse softmax": lambda: torch.sparse.softmax(sparse(COO, 40, 50), 1),
    "BSR": lambda: dense(40, 50).to_sparse_bsr((4, 5)).to_dense(),
    "sums of COO": lambda: torch.sparse.sum(sparse(COO, 40, 50), 1),
    "between layouts": lambda: sparse(COO, 40, 50).to_sparse_csr().to_sparse_csc().to_sparse(),
    "nested": lambda: torch.nested.nested_tensor(
        [dense(30, 20), dense(25, 20)], layout=torch.jagged, device="ocl"
    ).mul(2),
    "4 bits": lambda: torch.ops.torch_ocl.quantize_4bit(dense(40, 50), 64, "nf4", torch.uint8),
    "embedding_bag": lambda: torch.nn.functional.embedding_bag(
        torch.arange(40, device="ocl").view(4, 10), dense(50, 30)
    ),
    "multinomial": lambda: dense(40, 50).abs().multinomial(5),
    "randperm": lambda: torch.randperm(5000, device="ocl"),
    "masks": lambda: dense(40, 50)[dense(40, 50) > 0],
    "eigh of a large matrix": lambda: torch.linalg.eigh(symmetric(300)),
    "svd of a large matrix": lambda: torch.linalg.svd(dense(300, 280)),
    "ldl_factor of a large matrix": lambda: torch.linalg.ldl_factor(symmetric(300)),
    "solve of a large matrix": lambda: torch.linalg.solve(symmetric(300), dense(300, 20)),
    "qr of a large matrix": lambda: torch.linalg.qr(dense(300, 280)),
}
#: Those of LAPACK, which are counted.
STAGED = {name for name in BEYOND if name.startswith(("eigh", "svd", "ldl_factor"))}


def test_copies_are_seen():
    x = dense(40, 50)
    assert measured(x.cpu).read == 8000
    assert measured(lambda: torch.ones(40, 50).to("ocl")).written == 8000
    assert measured(lambda: x.sum().item()).read == 4
    assert measured(lambda: x + 1).read == 0
    found = measured(lambda: torch.linalg.eigvals(x[:, :40]))
    assert found.read == 6400 and found.counted == {"linalg_eigvals"}


@pytest.fixture(scope="module")
def runner():
    runner = Runner(worker="tests.coverage.traffic")
    yield runner
    runner.close()


@pytest.mark.parametrize("name", [scope.full_name(op) for op in scope.in_scope()])
def test_op(runner, name):
    result = runner.run(name, None, 0)
    if not result.pop("passed"):
        pytest.fail(f"{result['error']}\n{result['traceback']}", pytrace=False)
    found = Traffic(**result)
    uncounted = found.is_large and not found.counted
    assert uncounted == (name in COPIES), found


@pytest.mark.parametrize("name", BEYOND)
def test_beyond_op_tests(name):
    inputs = measured(BEYOND[name])
    # Inputs come from the host, too, and are larger than any result.
    assert inputs.read > NUMBERS and inputs.counted if name in STAGED else inputs.read <= NUMBERS


#: Calls that make tensors on the host, or bring them there.
HOST = re.compile(
    r"\bkCPU\b|DeviceType::CPU\b|\.cpu\(\)|\.numpy\(\)|\.tolist\(\)|"
    r"\bcpu_fallback\(|\bHostStage \w+\(|"
    r"(device=|\.to\(|device\()[\"']cpu[\"']"
)
COMMENT = re.compile(r"^\s*(#|//).*$", re.MULTILINE)
#: How often files do, and for what.
PLACES = {
    "csrc/ops/linalg/BatchLinearAlgebraLDL.cpp": (2, "LAPACK, counted"),
    "csrc/ops/linalg/BatchLinearAlgebraSpectral.cpp": (2, "LAPACK, counted"),
    "csrc/ops/Collectives.cpp": (1, "text"),
    "csrc/ops/Copy.cpp": (3, "copies' other sides; conversions that OpenCL can't do are counted"),
    "csrc/ops/Fallback.cpp": (2, "TORCH_OCL_FALLBACK=1, counted; text"),
    "csrc/ops/FirstUse.cpp": (1, "known answers are compared with the CPU's"),
    "csrc/ops/Histogram.cpp": (1, "the smallest and the largest element"),
    "csrc/ops/HostReads.cpp": (1, "a shape"),
    "csrc/ops/HostStaged.cpp": (5, "LAPACK, counted"),
    "csrc/ops/IndexOps.cpp": (1, "a number that upstream's function asks for"),
    "csrc/ops/MaskedOps.cpp": (1, "a number that is a kernel's argument"),
    "csrc/ops/Sorting.cpp": (1, "a number, the statistic of no elements"),
    "csrc/ops/TensorShape.cpp": (1, "the least of the repeats, and their sum"),
    "csrc/ops/sparse/Sparse.cpp": (1, "the smallest and the largest index"),
    "csrc/runtime/host_allocator.cpp": (1, "pinned memory is the CPU's"),
    "torch_ocl/api/exchange.py": (1, "NumPy's name of a dtype"),
    "torch_ocl/api/streams.py": (1, "text"),
    "torch_ocl/cli/check/cases.py": (1, "`python -m torch_ocl check` compares with the CPU"),
    "torch_ocl/cli/warm.py": (1, "`python -m torch_ocl cache warm` waits for its model's results"),
    "torch_ocl/integrations/comfyui.py": (1, "what a program that says --cpu gets"),
    "torch_ocl/source_kernels/kernels.py": (1, "NumPy's numbers as a launch's sizes"),
    "torch_ocl/upstream/cross_entropy.py": (1, "a device in a question about dtypes"),
    "torch_ocl/upstream/data_parallel.py": (1, "the place that comm.gather(-1) names"),
    "torch_ocl/upstream/distributed/process_groups.py": (1, "text"),
    "torch_ocl/upstream/distributed/rpc.py": (2, "messages between processes"),
    "torch_ocl/upstream/jagged_attention.py": (1, "the lengths of sequences"),
    "torch_ocl/upstream/lbfgs.py": (2, "the few numbers by which a line search goes on"),
    "torch_ocl/upstream/multiprocessing.py": (1, "text"),
    "torch_ocl/utils/exercises.py": (4, "an exercise's result is compared with the CPU's"),
    "torch_ocl/utils/gguf.py": (1, "the ops of packed weights that lie on the CPU"),
}


def places():
    """Files that match, with the number of matches."""
    found = {}
    for folder in ("csrc/ops", "csrc/engine", "csrc/runtime", "torch_ocl"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in (".cpp", ".h", ".py") or name.startswith("torch_ocl/include"):
                continue
            count = len(HOST.findall(COMMENT.sub("", path.read_text(encoding="utf-8"))))
            if count:
                found[name] = count
    return found


def test_places():
    """A new one belongs on the list, with what it is for; what computes there must be counted."""
    if not (ROOT / "csrc").is_dir():
        pytest.skip("not run from the source tree")
    assert places() == {name: count for name, (count, _) in PLACES.items()}
