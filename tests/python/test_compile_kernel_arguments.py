"""torch.ocl.compile_kernel: the arguments, which are views, numbers and tensors."""

import ctypes
import math
import struct

import numpy as np
import pytest
import torch

compiled = torch.ocl.compile_kernel
HAS_HALF = torch.ocl.get_device_properties().has_fp16
TYPES = "char uchar short ushort int uint long ulong float double".split()
TYPES += ["half"] * HAS_HALF


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
    for values in (tuple(range(lanes)), range(lanes), np.arange(lanes)):
        kernel(out.zero_(), values, 77, global_size=1)
        assert out.tolist() == [*range(lanes), 77]
    wrong = [1, "ab", [1] * (lanes + 1), [1], dict.fromkeys(range(lanes)), torch.ones(lanes)]
    for value in wrong:
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
    with pytest.raises(ValueError, match="kernel 'f', parameter 'p': a pair has 8 bytes, got 12"):
        kernel(out, bytes(12), global_size=1)


def test_a_struct_is_measured_as_the_compiler_lays_it_out():
    kernel = compiled(
        "struct s { char a; double b; };\n"
        "kernel void f(const struct s p, global double* out, float4 v, struct s q) {\n"
        "  *out = p.b + q.b + v.x;\n"
        "}"
    )
    out = torch.zeros((), dtype=torch.float64, device="ocl")
    one = struct.pack("=b7xd", 1, 1.5)
    kernel(one, out, (1, 2, 3, 4), one, global_size=1)
    assert out.item() == 4
    with pytest.raises(ValueError, match="parameter 'q': a struct s has 16 bytes, got 9"):
        kernel(one, out, (1, 2, 3, 4), struct.pack("=bd", 1, 1.5), global_size=1)


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


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integers_of_the_same_width(bits):
    name = {8: "char", 16: "short", 32: "int", 64: "long"}[bits]
    signed, unsigned = getattr(torch, f"int{bits}"), getattr(torch, f"uint{bits}")
    x = torch.tensor([-1, 2], dtype=signed, device="ocl")
    y = torch.zeros(2, dtype=unsigned, device="ocl")
    kernel = compiled(
        f"kernel void f(global const u{name}* x, global {name}* y) {{\n"
        "  y[get_global_id(0)] = x[get_global_id(0)];\n"
        "}"
    )
    kernel(x, y, global_size=2)
    assert y.cpu().tolist() == [2**bits - 1, 2]


@pytest.mark.parametrize(
    "head", ["global float x[]", "global float \\\n x[4] \\\n", "global float* \\\n restrict x"]
)
def test_views_of_pointers_written_in_other_ways(head):
    kernel = compiled(f"kernel void f({head}, \\\n float v) {{ x[get_global_id(0)] = v; }}")
    x = torch.zeros(4, device="ocl")
    kernel(x[1:], 5.0, global_size=2)
    assert x.tolist() == [0, 5, 5, 0]


def test_enums_are_integers():
    kernel = compiled(
        "typedef enum { RED, GREEN = 7, BLUE } color;\n"
        "kernel void f(global color* x, color c) { x[get_global_id(0)] = c == GREEN ? BLUE : c; }"
    )
    x = torch.zeros(3, dtype=torch.int32, device="ocl")
    kernel(x[1:], 7, global_size=1)
    kernel(x[2:], 0, global_size=1)
    assert x.tolist() == [0, 8, 0]
    with pytest.raises(TypeError, match="it takes an integer"):
        kernel(x, 1.5, global_size=1)


def test_a_long_long_is_refused():
    with pytest.raises((TypeError, RuntimeError), match="a long has 64 bits|does not build"):
        compiled("kernel void f(global int* x, unsigned long long n) { *x = n; }")


def test_sizes_of_other_types(scale):
    numpy = pytest.importorskip("numpy")
    x = torch.ones(4, device="ocl")
    for size in (numpy.int64(4), numpy.array([4]), numpy.array(4), range(4, 5), torch.Size([4])):
        y = torch.zeros(4, device="ocl")
        scale(x, y, 2.0, 4, global_size=size)
        assert y.tolist() == [2, 2, 2, 2]


def test_a_typedef_of_a_pointer():
    kernel = compiled(
        "typedef global float* floats;\nkernel void f(floats x) { x[get_global_id(0)] = 1; }"
    )
    x = torch.zeros(3, device="ocl")
    kernel(x[1:], global_size=2)
    assert x.tolist() == [0, 1, 1]
    with pytest.raises(TypeError, match="parameter 'x': it takes a tensor"):
        kernel(bytes(8), global_size=1)


def test_more_work_items_than_there_are_numbers():
    kernel = compiled("kernel void f(global float* x) {}")
    with pytest.raises(ValueError, match="global_size is too large"):
        kernel(torch.zeros(3, device="ocl"), global_size=(2**31, 2**31, 4))


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


def test_tensors_that_only_hold_others(scale):
    from torch.testing._internal.two_tensor import TwoTensor

    x = torch.ones(4, device="ocl")
    with pytest.raises(TypeError, match="a TwoTensor has no memory of its own"):
        scale(x, TwoTensor(x, x.clone()), 2.0, 4, global_size=4)


def test_compiling_while_tensors_are_fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        kernel = compiled(
            "typedef struct { int a; } S;\nkernel void f(global int* x, S s) { *x = s.a; }"
        )
    x = torch.zeros(1, dtype=torch.int32, device="ocl")
    kernel(x, bytes([5, 0, 0, 0]), global_size=1)
    assert x.item() == 5


def test_arguments_by_name(scale):
    x = torch.ones(4, device="ocl")
    with pytest.raises(TypeError, match="kernel 'scale' takes .* by position, .* got factor, n"):
        scale(x, x, factor=2.0, n=4, global_size=4)


def test_a_trace_without_the_kernel_is_refused(scale):
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x):
        y = torch.empty_like(x)
        scale(x, y, 2.0, 4, global_size=4)
        return y + 1

    with pytest.raises(RuntimeError, match="kernel 'scale' can't be traced: .*custom_op"):
        make_fx(function)(torch.ones(4, device="ocl"))


POINTERS = {
    "global atomic_int*": (torch.int32, torch.float32),
    "global bool*": (torch.bool, torch.float32),
    "global size_t*": (torch.int64, torch.int32),
    "global ptrdiff_t*": (torch.int64, torch.int8),
    "global float4*": (torch.float32, torch.int32),
}


@pytest.mark.parametrize("pointer", POINTERS)
def test_pointers_to_types_that_no_value_has(pointer):
    try:
        kernel = torch.ocl.compile_kernel(f"kernel void f({pointer} z) {{}}", "f")
    except RuntimeError:
        assert "atomic" in pointer  # OpenCL C 2.0
        return
    right, wrong = POINTERS[pointer]
    kernel(torch.ones(16, device="ocl").to(right), global_size=1)
    with pytest.raises(TypeError, match="^kernel 'f', parameter 'z': an? .* pointer takes"):
        kernel(torch.ones(16, device="ocl").to(wrong), global_size=1)


@pytest.mark.parametrize(
    "source",
    [
        "kernel void f(global float (*z)[4], float a) { z[1][0] = a; }",
        "typedef float row[4]; kernel void f(global row* z, float a) { z[1][0] = a; }",
        "typedef __typeof__((float)0) A; kernel void f(global A* z, A a) { z[4] = a; }",
        "typedef __typeof__(float) A; kernel void f(global A* z, A a) { z[4] = a; }",
        "typedef float A, *B; kernel void f(global A* z, A a) { z[4] = a; }",
        "typedef float A, *B; kernel void f(global float* z, A a) { z[4] = a; }",
        "typedef global float gf; kernel void f(gf* z, float a) { z[4] = a; }",
        "typedef global float *gf; kernel void f(gf z, float a) { z[4] = a; }",
    ],
)
def test_declarators(source):
    kernel = torch.ocl.compile_kernel(source, "f")
    x = torch.zeros(8, device="ocl")
    kernel(x, 3.5, global_size=1)
    assert x.tolist() == [0, 0, 0, 0, 3.5, 0, 0, 0]
    with pytest.raises(TypeError, match="takes torch.float32, got torch.int64"):
        kernel(x.long(), 3.5, global_size=1)


def test_a_required_group_of_more_dimensions_than_the_launch():
    source = """kernel __attribute__((reqd_work_group_size(4, 2, 1))) void f(global int* z) {
      z[get_global_id(0)] = get_local_size(1);
    }"""
    kernel, x = torch.ocl.compile_kernel(source), torch.zeros(16, dtype=torch.int32, device="ocl")
    for local in (None, 4):
        with pytest.raises(ValueError, match="'f': reqd_work_group_size asks for"):
            kernel(x, global_size=16, local_size=local)
    kernel(x, global_size=(16, 2))
    assert x.eq(2).all()


def test_messages_are_short():
    kernel = torch.ocl.compile_kernel("kernel void f(global float* z, int n) {}")
    x = torch.zeros(4, device="ocl")
    for wrong in ([0.5] * 100_000, "a" * 100_000, torch.zeros(50_000).untyped_storage()):
        for arguments in ((wrong, 1), (x, wrong)):
            with pytest.raises(TypeError) as raised:
                kernel(*arguments, global_size=1)
            assert len(str(raised.value)) < 400
    x.untyped_storage().resize_(0)
    with pytest.raises(TypeError, match="resized"):
        kernel(x, 1, global_size=1)


def test_a_bool_of_numpy_is_an_integer():
    kernel = torch.ocl.compile_kernel("kernel void f(global float* z, int n) { z[0] = n; }")
    x = torch.zeros(1, device="ocl")
    kernel(x, np.bool_(True), global_size=1)
    assert x.item() == 1


def test_jit_traces_are_refused():
    kernel = torch.ocl.compile_kernel("kernel void f(global float* z) { z[0] = 1; }")

    def call(x):
        kernel(x, global_size=1)
        return x + 1

    with pytest.raises(RuntimeError, match="can't be traced"):
        torch.jit.trace(call, torch.zeros(1, device="ocl"))
