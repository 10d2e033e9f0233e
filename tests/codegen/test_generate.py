"""The generator's output for a table: names, files, manifest, and its own checks against torch."""

import json
import os

import pytest

TABLE = """
ops:
  add.Tensor: {pointwise: add, stub: add_stub}
  clamp: {kernel: {clamp_scalar_stub: clamp_scalar}}
  fill_.Scalar: {impl: ours}
  lgamma: {pointwise: lgamma, stub: lgamma_stub, flags: [bits], scalars: 1}
  max.dim: {impl: ours}
  mm: {impl: ours}
  nonzero: {impl: ours}
  sub.Tensor: {pointwise: add, stub: add_stub}
  view: {native: true}
"""


@pytest.fixture
def generated(project):
    project.table(TABLE)
    project.functors("#define op_add(a, b, s0) ((a) + (s0) * (b))\n  # define cop_add(a, b) 0\n")
    project.functors("#define op_lgamma(a) lgamma(a)\n#define op2_lgamma(a) 0\n", "special.clh")
    assert project.generate() == 0
    return project


def refused(project, capsys, body, functors=""):
    project.table(f"ops:\n{body}\n")
    project.functors(functors)
    assert project.generate() == 1
    assert not project.out.exists()
    return capsys.readouterr().err


def test_unknown_op(project, capsys):
    assert "no_such_op is not in this torch's" in refused(
        project, capsys, "  no_such_op: {impl: ours}"
    )


def test_structured_op_by_another_variant(project, capsys):
    error = refused(project, capsys, "  add.out: {impl: ours}")
    assert "add.out is of a structured group: name it add.Tensor" in error


def test_missing_functor(project, capsys):
    error = refused(
        project, capsys, "  sin: {pointwise: sin, stub: sin_stub}", "#define op_sine 0\n"
    )
    assert "test.yaml:2: sin: functor sin is missing, define op_sin(...)" in error


def test_unknown_stub(project, capsys):
    error = refused(
        project, capsys, "  sin: {pointwise: sin, stub: sine_stub}", "#define op_sin 0\n"
    )
    assert "sin: no header of this torch declares sine_stub" in error


def test_stub_bound_twice(project, capsys):
    body = (
        "  cos: {pointwise: cos, stub: sin_stub}\n"
        "  sin: {kernel: cos, stub: sin_stub}\n"
        "  tan: {pointwise: cos, stub: tan_stub}"
    )
    error = refused(project, capsys, body, "#define op_cos 0\n")
    assert "test.yaml:3: sin: sin_stub is bound to cos at test.yaml:2" in error
    assert "tan" not in error  # one functor behind several stubs is fine


def test_scalars_that_disagree(project, capsys):
    body = (
        "  cos: {pointwise: f, stub: cos_stub, scalars: 1}\n"
        "  sin: {pointwise: f, stub: sin_stub, scalars: 2}"
    )
    assert "gives f 1 scalars" in refused(project, capsys, body, "#define op_f 0\n")


def test_flag_that_the_engine_lacks(project, capsys):
    body = "  sin: {pointwise: f, stub: sin_stub, flags: [no_bool, no_bol]}"
    error = refused(project, capsys, body, "#define op_f 0\n")
    assert "test.yaml:2: sin: csrc/engine/pointwise/pointwise.h has no flag no_bol" in error
    assert "no flag no_bool" not in error


def test_composite_op(project, capsys):
    body = "  kaiser_window.periodic: {kernel: f, stub: kaiser_window_stub}"
    assert "upstream's composite serves every device" in refused(project, capsys, body)
    project.table(f"ops:\n{body.replace('}', ', composite: true}')}\n")
    assert project.generate() == 0
    assert "REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub" in project.text("KernelStubs.cpp")
    assert json.loads(project.text("ops_manifest.json")) == {}


def test_op_that_is_not_composite(project, capsys):
    body = "  sin: {kernel: sin, stub: sin_stub, composite: true}"
    assert "sin is not composite" in refused(project, capsys, body)


def test_op_without_a_cpu_kernel(project, capsys):
    error = refused(project, capsys, "  convolution_overrideable: {native: true}")
    assert "convolution_overrideable can't be native" in error


def test_manifest(generated):
    manifest = json.loads(generated.text("ops_manifest.json"))
    assert manifest["add_.Tensor"] == {
        "group": "add.Tensor",
        "kernel": manifest["add.out"]["kernel"],
        "kind": "pointwise",
        "section": "ops",
        "stubs": {"add_stub": "add"},
    }
    assert manifest["max.dim_max"]["kernel"] == "ocl::native::structured_max_dim_out"
    assert manifest["mm.out"]["kernel"] == "ocl::native::structured_mm_out"
    assert manifest["fill_.Scalar"]["kernel"] == "ocl::native::fill__scalar"
    assert manifest["view"]["kernel"] == "at::native::view"
    assert "nonzero" in manifest and "nonzero.out" not in manifest


def test_manifest_is_what_is_registered(generated):
    registered = generated.all_text("RegisterPrivateUse1_*.cpp").split('m.impl("')[1:]
    names = sorted(text.split('"')[0] for text in registered)
    assert names == sorted(json.loads(generated.text("ops_manifest.json")))


def test_sparse_functions_that_serve_every_device(generated):
    text = generated.text("RegisterSparse.cpp")
    coo, compressed = text.split("TORCH_LIBRARY_IMPL(")[1:]
    assert coo.startswith("aten, SparsePrivateUse1")
    assert compressed.startswith("aten, SparseCsrPrivateUse1")
    assert 'm.impl("sin", OnDevice<static_cast<at::Tensor (*)(const at::Tensor & self)>' in coo
    assert 'm.impl("crow_indices"' in compressed
    # Functions of the CPU alone, and those that ours replace.
    assert 'm.impl("_coalesce"' not in coo and 'm.impl("sparse_mask"' not in coo
    assert 'm.impl("_to_sparse_bsr"' not in compressed


def test_no_trace_of_the_borrowed_key(generated):
    source = generated.all_text("*.cpp")
    assert "xpu" not in source.lower()
    assert "ocl::native::empty_with(" in source and "ocl::native::empty_strided_with(" in source


def test_declarations(generated):
    assert "at::Tensor & fill__scalar(at::Tensor & self" in generated.text("ops/fill.h")
    assert "at::Tensor nonzero(const at::Tensor & self);" in generated.text("ops/nonzero.h")
    mm = generated.text("ops/mm.h")
    assert "#include <ATen/ops/mm_meta.h>" in mm
    assert "struct structured_mm_out : public at::meta::structured_mm {" in mm
    assert "struct structured_max_dim_out" in generated.text("ops/max.h")


def test_stubs(generated):
    stubs = generated.all_text("PointwiseStubs_*.cpp")
    assert stubs.count("REGISTER_PRIVATEUSE1_DISPATCH(add_stub,") == 1
    assert 'Op op_add("add");' in stubs
    # all but bits follow from the functor's file and macros
    names = ("bits", "no_complex", "special", "two_outputs")
    flags = " | ".join(f"ocl::pointwise::flag::{name}" for name in names)
    assert f'Op op_lgamma("lgamma", 1, {flags});' in stubs
    kernels = generated.text("KernelStubs.cpp")
    assert "clamp_scalar_stub_DECLARE_DISPATCH_type::FnPtr> clamp_scalar;" in kernels
    assert "#include <ATen/native/TensorCompare.h>" in kernels


def test_headers_with_clashing_aliases_are_included_together(project):
    project.table(
        "ops:\n"
        "  native_group_norm: {kernel: group_norm, stub: GroupNormKernel}\n"
        "  native_layer_norm: {kernel: layer_norm, stub: LayerNormKernel}\n"
    )
    assert project.generate() == 0
    source = project.text("KernelStubs.cpp")
    for header in ("group_norm", "layer_norm"):
        before, _, after = source.partition(f"#include <ATen/native/{header}.h>")
        assert f"#define forward_fn {header}_forward_fn" in before
        assert after.split("#include")[0].count("#undef forward_fn") == 1


def test_listed_outputs_are_those_written(generated, capsys):
    assert generated.generate("--list-outputs") == 0
    listed = capsys.readouterr().out.split()
    assert sorted(listed) == sorted(str(p) for p in generated.out.rglob("*") if p.is_file())


def test_outputs_are_listed_before_functors_exist(project, capsys):
    project.table("ops:\n  sin: {pointwise: sin, stub: sin_stub}\n")
    assert project.generate("--list-outputs") == 0
    assert "PointwiseStubs_0.cpp" in capsys.readouterr().out


def test_deterministic_and_written_only_when_changed(generated):
    def state():
        return {p: (p.read_text(), p.stat().st_mtime_ns) for p in generated.out.rglob("*.*")}

    for path in generated.out.rglob("*.*"):
        os.utime(path, ns=(1, 1))
    before = state()
    assert generated.generate() == 0
    assert state() == before


def test_an_edit_rewrites_one_shard_and_drops_stale_headers(generated):
    before = {p.name: p.read_text() for p in generated.out.glob("*.cpp")}
    generated.table(TABLE.replace("  mm: {impl: ours}\n", ""))
    assert generated.generate() == 0
    changed = [name for name, text in before.items() if generated.text(name) != text]
    assert len(changed) == 1 and changed[0].startswith("RegisterPrivateUse1_")
    assert not (generated.out / "ops" / "mm.h").exists()
    assert (generated.out / "ops" / "max.h").exists()
