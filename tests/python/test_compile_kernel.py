"""torch.ocl.compile_kernel: arguments, views, errors, kernels within autograd and custom ops."""

import copy
import ctypes
import gc
import math
import pickle
import subprocess
import sys
import threading
import weakref

import pytest
import torch

from torch_ocl import _signature

SCALE = """
kernel void scale(global const float* x, global float* y, float factor, uint n) {
  size_t i = get_global_id(0);
  if (i < n) y[i] = factor * x[i];
}
"""
HAS_HALF = torch.ocl.get_device_properties().has_fp16
TYPES = "char uchar short ushort int uint long ulong float double".split()
TYPES += ["half"] * HAS_HALF


def compiled(source, name=None, **more):
    return torch.ocl.compile_kernel(source, name, **more)


@pytest.fixture(scope="module")
def scale():
    return compiled(SCALE, "scale")


def test_a_kernel_runs(scale):
    x = torch.randn(1000, device="ocl")
    y = torch.empty_like(x)
    assert scale(x, y, 2, 1000, global_size=(1024,), local_size=(64,)) is None
    assert torch.equal(y.cpu(), 2 * x.cpu())
    scale(x, y, 0.5, 1000, global_size=1000)
    assert torch.equal(y.cpu(), 0.5 * x.cpu())
    assert repr(scale) == (
        "<torch.ocl kernel scale(global float* x, global float* y, float factor, uint n)>"
    )


# ---- Views ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 1, 3, 31, 32, 33, 127, 128, 500])
@pytest.mark.parametrize("into", [0, 5, 64])
def test_views_begin_at_their_first_element(scale, start, into):
    x, y = torch.randn(1000, device="ocl"), torch.zeros(1000, device="ocl")
    scale(x[start:], y[into:], 3.0, 200, global_size=200)
    want = torch.zeros(1000)
    want[into : into + 200] = 3 * x.cpu()[start : start + 200]
    assert torch.equal(y.cpu(), want)


@pytest.mark.parametrize("start", [0, 1, 2, 3, 5, 127, 129])
def test_views_at_odd_bytes(start):
    kernel = compiled(
        """kernel void next(constant const uchar* restrict x, volatile global uchar* restrict y) {
             y[get_global_id(0)] = x[get_global_id(0)] + 1;
           }"""
    )
    x = torch.arange(200, dtype=torch.uint8, device="ocl")
    y = torch.zeros(200, dtype=torch.uint8, device="ocl")
    kernel(x[start:], y[7:], global_size=50)
    assert torch.equal(y.cpu()[7:57], x.cpu()[start : start + 50] + 1)
    assert not y.cpu()[:7].any() and not y.cpu()[57:].any()


def test_a_view_far_into_a_large_buffer(scale):
    x = torch.zeros(3 * 2**20, device="ocl")
    part = x[2**21 + 17 :][:100].fill_(1)
    y = torch.empty(100, device="ocl")
    scale(part, y, 2.0, 100, global_size=100)
    assert torch.equal(y.cpu(), torch.full((100,), 2.0))


def test_strides_are_the_kernels_affair(scale):
    x = torch.arange(12.0, device="ocl").reshape(3, 4).t()
    y = torch.empty(12, device="ocl")
    scale(x, y, 1.0, 12, global_size=12)
    assert torch.equal(y.cpu(), torch.arange(12.0))


def test_vectors_need_their_alignment():
    kernel = compiled("kernel void f(global float4* x) { x[get_global_id(0)] = 1; }")
    x = torch.zeros(16, device="ocl")
    kernel(x[4:], global_size=2)
    assert x.tolist() == [0] * 4 + [1] * 8 + [0] * 4
    with pytest.raises(ValueError, match="kernel 'f', parameter 'x': .* 16 bytes of float4"):
        kernel(x[1:], global_size=1)


def test_the_views_kernel_keeps_attributes_locals_and_lines():
    kernel = compiled(
        """#define REAL float
        // kernel void turn(global int* not_this_one);
        kernel __attribute__((reqd_work_group_size(4, 1, 1)))
        void turn(const __global REAL *x /* in */,
                  __global REAL *const restrict y)
        {
          __local REAL tile[4];
          int i = get_local_id(0);
          tile[i] = x[get_global_id(0)];
          barrier(CLK_LOCAL_MEM_FENCE);
          y[get_global_id(0)] = tile[3 - i];
        }"""
    )
    x, y = torch.arange(20.0, device="ocl"), torch.zeros(20, device="ocl")
    kernel(x[1:], y[2:], global_size=8)
    assert y.tolist() == [0, 0, 4, 3, 2, 1, 8, 7, 6, 5] + [0] * 10


def test_empty_tensors_are_null(scale):
    kernel = compiled("kernel void f(global int* out, global float* x) { *out = x == 0; }")
    out = torch.zeros((), dtype=torch.int32, device="ocl")
    for empty in (torch.empty(0, device="ocl"), torch.empty(8, device="ocl")[3:3]):
        kernel(out.zero_(), empty, global_size=1)
        assert out.item() == 1
    scale(empty, empty, 1.0, 0, global_size=0)
    scale(empty, empty, 1.0, 0, global_size=(0,), local_size=(64,))


def test_no_arguments_and_several_dimensions():
    compiled("kernel void nothing(void) {}")(global_size=(2, 3, 4))
    compiled("kernel void nothing() {}")(global_size=1)
    kernel = compiled(
        """kernel void place(global int* x) {
             int i = get_global_id(0), j = get_global_id(1), k = get_global_id(2);
             x[(k * 3 + j) * 2 + i] = 100 * k + 10 * j + i;
           }"""
    )
    x = torch.zeros(4, 3, 2, dtype=torch.int32, device="ocl")
    kernel(x, global_size=[2, 3, 4], local_size=torch.Size([1, 3, 2]))
    assert x[3, 2, 1].item() == 321 and x[1, 0, 1].item() == 101


# ---- Numbers -------------------------------------------------------------------------------------


def limits(type_):
    bits = {"char": 8, "short": 16, "int": 32, "long": 64}[type_.removeprefix("u")]
    return (0, 2**bits - 1) if type_[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


DTYPES = {
    "char": torch.int8,
    "uchar": torch.uint8,
    "short": torch.int16,
    "ushort": torch.uint16,
    "int": torch.int32,
    "uint": torch.uint32,
    "long": torch.int64,
    "ulong": torch.uint64,
    "half": torch.float16,
    "float": torch.float32,
    "double": torch.float64,
}


@pytest.mark.parametrize("type_", TYPES)
def test_scalars_take_the_parameters_type(type_):
    kernel = compiled(f"kernel void f(global {type_}* out, {type_} v) {{ *out = v; }}")
    out = torch.zeros((), dtype=DTYPES[type_], device="ocl")
    if DTYPES[type_].is_floating_point:
        for value in (1.5, -2, True, math.inf, -0.0):
            kernel(out, value, global_size=1)
            assert out.item() == value
        kernel(out, math.nan, global_size=1)
        assert math.isnan(out.item())
        if type_ != "double":
            with pytest.raises(OverflowError, match=f"parameter 'v': 1e\\+300 is out of .*{type_}"):
                kernel(out, 1e300, global_size=1)
        return
    least, most = limits(type_)
    for value in (least, most, 1, True):
        kernel(out, value, global_size=1)
        assert out.item() == value
    for value in (least - 1, most + 1, 10**30):
        with pytest.raises(OverflowError, match=f"parameter 'v': .* out of the range of {type_}"):
            kernel(out, value, global_size=1)
    for value in (1.0, "1", None, 1j, out):
        with pytest.raises(TypeError, match="kernel 'f', parameter 'v'"):
            kernel(out, value, global_size=1)


@pytest.mark.parametrize("lanes", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("type_", ["float", "uchar", "long"])
def test_vectors_take_sequences(type_, lanes):
    kernel = compiled(
        f"kernel void f(global {type_}* out, {type_}{lanes} v, int after) {{"
        f"  vstore{lanes}(v, 0, out); out[{lanes}] = after; }}"
    )
    out = torch.zeros(lanes + 1, dtype=DTYPES[type_], device="ocl")
    kernel(out, tuple(range(lanes)), 77, global_size=1)
    assert out.tolist() == [*range(lanes), 77]
    for value in (1, "ab", [1] * (lanes + 1), [1]):
        with pytest.raises(TypeError, match="parameter 'v'"):
            kernel(out, value, 0, global_size=1)


@pytest.mark.parametrize(
    "written, type_",
    [
        ("unsigned int", "uint"),
        ("unsigned", "uint"),
        ("const unsigned char", "uchar"),
        ("signed char", "char"),
        ("long int", "long"),
        ("unsigned long", "ulong"),
        ("real", "float"),
        ("T", "short"),
        ("U", "int"),
        ("V", "float4"),
        ("private float", "float"),
    ],
)
def test_types_by_other_names(written, type_):
    source = f"typedef float real;\n#define U int\nkernel void f(global int* x, {written} v) {{}}"
    kernel = compiled(source, options=["-DT=short", "-D V=float4"])
    assert [(p.name, p.type) for p in kernel.parameters] == [("x", "int"), ("v", type_)]


def test_half_numbers_are_exact():
    if not HAS_HALF:
        return
    kernel = compiled("kernel void f(global half* out, half v) { *out = v; }")
    out = torch.zeros((), dtype=torch.float16, device="ocl")
    kernel(out, 0.1, global_size=1)
    assert out.item() == torch.tensor(0.1, dtype=torch.float16).item()


def test_numbers_of_numpy():
    numpy = pytest.importorskip("numpy")
    kernel = compiled("kernel void f(global float* out, float a, int b) { *out = a + b; }")
    out = torch.zeros((), device="ocl")
    kernel(out, numpy.float32(0.5), numpy.int64(3), global_size=1)
    assert out.item() == 3.5


def test_structs_are_bytes():
    class Pair(ctypes.Structure):
        _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float)]

    kernel = compiled(
        "typedef struct { int a; float b; } pair;\n"
        "kernel void f(global float* out, pair p) { *out = p.a + p.b; }"
    )
    out = torch.zeros((), device="ocl")
    kernel(out, Pair(2, 0.5), global_size=1)
    assert out.item() == 2.5
    kernel(out, bytes(Pair(3, 0.5)), global_size=1)
    assert out.item() == 3.5
    with pytest.raises(TypeError, match="parameter 'p': it takes the bytes of a pair"):
        kernel(out, 3.0, global_size=1)


# ---- Tensors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "type_, dtype",
    [
        *((t, DTYPES[t]) for t in TYPES),
        ("uchar", torch.bool),
        ("char", torch.bool),
        ("ushort", torch.bfloat16),
        ("uchar", torch.float8_e4m3fn),
        ("float2", torch.complex64),
        ("double2", torch.complex128),
        ("int4", torch.int32),
        ("void", torch.int64),
        ("struct s", torch.float64),
    ],
)
def test_dtypes(type_, dtype):
    size = "1" if type_ == "void" else f"sizeof({type_})"
    kernel = compiled(
        "struct s { double a; };\n"
        f"kernel void f(global {type_}* x, global int* size) {{ *size = {size}; }}"
    )
    size = torch.zeros((), dtype=torch.int32, device="ocl")
    kernel(torch.zeros(8, dtype=dtype, device="ocl"), size, global_size=1)
    assert size.item() == 1 if type_ == "void" else size.item() % dtype.itemsize == 0
    if type_ in ("void", "struct s"):
        return
    for other in (torch.float32, torch.int64, torch.complex64, torch.bool):
        wrong = torch.zeros(8, dtype=other, device="ocl")
        is_base = other == torch.float32 and type_ == "float2"  # two of them are one float2
        if other.itemsize != dtype.itemsize and not is_base:
            with pytest.raises(
                TypeError, match=f"parameter 'x': a {type_} pointer takes .*{other}"
            ):
                kernel(wrong, size, global_size=1)


def test_complex_numbers_are_pairs():
    kernel = compiled(
        "kernel void f(global float2* x, float2 z) { x[get_global_id(0)].y += z.x + 10 * z.y; }"
    )
    x = torch.tensor([1 + 2j, 3 - 4j], device="ocl")
    kernel(x, 1 + 2j, global_size=2)
    assert x.tolist() == [1 + 23j, 3 + 17j]
    with pytest.raises(ValueError, match="parameter 'x': .*resolve_conj"):
        kernel(x.conj(), 0j, global_size=2)


def test_what_is_no_tensor_of_the_device(scale):
    x = torch.zeros(4, device="ocl")
    for wrong in (torch.zeros(4), torch.zeros(4, device="meta"), torch.tensor(1.0)):
        with pytest.raises(ValueError, match="kernel 'scale', parameter 'x': .* on (cpu|meta)"):
            scale(wrong, x, 1.0, 4, global_size=4)
    for wrong in (1.0, None, [1.0], "x", torch.ocl.local_memory(4), b"1234"):
        with pytest.raises(TypeError, match="kernel 'scale', parameter 'y': it takes a tensor"):
            scale(x, wrong, 1.0, 4, global_size=4)
    with pytest.raises(TypeError, match="strided"):
        scale(torch.sparse_coo_tensor(x.long()[None], x), x, 1.0, 4, global_size=4)


def test_the_number_of_arguments(scale):
    x = torch.zeros(4, device="ocl")
    for arguments in ((), (x,), (x, x, 1.0, 4, 5)):
        with pytest.raises(TypeError, match=rf"takes 4 arguments .*uint n\), got {len(arguments)}"):
            scale(*arguments, global_size=4)


def test_tensors_that_require_grad_and_scalars(scale):
    x = torch.ones(4, device="ocl", requires_grad=True)
    y = torch.empty(4, device="ocl")
    scale(x, y, 2.0, 4, global_size=4)
    assert y.tolist() == [2] * 4 and not y.requires_grad
    scale(torch.nn.Parameter(x.detach()), y, 3.0, 4, global_size=4)
    assert y.tolist() == [3] * 4
    out = torch.zeros((), device="ocl")
    scale(torch.tensor(4.0, device="ocl"), out, 0.5, 1, global_size=1)
    assert out.item() == 2


# ---- Sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes, local, error",
    [
        (-1, None, ValueError),
        ((4, -1), None, ValueError),
        ((), None, ValueError),
        ((1, 1, 1, 1), None, ValueError),
        (2.0, None, TypeError),
        ("4", None, TypeError),
        (2**63, None, ValueError),
        (4, 0, ValueError),
        (4, -4, ValueError),
        (4, (2, 2), ValueError),
        (4, 3, ValueError),
        (2**40, 2**40, ValueError),
        ((2**12, 2**12), (2**12, 2**12), ValueError),
        (None, None, TypeError),
    ],
)
def test_sizes_that_make_no_sense(scale, sizes, local, error):
    x = torch.zeros(4, device="ocl")
    with pytest.raises(error, match="^kernel 'scale': "):
        scale(x, x, 1.0, 0, global_size=sizes, local_size=local)


def test_a_required_local_size():
    kernel = compiled(
        """kernel __attribute__((reqd_work_group_size(8, 1, 1))) void f(global int* x) {
             x[get_global_id(0)] = get_local_size(0);
           }"""
    )
    x = torch.zeros(16, dtype=torch.int32, device="ocl")
    kernel(x, global_size=16)
    assert x.tolist() == [8] * 16
    with pytest.raises(ValueError, match=r"reqd_work_group_size asks for \[8, 1, 1\], got \[4\]"):
        kernel(x, global_size=16, local_size=4)
    with pytest.raises(ValueError, match="not a multiple"):
        kernel(x, global_size=12)


def test_local_memory():
    kernel = compiled(
        """kernel void turn(global int* x, local int* t, local float4* u) {
             int i = get_local_id(0), n = get_local_size(0);
             t[i] = x[get_global_id(0)];
             u[i] = (float4)(i);
             barrier(CLK_LOCAL_MEM_FENCE);
             x[get_global_id(0)] = t[n - 1 - i] + (int)u[n - 1].x;
           }"""
    )
    x = torch.arange(8, dtype=torch.int32, device="ocl")
    local = torch.ocl.local_memory
    kernel(x, local(16), local(64), global_size=8, local_size=4)
    assert x.tolist() == [6, 5, 4, 3, 10, 9, 8, 7]
    with pytest.raises(TypeError, match="parameter 't': it takes torch.ocl.local_memory"):
        kernel(x, 16, local(64), global_size=8, local_size=4)
    with pytest.raises(ValueError, match="kernel 'turn': it needs .* bytes of local memory"):
        kernel(x, local(2**30), local(64), global_size=8, local_size=4)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            local(wrong)
    with pytest.raises(TypeError):
        local(1.5)


# ---- Sources -------------------------------------------------------------------------------------


def test_several_kernels_in_one_source():
    source = """
      kernel void one(global int* x) { *x = 1; }
      kernel void two(global int* x, int v) { *x = 2 + v; }
      kernel void both(global int* x) { one(x); x += 1; two(x, 5); }"""
    x = torch.zeros(2, dtype=torch.int32, device="ocl")
    compiled(source, "both")(x, global_size=1)
    assert x.tolist() == [1, 7]
    compiled(source, "two")(x, 1, global_size=1)
    assert x.tolist() == [3, 7]
    called = compiled(source, "one")
    called(x, global_size=1)
    assert x.tolist() == [1, 7]
    with pytest.raises(ValueError, match="another kernel calls this one"):
        called(x[1:], global_size=1)
    with pytest.raises(ValueError, match="name one of its kernels: the source has .*one"):
        compiled(source)
    with pytest.raises(ValueError, match="no kernel 'three': the source has .*two"):
        compiled(source, "three")
    with pytest.raises(ValueError, match="the source has no kernel"):
        compiled("int f(int x) { return x; }")


MACROS = """
#define KERNEL(name, T) \\
  kernel void name(global T* x, T v) { x[get_global_id(0)] = v; }
KERNEL(of_float, float)
KERNEL(of_int, int)
"""


def test_kernels_that_macros_make():
    kernel = compiled(MACROS, "of_int")
    x = torch.zeros(200, dtype=torch.int32, device="ocl")
    kernel(x[32:], 7, global_size=4)  # 128 bytes
    assert x[30:38].tolist() == [0, 0, 7, 7, 7, 7, 0, 0]
    with pytest.raises(TypeError, match="parameter 'v'"):
        kernel(x, 1.5, global_size=1)
    with pytest.raises(ValueError, match="a macro writes them.*clone"):
        kernel(x[1:], 1, global_size=1)


def test_types_that_depend_on_conditions():
    source = """
    #ifdef WIDE
    #define T double
    #else
    #define T int
    #endif
    kernel void f(global T* x, T v) { *x = v; }"""
    x = torch.zeros(1, dtype=torch.int32, device="ocl")
    compiled(source)(x, 3, global_size=1)
    assert x.item() == 3
    wide = compiled(source, options="-DWIDE")
    with pytest.raises(TypeError, match="a double pointer"):
        wide(x, 3, global_size=1)


def test_images_are_refused():
    with pytest.raises(TypeError, match="kernel 'f', parameter 'im': .*image2d_t"):
        compiled("kernel void f(read_only image2d_t im, sampler_t s) {}")


def test_options_and_language_versions():
    source = "kernel void f(global int* x) { x[0] = N; x[1] = __OPENCL_C_VERSION__; }"
    x = torch.zeros(2, dtype=torch.int32, device="ocl")
    compiled(source, options=("-DN=5", "-cl-std=CL1.2"))(x, global_size=1)
    assert x.tolist() == [5, 120]
    compiled(source, options="-DN=6 -cl-fast-relaxed-math")(x, global_size=1)
    assert x[0].item() == 6
    for wrong in (3, [3]):
        with pytest.raises(TypeError):
            compiled(source, options=wrong)
    with pytest.raises(TypeError, match="source must be a string"):
        compiled(b"kernel void f() {}")


def test_includes_are_read_anew(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "value.h").write_text("#ifndef V\n#define V 1\n#endif\n")
    (tmp_path / "a.h").write_text('#include "deep/value.h"\n#include "a.h"\n')
    source = '#include "a.h"\n#include <a.h>\nkernel void f(global int* x) { *x = V; }'
    x = torch.zeros((), dtype=torch.int32, device="ocl")
    compiled(source, options=f"-I{tmp_path}")(x, global_size=1)
    assert x.item() == 1
    (tmp_path / "deep" / "value.h").write_text("#define V 2\n#undef W\n")
    source = source.replace("#include <a.h>\n", "")
    compiled(source, options=["-I", str(tmp_path)])(x, global_size=1)
    assert x.item() == 2
    (tmp_path / "deep" / "value.h").write_text("#define V 3\n\nint broken = ;\n")
    with pytest.raises(RuntimeError, match=r"value\.h:3"):
        compiled(source, options=f"-I{tmp_path}")
    with pytest.raises(RuntimeError, match="kernel 'f' does not build"):
        compiled(source.replace("a.h", "missing.h"), "f", options=f"-I{tmp_path}")


def test_unicode_in_comments_and_strings():
    kernel = compiled("// größer als 0 — ✓\nkernel void f(global int* x /* é) */) { *x = 4; }")
    x = torch.zeros(9, dtype=torch.int32, device="ocl")
    kernel(x[1:], global_size=1)
    assert x.tolist() == [0, 4] + [0] * 7


# ---- Build errors --------------------------------------------------------------------------------


def test_build_errors_name_the_line_of_this_file():
    with pytest.raises(RuntimeError, match="kernel 'broken' does not build") as caught:
        compiled(
            """
            kernel void broken(global float* x) {
              x[0] = unknown_name;  // this line
            }
            """,
            "broken",
        )
    with open(__file__, encoding="utf-8") as file:
        line = next(n for n, text in enumerate(file, 1) if "// this line" in text)
    assert f"{__file__}:{line}:" in str(caught.value)
    assert "unknown_name" in str(caught.value)


ELSEWHERE = """kernel void elsewhere(global float* x) {
  int unused;
  x[0] = 1
}"""


def test_build_errors_of_a_string_that_stands_elsewhere():
    with open(__file__, encoding="utf-8") as file:
        line = next(n for n, text in enumerate(file, 1) if text == "  x[0] = 1\n")
    with pytest.raises(RuntimeError, match=f"test_compile_kernel.py:{line}:"):
        compiled(ELSEWHERE)


ESCAPED = """#define TWICE(x) \\
  (2 * (x))
kernel void escaped(global float* x) {
  printf("%f\\n", TWICE(x[0]));
  x[0] = not_there;
}"""


def test_build_errors_of_a_string_with_escapes():
    with open(__file__, encoding="utf-8") as file:
        line = next(n for n, text in enumerate(file, 1) if text == "  x[0] = not_there;\n")
    with pytest.raises(RuntimeError, match=f"test_compile_kernel.py:{line}:"):
        compiled(ESCAPED)


@pytest.mark.parametrize("name, label", [("made", "<kernel made>:2"), (None, "<kernel>:2")])
def test_build_errors_of_a_source_that_was_made(name, label):
    lines = ["kernel void made(global float* x) {", "  *x = " + "nothing;", "}"]
    with pytest.raises(RuntimeError, match=label):
        compiled("\n".join(lines), name)


def test_the_second_error_is_the_first():
    for _ in range(2):
        with pytest.raises(RuntimeError, match="does not build"):
            compiled("kernel void f(global float* x) { *x = wrong_twice; }", "f")


def test_bool_and_size_t_are_no_parameters():
    for type_ in ("bool", "size_t"):
        with pytest.raises(RuntimeError, match="does not build"):
            compiled(f"kernel void f({type_} x) {{}}", "f")


# ---- Streams, threads, processes, devices --------------------------------------------------------


def test_it_runs_on_the_current_stream():
    kernel = compiled("kernel void f(global int* x, int v) { x[get_global_id(0)] += v; }")
    x = torch.zeros(1 << 16, dtype=torch.int32, device="ocl")
    torch.ocl.synchronize()
    stream = torch.ocl.Stream()
    with torch.ocl.stream(stream):
        for v in range(100):
            kernel(x, v, global_size=x.numel())
    stream.synchronize()
    assert (x.cpu() == sum(range(100))).all()


def test_memory_may_go_before_the_kernel_ran(scale):
    want = torch.full((1 << 16,), 3.0)
    for _ in range(20):
        y = torch.empty(1 << 16, device="ocl")
        scale(torch.full((1 << 16,), 1.5, device="ocl"), y, 2.0, 1 << 16, global_size=1 << 16)
        torch.zeros(1 << 16, device="ocl")
        assert torch.equal(y.cpu(), want)
    torch.ocl.empty_cache()


def test_threads_share_a_kernel(scale):
    results = {}

    def work(factor):
        x = torch.arange(1000.0, device="ocl")
        for shift in range(50):
            y = torch.zeros(1000, device="ocl")
            scale(x[shift:], y, float(factor), 900, global_size=900)
            if not torch.equal(y.cpu()[:900], factor * (torch.arange(900.0) + shift)):
                results[factor] = shift

    threads = [threading.Thread(target=work, args=(factor,)) for factor in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not results


def test_a_forked_child_gets_an_error(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, torch\n"
        "k = torch.ocl.compile_kernel('kernel void f(global int* x) { *x = 1; }')\n"
        "x = torch.zeros(1, dtype=torch.int32, device='ocl')\n"
        "k(x, global_size=1)\n"
        "torch.ocl.synchronize()\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        k(x, global_size=1)\n"
        "    except RuntimeError as error:\n"
        "        os._exit(0 if 'spawn' in str(error) else 1)\n"
        "    os._exit(2)\n"
        "assert os.wait()[1] == 0\n"
        "assert x.item() == 1\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=120)


@pytest.mark.parametrize("index", range(torch.ocl.device_count()))
def test_it_runs_where_its_tensors_are(scale, index):
    x = torch.ones(8, device=f"ocl:{index}")
    y = torch.zeros(9, device=f"ocl:{index}")[1:]
    scale(x, y, 2.0, 8, global_size=8)
    assert y.tolist() == [2] * 8
    if index:
        with pytest.raises(ValueError, match="parameter 'y': its tensor is on ocl:0, .* ocl:"):
            scale(x, torch.ones(8, device="ocl:0"), 1.0, 8, global_size=8)


def test_copies_and_pickles(scale):
    module = torch.nn.Identity()
    module.kernel = scale
    x, y = torch.ones(4, device="ocl"), torch.empty(4, device="ocl")
    for kernel in (copy.deepcopy(module).kernel, pickle.loads(pickle.dumps(scale))):
        kernel(x, y.zero_(), 2.0, 4, global_size=4)
        assert y.tolist() == [2] * 4


def test_the_program_comes_from_the_cache(scale):
    before = torch.ocl.program_stats()
    compiled(SCALE, "scale")
    assert torch.ocl.program_stats() == before


# ---- Autograd and torch.compile ------------------------------------------------------------------

RELU = """
kernel void relu(global const float* x, global float* y) {
  size_t i = get_global_id(0);
  y[i] = fmax(x[i], 0.0f);
}
kernel void relu_backward(global const float* g, global const float* x, global float* gx) {
  size_t i = get_global_id(0);
  gx[i] = x[i] > 0 ? g[i] : 0;
}
"""
relu_kernel = compiled(RELU, "relu")
relu_backward_kernel = compiled(RELU, "relu_backward")


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        relu_kernel(x, y, global_size=x.numel())
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        gx = torch.empty_like(x)
        relu_backward_kernel(g.contiguous(), x, gx, global_size=x.numel())
        return gx


@torch.library.custom_op("torch_ocl_test::relu", mutates_args=())
def relu_op(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    relu_kernel(x, y, global_size=x.numel())
    return y


@torch.library.custom_op("torch_ocl_test::relu_backward", mutates_args=())
def relu_backward_op(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    gx = torch.empty_like(x)
    relu_backward_kernel(g, x, gx, global_size=x.numel())
    return gx


@relu_op.register_fake
def _(x):
    return torch.empty_like(x)


@relu_backward_op.register_fake
def _(g, x):
    return torch.empty_like(x)


relu_op.register_autograd(
    lambda ctx, g: relu_backward_op(g.contiguous(), ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def gradients(function, x):
    x = x.detach().clone().requires_grad_()
    y = function(x)
    (y * y).sum().backward()
    return y.detach().cpu(), x.grad.cpu()


@pytest.mark.parametrize("function", [Relu.apply, relu_op], ids=["Function", "custom_op"])
@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_autograd_and_compile(function, backend):
    def program(x):
        return function(x * 2) + 1

    torch._dynamo.reset()
    run = program if backend is None else torch.compile(program, backend=backend)
    x = torch.linspace(-2, 3, 30)
    want = gradients(lambda x: torch.relu(x * 2) + 1, x)
    for _ in range(2):
        for got, expected in zip(gradients(run, x.to("ocl")), want, strict=True):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_custom_op_compiles_without_breaks(backend):
    torch._dynamo.reset()
    run = torch.compile(lambda x: relu_op(x) * 2, backend=backend, fullgraph=True)
    x = torch.linspace(-2, 3, 30)
    got, want = gradients(run, x.to("ocl")), gradients(lambda x: torch.relu(x) * 2, x)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_bare_kernel_breaks_the_graph(backend):
    torch._dynamo.reset()

    def program(x):
        y = torch.empty_like(x)
        relu_kernel(x + 1, y, global_size=x.numel())
        return y * 2

    x = torch.linspace(-2, 3, 30, device="ocl")
    run = torch.compile(program, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(run(x).cpu(), torch.relu(x.cpu() + 1) * 2)


def test_the_custom_op_passes_upstreams_checks():
    x = torch.linspace(-2, 3, 30, device="ocl", requires_grad=True)
    # The fourth of them knows upstream's own devices only.
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(relu_op, (x,), test_utils=tests)


def test_fake_tensors_are_refused_with_advice():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(4, device="ocl")
        with pytest.raises(TypeError, match="custom_op"):
            relu_kernel(x, x, global_size=4)


def test_transforms_are_refused_by_name():
    with pytest.raises(TypeError, match="kernel 'relu', parameter 'x': .* storage"):
        torch.vmap(lambda x: relu_kernel(x, x, global_size=4))(torch.ones(2, 4, device="ocl"))


def test_what_the_caller_holds_is_not_kept():
    class Held:
        pass

    def compile_beside():
        held = Held()
        return compiled(SCALE, "scale"), weakref.ref(held)

    kernel, held = compile_beside()
    gc.collect()
    assert held() is None and kernel.name == "scale"


# ---- Signatures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, want",
    [
        ("kernel void f(){}", []),
        ("__kernel void f ( void ) {}", []),
        ("void kernel f(int a) {}", ["int a"]),
        (
            "kernel void\nf(__constant float *restrict x, __local int *t)\n{}",
            ["constant float* x", "local int* t"],
        ),
        (
            "kernel void f(global\n  unsigned\n  char * x // (\n, float const y) {}",
            ["global uchar* x", "float y"],
        ),
        ("kernel void f(global atomic_int* x) {}", ["global atomic_int* x"]),
        (
            "kernel void f(int a __attribute__((unused))) __attribute__((vec_type_hint(int))) {}",
            ["int a"],
        ),
        ("float g(float f) { return f; } kernel void f(struct s a) {}", ["struct s a"]),
    ],
)
def test_signatures_are_read(source, want):
    assert list(map(str, _signature.read_signature(source, "f").parameters)) == want


@pytest.mark.parametrize(
    "source",
    [
        "kernel void g() {}",
        "void f(int a) {}",
        "kernel void f(int a); kernel void f(int a) {}",
        "kernel void f(int a);",
        "kernel void f(ARGS(int)) {}",
        "#define T int\n#undef T\n#define T float\nkernel void f(T a) {}",
        "kernel void f(int a,\n#ifdef X\nint b\n#endif\n) {}",
        "kernel void f(int a[4]) {}",
        "kernel void f(int a",
    ],
)
def test_signatures_that_the_driver_is_asked_for(source):
    with pytest.raises(_signature.Unreadable):
        _signature.read_signature(source, "f")
