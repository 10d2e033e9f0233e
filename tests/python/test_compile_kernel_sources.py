"""torch.ocl.compile_kernel: sources, the errors of their builds, signatures."""

import pickle
import textwrap
from pathlib import Path

import pytest
import torch

from torch_ocl.source_kernels import signature

compiled = torch.ocl.compile_kernel


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
    called(x[1:], global_size=1)  # by a kernel that calls it
    assert x.tolist() == [1, 1]
    with pytest.raises(ValueError, match="name one of its kernels: the source has .*one"):
        compiled(source)
    with pytest.raises(ValueError, match="no kernel 'three': the source has .*two"):
        compiled(source, "three")
    with pytest.raises(ValueError, match="the source has no kernel"):
        compiled("int f(int x) { return x; }")


def test_a_file_of_this_folder_with_a_byte_order_mark(tmp_path, monkeypatch):
    """Its kernel can be pickled, and is found from another folder."""
    source = "kernel void f(global int* x) { *x = 3; }"
    (tmp_path / "f.cl").write_bytes(source.encode("utf-8-sig"))
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(compiled(Path("f.cl"), "f"))
    monkeypatch.chdir("/")
    x = torch.zeros(1, dtype=torch.int32, device="ocl")
    for kernel in (pickle.loads(pickled), compiled("\ufeff" + source)):
        kernel(x.zero_(), global_size=1)
        assert x.item() == 3


def test_sources_that_are_no_text(tmp_path):
    with pytest.raises(ValueError, match="null character"):
        compiled("kernel void f(global int* x) {}\0")
    with pytest.raises(ValueError, match="no text"):
        compiled("kernel void f(global int* x) {} // \ud800")
    with pytest.raises(ValueError, match=r"pathlib.Path\('kernels/relu.cl'\)"):
        compiled("kernels/relu.cl")
    latin = tmp_path / "latin.cl"
    latin.write_bytes(b"// caf\xe9\nkernel void f(global int* x) {}")
    with pytest.raises(ValueError, match="latin.cl is not UTF-8"):
        compiled(latin)
    with pytest.raises(ValueError, match="latin.cl is not UTF-8"):
        compiled('#include "latin.cl"', options=f"-I {tmp_path}")
    with pytest.raises(TypeError, match="options must be strings, got None"):
        compiled("kernel void f(global int* x) {}", options=None)


def test_words_that_decide_for_drivers_that_do_not_tell():
    """NVIDIA's counts local memory of its own, and crashes over a program without kernels."""
    own = "#define K(T) kernel void f(global T* x) { local T y[4]; *x = y[0]; }\nK(int)"
    plain = own.replace("local T y[4]; ", "").replace("y[0]", "1")
    assert signature.may_have_local_variables(own)
    assert not signature.may_have_local_variables(plain + '// local\n#line 1 "local.cl"')
    assert signature.may_have_local_variables('#include "other.h"')
    assert signature.may_have_kernels(plain, "")
    assert signature.may_have_kernels("K(f)", "-DK=kernel")
    assert signature.may_have_kernels('#include "other.h"', "")
    assert not signature.may_have_kernels('#line 1 "<kernel>"\nint f(int x); /* kernel */', "")
    with pytest.raises(ValueError, match="the source has no kernel"):
        compiled("int f(int x) { return x; }", "f")


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
    kernel(x[1:], 1, global_size=2)
    assert x[:4].tolist() == [0, 1, 1, 0]


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


def test_views_of_declared_kernels():
    source = "kernel void f(global int* x);\nkernel void f(global int* x) { *x = 1; }"
    x = torch.zeros(3, dtype=torch.int32, device="ocl")
    kernel = compiled(source, "f")
    kernel(x[1:], global_size=1)
    assert x.tolist() == [0, 1, 0]
    # Local variables of a called kernel are up to the driver.
    source = (
        "kernel void f(global int* x);\n"
        "kernel void f(global int* x) { local int y[64]; y[get_local_id(0)] = 1; "
        "barrier(CLK_LOCAL_MEM_FENCE); *x = y[get_local_size(0) - 1 - get_local_id(0)]; }"
    )
    with pytest.raises(ValueError, match="local variables.*clone"):
        compiled(source, "f")(x[1:], global_size=1)


GROUP = "__attribute__((reqd_work_group_size(4, 1, 1)))"
VIEWED = [
    "#ifndef T\n#define T int\n#endif\nkernel void f(global T* x, T a) { BODY }",
    "#define KERNEL __kernel\n#define G __global\nint same(int v) { return v; }\n"
    "KERNEL void f(G int* x, int a) { a = same(a); BODY }",
    f"kernel {GROUP} void f(global int* x, int a);\n"
    f"kernel {GROUP} void f(global int* x, int a) {{ BODY }}",
    "#ifdef NOPE\n#define int long\n#endif\nkernel void f(global int* x, int a) { BODY }",
    "kernel void f(global int* x, int a)\n#ifdef NOPE\n;\n#endif\n{ BODY }",
    "#if 0\nkernel void f(global int* x, float a) {}\n#endif\n#define NAME f\n"
    "kernel void NAME (global int* x, int a) { BODY }",
]


@pytest.mark.parametrize("source", VIEWED)
def test_views_of_kernels_that_macros_and_declarations_write(source):
    kernel = compiled(source.replace("BODY", "x[get_global_id(0)] = a;"), options="-DT=int")
    x = torch.zeros(99, dtype=torch.int32, device="ocl")
    kernel(x[1:], 7, global_size=4, local_size=4)
    assert x[:7].tolist() == [0, 7, 7, 7, 7, 0, 0]


def test_a_macro_of_a_branch_that_is_not_taken():
    source = (
        "#ifdef FIXED\n#define float int\n#endif\n"
        "kernel void f(global uint* x, float a) { *x = as_uint(a); }"
    )
    x = torch.zeros(1, dtype=torch.int32, device="ocl")
    compiled(source)(x, 3.0, global_size=1)
    assert x.view(torch.float32).item() == 3.0


def test_a_macro_after_the_kernel():
    source = "kernel void f(global float* x, float a) { *x = a; }\n#define float int\n"
    x = torch.zeros(1, device="ocl")
    compiled(source)(x, 2.5, global_size=1)
    assert x.item() == 2.5


def test_vector_types_by_attribute():
    source = """
      typedef float quad __attribute__((ext_vector_type(4)));
      kernel void f(global float* x, quad a) { *x = a.x + a.w; }"""
    x = torch.zeros(1, device="ocl")
    compiled(source)(x, (1.0, 2.0, 3.0, 4.0), global_size=1)
    assert x.item() == 5.0


@pytest.mark.skipif(torch.ocl.device_count() < 2, reason="there is one device")
def test_types_that_depend_on_the_device():
    source = """
      #ifdef __OPENCL_C_VERSION__
      #define VERSION __OPENCL_C_VERSION__
      #endif
      #ifdef cl_khr_fp16
      typedef half real;
      #else
      typedef float real;
      #endif
      kernel void f(global real* x, real a) { x[get_global_id(0)] += a; }"""
    kernel = compiled(source)
    for index in range(torch.ocl.device_count()):
        half = torch.ocl.get_device_properties(index).has_fp16
        dtype = torch.float16 if half else torch.float32
        x = torch.zeros(8, dtype=dtype, device=f"ocl:{index}")
        kernel(x, 1.0, global_size=4)
        assert x.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


def test_options_that_the_driver_does_not_take():
    with pytest.raises(RuntimeError, match="kernel 'f' does not build"):
        compiled("kernel void f(global int* x) { *x = 1; }", "f", options="-DFOO BAR")


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


@pytest.mark.parametrize(
    "options",
    [
        ("-DN=(1 + 2)",),
        ("-D", "N=(1 + 2)"),
        ('-DN="1 + 2"',),
        "-DN='(1 + 2)'",
        '-D "N=(1 + 2)" -DM',
    ],
)
def test_values_of_options_may_have_blanks(options):
    x = torch.zeros(1, dtype=torch.int32, device="ocl")
    kernel = compiled("kernel void f(global int* x) { *x = N; }", options=options)
    pickle.loads(pickle.dumps(kernel))(x, global_size=1)
    assert x.item() == 3


def test_folders_of_options_may_have_blanks(tmp_path):
    folder = tmp_path / "my headers"
    folder.mkdir()
    (folder / "value.h").write_text("#define V 5\n")
    source = '#include "value.h"\nkernel void f(global int* x) { *x = V; }'
    x = torch.zeros(1, dtype=torch.int32, device="ocl")
    for options in ([f"-I{folder}"], ["-I", str(folder)], f'-I "{folder}"'):
        compiled(source, options=options)(x.zero_(), global_size=1)
        assert x.item() == 5


def test_lines_may_end_as_on_windows():
    kernel = compiled(
        "// a comment\r\nkernel void f(global float* x, \\\r\n float v)\r\n"
        "{\r\n  x[get_global_id(0)] = v;\r\n}\r\n"
    )
    x = torch.zeros(4, device="ocl")
    kernel(x[1:], 3.0, global_size=2)
    assert x.tolist() == [0, 3, 3, 0]


def test_includes_are_read_anew(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "value.h").write_text("#ifndef V\n#define V 1\n#endif\n")
    (tmp_path / "a.h").write_text(
        '#ifndef A\n#define A\n#include "deep/value.h"\n#include "a.h"\n#endif\n'
    )
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


HIDDEN = [
    '#define FILE "m.h"\n#include FILE\n',
    '/* a */ #include "m.h"\n',
    '/*\n*/ #include "m.h"\n',
]


@pytest.mark.parametrize("include", HIDDEN)
def test_includes_that_only_the_compiler_sees_are_read_anew(include, tmp_path):
    x = torch.zeros(1, dtype=torch.int32, device="ocl")
    for value in (1, 2):
        (tmp_path / "m.h").write_text(f"#define V {value}\n")
        source = include + "kernel void f(global int* x) { *x = V; }"
        compiled(source, options=["-I", str(tmp_path)])(x, global_size=1)
        assert x.item() == value


def test_a_file_that_counts_its_readings(tmp_path):
    again = "v++;\n#if !defined(TWICE)\n#ifdef ONCE\n#define TWICE\n#endif\n#define ONCE\n"
    (tmp_path / "again.h").write_text(again + '#include "again.h"\n#endif\n')
    source = 'kernel void f(global int* x) {\nint v = 0;\n#include "again.h"\n*x = v; }'
    x = torch.zeros(1, dtype=torch.int32, device="ocl")
    compiled(source, options=["-I", str(tmp_path)])(x, global_size=1)
    assert x.item() == 3


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
    with pytest.raises(RuntimeError, match=f"test_compile_kernel_sources.py:{line}:"):
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
    with pytest.raises(RuntimeError, match=f"test_compile_kernel_sources.py:{line}:"):
        compiled(ESCAPED)


def line_of(text):
    with open(__file__, encoding="utf-8") as file:
        return next(n for n, line in enumerate(file, 1) if text in line and "line_of" not in line)


def test_build_errors_of_an_f_string():
    kind, name = "float", "x"
    source = f"""kernel void filled(global {kind}* {name}) {{
  if ({name}[0] > 0) {{ {name}[1] = 2; }}
  {name}[0] = missing_{kind};  // of an f-string
}}"""
    with pytest.raises(RuntimeError, match=f"{__file__}:{line_of('// of an f-string')}:"):
        compiled(source)


def test_build_errors_of_a_dedented_string():
    source = textwrap.dedent("""
        kernel void dedented(global float* x) {
            x[0] = missing;  // of a dedented string
        }
    """)
    with pytest.raises(RuntimeError, match=f"{__file__}:{line_of('// of a dedented string')}:"):
        compiled(source)


@pytest.mark.parametrize("name, label", [("made", "<kernel made>:2"), (None, "<kernel>:2")])
def test_build_errors_of_a_source_that_was_made(name, label):
    lines = ["kernel void made(global float* x) {", "  *x = " + "nothing;", "}"]
    with pytest.raises(RuntimeError, match=label):
        compiled("\n".join(lines), name)


def test_build_errors_of_a_source_that_was_made_name_the_call():
    with pytest.raises(RuntimeError) as caught:
        compiled("\n".join(["kernel void f(global float* x) {", "  *x = nothing;", "}"]), "f")
    assert "<kernel f>, compiled at " + __file__ in str(caught.value)


def test_a_file(tmp_path):
    """Its folder is searched for includes, and errors name its lines."""
    (tmp_path / "two.clh").write_text("#define TWO 2\n")
    path = tmp_path / "three.cl"
    path.write_text('#include "two.clh"\nkernel void f(global int* x) {\n  *x = TWO + 1;\n}\n')
    x = torch.zeros((), dtype=torch.int32, device="ocl")
    kernel = torch.ocl.compile_kernel(path)
    for f in (kernel, pickle.loads(pickle.dumps(kernel))):
        f(x.zero_(), global_size=1)
        assert x.item() == 3
    path.write_text("kernel void f(global int* x) {\n  *x = two;\n}\n")
    with pytest.raises(RuntimeError, match=f"{path}:2:") as caught:
        torch.ocl.compile_kernel(path)
    log, _, options = str(caught.value).rpartition("\nOptions: ")
    assert "two" in log and "-D" in options
    with pytest.raises(FileNotFoundError):
        torch.ocl.compile_kernel(tmp_path / "none.cl")


def test_the_second_error_is_the_first():
    for _ in range(2):
        with pytest.raises(RuntimeError, match="does not build"):
            compiled("kernel void f(global float* x) { *x = wrong_twice; }", "f")


def test_bool_and_size_t_are_no_parameters():
    for type_ in ("bool", "size_t"):
        with pytest.raises(RuntimeError, match="does not build"):
            compiled(f"kernel void f({type_} x) {{}}", "f")


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
        (
            "kernel void f(global float x[], local int t[N + 1]) {}",
            ["global float* x", "local int* t"],
        ),
        (
            "kernel void f(int a, \\\n  global \\\nint* b \\\n)\\\n{}",
            ["int a", "global int* b"],
        ),
        ("typedef enum {A, B = 3} E; kernel void f(E a, enum F b) {}", ["int a", "int b"]),
    ],
)
def test_signatures_are_read(source, want):
    assert list(map(str, signature.read_signature(source, "f").parameters)) == want


@pytest.mark.parametrize(
    "source",
    [
        "kernel void g() {}",
        "void f(int a) {}",
        "kernel void f(int a); kernel void f(int a) {}",
        "kernel void f(int a);",
        "kernel void f(ARGS(int)) {}",
        "#define T int\n#undef T\n#define T float\nkernel void f(T T) {}",
        "#ifdef X\nkernel void f(int a) {}\n#endif\n",
        "kernel void f(int a,\n#ifdef X\nint b\n#endif\n) {}",
        "kernel void f(int a[4]) {}",
        "kernel void f(int a",
        "kernel void f(global float*) {}",
        "kernel void f(float) {}",
        "#define M \\\n kernel void f(global float* x) { }\nM",
    ],
)
def test_signatures_that_the_driver_is_asked_for(source):
    with pytest.raises(signature.Unreadable):
        signature.read_signature(source, "f")


# ---- Types with several definitions --------------------------------------------------------------

BRANCHES = """
#ifdef WHOLE
typedef int num;
#else
typedef float num;
#endif
kernel void f(global num* out, num a) { out[get_global_id(0)] = a * 2; }
"""


@pytest.mark.parametrize("options, dtype", [((), torch.float32), (("-DWHOLE",), torch.int32)])
def test_a_typedef_in_branches_is_what_the_compiler_takes(options, dtype):
    kernel = compiled(BRANCHES, options=options)
    x = torch.zeros(4, dtype=dtype, device="ocl")
    kernel(x[1:], 3, global_size=2)
    assert x.tolist() == [0, 6, 6, 0]
    with pytest.raises(TypeError, match="takes torch"):
        kernel(torch.zeros(4, dtype=torch.float16, device="ocl"), 3, global_size=1)
    other = torch.int32 if dtype == torch.float32 else torch.float32
    with pytest.raises(TypeError, match="takes torch"):
        kernel(torch.zeros(4, dtype=other, device="ocl"), 3, global_size=1)


def test_a_wider_typedef_in_branches():
    source = """
    #if PRECISION == 64
    typedef double real;
    #else
    typedef float real;
    #endif
    kernel void fill(global real* x) { x[get_global_id(0)] = 1; }"""
    narrow = torch.zeros(8, device="ocl")
    compiled(source, options="-DPRECISION=32")(narrow, global_size=8)
    assert narrow.tolist() == [1] * 8
    if torch.ocl.get_device_properties().has_fp64:
        kernel = compiled(source, options="-DPRECISION=64")
        wide = torch.zeros(8, dtype=torch.float64, device="ocl")
        kernel(wide, global_size=8)
        assert wide.tolist() == [1] * 8
        with pytest.raises(TypeError, match="takes torch.float64, got torch.float32"):
            kernel(narrow, global_size=4)


def test_a_macro_that_is_left_out_and_a_typedef():
    source = """
    #if 0
    #define real float
    #endif
    typedef int real;
    kernel void f(global real* x) { x[get_global_id(0)] = 7; }"""
    x = torch.zeros(2, dtype=torch.int32, device="ocl")
    compiled(source)(x, global_size=2)
    assert x.tolist() == [7, 7]


def test_several_names_in_a_typedef():
    source = "typedef float A, B;\nkernel void f(global B* x, A a) { *x = a; }"
    x = torch.zeros(1, device="ocl")
    compiled(source)(x, 1.5, global_size=1)
    assert x.item() == 1.5
    with pytest.raises(TypeError, match="takes torch.float32"):
        compiled(source)(x.int(), 1.5, global_size=1)


# ---- Includes ------------------------------------------------------------------------------------


def test_pragma_once_and_includes_in_comments(tmp_path):
    (tmp_path / "a.h").write_text("#pragma once\n/* one */\ntypedef struct { int v; } S;\n")
    (tmp_path / "b.h").write_text('#pragma once\n#include "a.h"\n')
    main = tmp_path / "k.cl"
    main.write_text(
        '#include "a.h"\n#include "b.h"\n/* not this:\n#include "a.h"\n*/\n'
        "kernel void f(global int* x) { S s; s.v = 4; *x = s.v; }"
    )
    x = torch.zeros(1, dtype=torch.int32, device="ocl")
    compiled(main)(x, global_size=1)
    assert x.item() == 4
