#include "kernels.h"

#include "harness.h"
#include "opencl/program.h"
#include "opencl/kernel_family.h"
#include "opencl/sources.h"

namespace floor1 {

void write_kernels() {
  const std::string root = work_folder + "/kernels/";
  write_file(root + "include/twice.clh", "static inline int twice(int x) { return 2 * x; }\n");
  write_file(root + "include/both.clh",
             "#include \"include/twice.clh\"\n#include \"include/assert.clh\"\n");
  write_file(root + "include/assert.clh", std::string(embedded_kernel("include/assert.clh")));
  write_file(root + "test/near.clh", "#define NEAR 7\n");
  write_file(
      root + "test/fill.cl",
      "#include \"include/twice.clh\"\n#include \"test/near.clh\"\n#include \"include/both.clh\"\n"
      "#ifndef T\n#define T int\n#endif\n#ifndef ADD\n#define ADD 0\n#endif\n"
      "kernel void fill(global T* base, ulong offset, int n, int value) {\n"
      "  global T* out = (global T*)((global char*)base + offset);\n"
      "  const int i = get_global_id(0);\n"
      "  if (i < n) out[i] = (T)(twice(value) + NEAR + ADD + i);\n}\n"
      "kernel void empty(global char* base, ulong offset, int n) {}\n"
      "kernel void null_operand(global int* base, ulong offset, global int* other, ulong o) {\n"
      "  if (get_global_id(0) == 0) base[offset / 4] = other == 0 ? 41 : 40;\n}\n");
  write_file(root + "test/skipped.cl",
             "#if defined(NOWHERE)\n#if 1\n#include \"include/twice.clh\"\n#endif\n#elif 1 && \\\n"
             "    defined(NOT_HERE)\n#endif\nkernel void skipped(global int* out) {\n"
             "  out[0] = undeclared;\n}\n");
  write_file(root + "test/comments.cl",
             "#if 0\n/*\n#endif\n*/\n#include \"include/twice.clh\"\n#endif /* of\nboth */\n"
             "kernel void comments() {}\n");
  write_file(root + "test/other.cl",
             "#include \"include/twice.clh\"\n"
             "kernel void other(global int* base, ulong offset, local int* tmp) {\n"
             "  tmp[get_local_id(0)] = get_local_id(0);\n  barrier(CLK_LOCAL_MEM_FENCE);\n"
             "  base[offset / 4 + get_global_id(0)] = twice(tmp[get_local_size(0) - 1 - "
             "get_local_id(0)]);\n}\n");
  write_file(root + "test/slow.cl",
             "kernel void slow(global float* base, ulong offset, int n) {\n"
             "  float x = get_global_id(0);\n  for (int i = 0; i < n; ++i) x = sin(x) + 1.0f;\n"
             "  base[get_global_id(0)] = x;\n}\n");
  write_file(
      root + "test/math.cl",
      "kernel void math(global float* d, ulong offset, int n) {\n"
      "  const int i = get_global_id(0);\n  if (i >= n) return;\n"
      "  const float a = d[i], b = d[n + i], c = d[2 * n + i];\n"
      "  d[3 * n + i] = a * b + c;\n  d[4 * n + i] = a / b;\n  d[5 * n + i] = sqrt(fabs(a));\n"
      "  d[6 * n + i] = fma(a, b, c);\n}\n");
  write_file(
      root + "test/features.cl",
      "#define BIT(n) bits |= 1 << n;\n"
      "kernel void features(global int* base, ulong offset) {\n  int bits = 0;\n"
      "#ifdef OCL_HAS_FP64\n  BIT(0)\n#endif\n#ifdef OCL_HAS_FP16\n  BIT(1)\n#endif\n"
      "#ifdef OCL_HAS_SUBGROUPS\n  BIT(2)\n  bits += (sub_group_reduce_add(0));\n#endif\n"
      "#ifdef OCL_HAS_INT64_ATOMICS\n  BIT(3)\n#endif\n"
      "#ifdef OCL_HAS_WORK_GROUP_REDUCE\n  BIT(4)\n  bits += work_group_reduce_add(0);\n#endif\n"
      "#ifdef OCL_DEVICE_CPU\n  BIT(5)\n#endif\n#ifdef OCL_DEVICE_GPU\n  BIT(6)\n#endif\n"
      "#ifdef __FAST_RELAXED_MATH__\n  BIT(7)\n#endif\n"
      "  base[offset / 4] = bits;\n}\n");
  write_file(root + "test/checked.cl",
             "#include \"include/both.clh\"\n"
             "kernel void checked(global const long* index, ulong offset, long size, global int* "
             "asserts,\n"
             "                    uint site, global int* out, ulong out_offset) {\n"
             "  const int i = get_global_id(0);\n  const long at = index[offset / 8 + i];\n"
             "  if (check_wrapped_index(at, size, asserts, site)) out[out_offset / 4 + i] = "
             "wrap_index(at, size);\n}\n");
  write_file(root + "test/branches.cl",
             "#ifdef ONE\n#include \"include/twice.clh\"\n#include \"include/twice.clh\"\n"
             "#elif defined(TWO)\n#include \"include/both.clh\"\n#endif\n"
             "#include \"include/twice.clh\"\n#include \"include/both.clh\"\n"
             "kernel void branches(global int* p, ulong o) { p[o / 4] = twice(21); }\n");
  write_file(root + "include/broken.clh",
             "// one\n// two\nint f(void) { return undeclared_name; }\n");
  write_file(
      root + "test/broken.cl",
      "#include \"include/broken.clh\"\nkernel void broken(global int* p) { p[0] = f(); }\n");
  write_file(root + "test/no_include.cl", "\n#include \"include/absent.clh\"\n");
}

const KernelFamily fill_kernel{"test/fill.cl", "fill"};
const KernelFamily empty_kernel{"test/fill.cl", "empty"};
const KernelFamily null_kernel{"test/fill.cl", "null_operand"};
const KernelFamily other_kernel{"test/other.cl", "other"};
const KernelFamily slow_kernel{"test/slow.cl", "slow"};
const KernelFamily math_kernel{"test/math.cl", "math"};
const KernelFamily features_kernel{"test/features.cl", "features"};
const KernelFamily checked_kernel{"test/checked.cl", "checked"};
const KernelFamily broken_kernel{"test/broken.cl", "broken"};
const KernelFamily skipped_kernel{"test/skipped.cl", "skipped"};
const KernelFamily no_include_kernel{"test/no_include.cl", "x"};
const KernelFamily branches_kernel{"test/branches.cl", "branches"};
const KernelFamily absent_kernel{"test/absent.cl", "x"};
const KernelFamily absent_name_kernel{"test/other.cl", "no_such_kernel"};

}  // namespace floor1
