"""Each change that mends a wrong result of upstream's is still needed, as in test_upstream.py."""

import pytest
import torch
from torch._inductor import (
    ir,
    lowering,
    sizevars,
)

from tests.compile import test_fallbacks as fallback_programs
from tests.compile import test_mutations
from tests.compile import test_quotients as quotients_of
from torch_ocl.upstream.compile import fallbacks, mutations


@pytest.fixture(autouse=True)
def registered():
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1)(torch.ones(1, device="ocl"))
    torch._dynamo.reset()


def differs_without_a_change(program):
    """Whether a program returns something else on the CPU, where nothing is changed."""
    x = torch.arange(-12, 12).reshape(4, 6)
    y = x.clone()
    torch._dynamo.reset()
    return not torch.equal(torch.compile(program)(y), program(x))


@torch._inductor.config.patch(force_disable_caches=True)
def test_reads_of_aliases():
    """Upstream has https://github.com/pytorch/pytorch/pull/198104, which is not merged."""
    assert differs_without_a_change(test_mutations.through_a_dtype_view)


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize(
    "program",
    [
        test_mutations.written_after_a_copy,
        test_mutations.kept_while_its_input_is_cleared,
        test_mutations.written_twice_after_a_copy,
    ],
)
def test_results_that_outlive_a_write(program):
    assert differs_without_a_change(program)


@torch._inductor.config.patch(force_disable_caches=True)
def test_old_values():
    """Upstream has https://github.com/pytorch/pytorch/pull/198132, which is not merged."""
    x = [torch.zeros(3, 4), torch.arange(12.0).view(3, 4)]
    y = [t.clone() for t in x]
    test_mutations.two_inputs(*x)
    torch.compile(test_mutations.two_inputs)(*y)
    assert not torch.equal(x[0], y[0])


@torch._inductor.config.patch(force_disable_caches=True)
def test_reads_of_fused_writes():
    assert differs_without_a_change(test_mutations.written_beside_what_is_read)


@torch._inductor.config.patch(force_disable_caches=True)
def test_parts_of_concatenations():
    assert differs_without_a_change(test_mutations.written_after_it_is_concatenated)


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize(
    "program",
    [
        test_mutations.written_whole_after_a_part,
        test_mutations.written_by_a_mask_through_a_dtype_view,
    ],
)
def test_other_names(monkeypatch, program):
    """The CPU has other lowerings for these: the device shows whether the change is needed."""
    monkeypatch.setattr(lowering, "mutate_to", lowering.mutate_to.__wrapped__)
    assert test_mutations.differs(program)


@torch._inductor.config.patch(force_disable_caches=True)
def test_dtypes_of_memory(monkeypatch):
    monkeypatch.setattr(ir.Pointwise, "store_output", ir.Pointwise.store_output.__wrapped__)
    # It is written in place where an earlier graph has called the view as an eager op.
    monkeypatch.setattr(fallbacks, "forget", lambda: None)
    assert test_mutations.differs_in_halves(torch.int32)


@torch._inductor.config.patch(force_disable_caches=True)
def test_dtypes_of_memory_at_indices(monkeypatch):
    """The CPU raises for a write into such a view: the device shows whether it is needed."""
    monkeypatch.setattr(ir.Scatter, "store_output", ir.Scatter.store_output.__wrapped__)
    write = test_mutations.filled_by_a_number
    found, expected = test_mutations.written_through_a_view_of_a_result(write, torch.float32)
    assert not torch.equal(found[0], expected[0])


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize(
    ("change", "program"),
    [
        ("keep_memory", test_mutations.with_another_name),
        ("keep_old_values", test_mutations.two_inputs),
        ("keep_operands", test_mutations.written_from_itself),
        ("keep_results", test_mutations.kept_in_another_input),
        ("separate_results", test_mutations.copied_through_a_view),
        ("update_views", test_mutations.copied_through_a_view),
    ],
)
def test_values_that_are_kept(monkeypatch, change, program):
    pairs = test_mutations.PAIRS
    differs = test_mutations.differs_for_two if program in pairs else test_mutations.differs
    assert not differs(program)
    torch._dynamo.reset()
    monkeypatch.setattr(mutations, change, lambda *arguments: None)
    assert differs(program)


@torch._inductor.config.patch(force_disable_caches=True)
def test_writes_through_windows():
    """Upstream clears what lies between the windows."""

    def program(x):
        x.unfold(0, 2, 3).add_(10)
        return x * 1

    x = torch.arange(7)
    torch._dynamo.reset()
    assert torch.compile(program)(x)[2] == 0


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize(
    "write",
    [lambda x: x.view(2, 6).unfold(1, 3, 2).mul_(2), lambda x: x[::2].unfold(0, 3, 1).add_(1),
     lambda x: x.view(3, 4).t().unfold(0, 2, 1).add_(1), lambda x: x[2:].unfold(0, 3, 1).zero_()],
)  # fmt: skip
def test_writes_through_windows_of_a_view_that_overlap(write):
    """They are refused as on the CPU. Without torch.compile they are done, one after another."""

    def program(x):
        write(x)
        return x * 1

    kinds = []
    for device in ("cpu", "ocl"):
        torch._dynamo.reset()
        with pytest.raises(RuntimeError) as refused:
            torch.compile(program)(torch.arange(12.0, device=device))
        kinds.append((type(refused.value), type(refused.value.inner_exception)))
    assert kinds[0] == kinds[1]
    found = [program(torch.arange(12.0, device=device)).tolist() for device in ("cpu", "ocl")]
    assert found[0] == found[1]


@torch._inductor.config.patch(force_disable_caches=True)
def test_sums_of_constants():
    def sums(x):
        ones = torch.ones_like(x)
        return ones.cumsum(0, dtype=torch.float32), ones.long().cumsum(0).view(torch.int32)

    x = torch.zeros(3, 4, dtype=torch.int16, device="ocl")
    for a, e in zip(torch.compile(sums)(x), sums(x.cpu()), strict=True):
        assert a.dtype == e.dtype
        assert torch.equal(a.cpu(), e)
    found = torch.compile(lambda x: torch.ones_like(x).cumsum(0, dtype=torch.float32))(x.cpu())
    assert found.dtype == torch.int64, "upstream keeps the dtype now"


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize("zero", [0, False])
def test_products_with_zero(zero):
    x = torch.tensor([float("nan"), float("inf"), 1.0, -1.0])

    def product(x):
        return x * zero, x.int() * zero

    for a, e in zip(torch.compile(product)(x.to("ocl")), product(x), strict=True):
        torch.testing.assert_close(a.cpu(), e, equal_nan=True, rtol=0, atol=0)
        assert torch.equal(a.cpu().signbit(), e.signbit())
    assert torch.compile(product)(x)[0].isfinite().all(), "upstream has NaN now"


@torch._inductor.config.patch(force_disable_caches=True)
def test_quotients(monkeypatch):
    div = torch.ops.aten.div.Tensor_mode
    assert not quotients_of.differ()
    upstream = lowering.lowerings[div].__wrapped__.__wrapped__
    monkeypatch.setitem(lowering.lowerings, div, upstream)
    assert quotients_of.differ()


def clamped(x, v):
    return x.to(torch.int32).clamp(max=v + 0.5), x.int().clamp(v - 3, v + 0.5), x.clamp(v, v + 1)


@torch._inductor.config.patch(force_disable_caches=True)
def test_clamps():
    x = torch.arange(6.0)

    def differs(device):
        torch._dynamo.reset()
        compiled = torch.compile(clamped, dynamic=True)
        pairs = [
            pair
            for v in (2, 4)
            for pair in zip(compiled(x.to(device), v), clamped(x, v), strict=True)
        ]
        return any(a.dtype != e.dtype or not torch.equal(a.cpu(), e) for a, e in pairs)

    assert not differs("ocl")
    assert differs("cpu")


@torch._inductor.config.patch(force_disable_caches=True)
def test_precomputed_sizes(monkeypatch):
    program = test_mutations.written_through_views_of_other_sizes
    assert not test_mutations.differs(program, dtype=torch.int32, dynamic=True)
    kind = sizevars.SizeVarAllocator
    upstream = kind.lookup_precomputed_size.__wrapped__
    monkeypatch.setattr(kind, "lookup_precomputed_size", upstream)
    torch._dynamo.reset()
    with pytest.raises(torch._inductor.exc.InductorError, match="vr must not be None"):
        test_mutations.differs(program, dtype=torch.int32, dynamic=True)


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize("program", fallback_programs.PROGRAMS)
def test_fallbacks(monkeypatch, program):
    """The first graph puts ops on a list that the second reads."""
    fallbacks.forget()
    monkeypatch.setattr(fallbacks, "forget", lambda: None)
    assert fallback_programs.codes(program, "ocl") == 2


def test_guards_on_floats(tmp_path, monkeypatch):
    """PyTorch 2.14 mends where() and clamp(), but not this one: issue 197889."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def function(x, v):
        return torch.nn.functional.rms_norm(x * v, (6,), eps=v + 1e-3)

    x = torch.tensor([-2.0, 0.05, 0.3, 0.6, 0.8, 2.0])
    torch._dynamo.reset()
    compiled = torch.compile(function)
    with torch._inductor.config.patch(fx_graph_cache=True, force_disable_caches=False):
        found = [torch.allclose(compiled(x, v), function(x, v)) for v in (0.5, 0.75, 0.1, 0.9)]
    assert not all(found)


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x, v: torch.lerp(x * v, x, v), "unbacked_bindings"),
        (lambda x, v: torch.pow(v, x * v), "NYI log symbolic float"),
    ],
)
@pytest.mark.filterwarnings("ignore:Error detected")
def test_specialized_floats(function, error):
    x = torch.ones(6, requires_grad=True)
    with pytest.raises(Exception, match=error):
        torch.compile(function, dynamic=True)(x, 0.5)
    function = torch.compile(function, dynamic=True)
    function(torch.ones(6, device="ocl", requires_grad=True), 0.5)


@pytest.mark.parametrize("dynamic", [None, True])
def test_signs_of_zeros(monkeypatch, dynamic):
    x = torch.ones(3)
    found = []
    for used in (False, True):
        monkeypatch.setattr(torch.ocl, "is_initialized", lambda used=used: used)
        torch._dynamo.reset()
        compiled = torch.compile(torch.copysign, dynamic=dynamic)
        compiled(x, 0.0)
        found.append(compiled(x, -0.0).tolist())
    assert found == [[1.0] * 3, [-1.0] * 3]
