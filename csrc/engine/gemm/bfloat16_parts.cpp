// Products of single precision where the user allows fewer bits and the device multiplies bfloat16
// fast: elements as one or two numbers of 8 bits (kernels/gemm/bfloat16_parts.cl). With two, the
// three largest of the four terms are kept, as cuBLAS and oneDNN do: about 16 bits. See
// torch.set_float32_matmul_precision, "high" and "medium".
#include "engine/gemm/bfloat16_parts.h"

#include <algorithm>
#include <limits>

#include "engine/device_table.h"
#include "engine/gemm/launch.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/tiles.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

const char* refuse(const Plan& plan) {
  if (plan.rounded_terms == 0) return "no single precision that may lose bits to bfloat16";
  const Arguments& p = plan.problem;
  if (std::min({p.m, p.n, p.k}) < kLeastOfParts)
    return "copies of the operands cost more than is won";
  constexpr uint32_t kLongest = uint32_t{1} << 29;  // three times that is a number of 32 bits
  return p.k > kLongest ? "k is long" : nullptr;
}

/// An operand's lines (rows of a, columns of b) as bfloat16, contiguous along k.
class Parts {
 public:
  Parts(const Plan& plan, const char* source, uint64_t stride, uint64_t line_stride,
        uint64_t batch_stride, uint32_t lines, bool second)
      : pitch_(round_up(size_t{plan.problem.k} * static_cast<size_t>(plan.rounded_terms), 8)),
        // An operand that all of the batch share is written once.
        batch_stride_(plan.problem.batch > 1 && batch_stride == 0 ? 0 : lines * pitch_),
        workspace_(lines * pitch_ * 2 * (batch_stride_ == 0 ? 1 : plan.problem.batch)) {
    const uint32_t batch = batch_stride_ == 0 ? 1 : plan.problem.batch;
    write_bfloat16_parts(plan.queue, plan.rounded_terms, second,
                         {source, stride, line_stride, batch_stride, plan.problem.k, lines, batch},
                         workspace_.data(), pitch_);
  }
  const char* data() const { return workspace_.data(); }
  uint64_t pitch() const { return pitch_; }
  uint64_t batch_stride() const { return batch_stride_; }

 private:
  uint64_t pitch_, batch_stride_;
  Workspace workspace_;
};

void run(const Plan& source) {
  const Arguments& p = source.problem;
  const Parts a(source, source.a, p.a.column, p.a.row, p.a.batch, p.m, false);
  const Parts b(source, source.b, p.b.row, p.b.column, p.b.batch, p.n, true);
  Plan plan = source;
  plan.rounded_terms = 0;
  plan.tf32 = false;
  plan.a = a.data();
  plan.b = b.data();
  plan.a_tag = plan.b_tag = "bf16";
  plan.a_size = plan.b_size = 2;
  plan.problem.a = {a.pitch(), 1, a.batch_stride()};
  plan.problem.b = {1, b.pitch(), b.batch_stride()};
  plan.problem.k = plan.problem.split_k = static_cast<uint32_t>(a.pitch());
  run_plan(plan);
}

}  // namespace

void write_bfloat16_parts(Queue& queue, int terms, bool second, const FloatLines& lines, char* out,
                          uint64_t pitch) {
  static const KernelFamily family{"gemm/bfloat16_parts.cl", "gemm_bfloat16_parts"};
  Device& device = queue.device();
  Kernel& kernel = family.get(device, {{"TERMS", terms},
                                       {"SECOND", second},
                                       {"BY_LINE", !reads_by_k(lines.line_stride, lines.stride)}});
  launch(
      kernel, queue,
      NDRange::grid(size_t{lines.length} * lines.lines, lines.batch, group_of_elements(device), 1),
      Pointer{lines.data}, Pointer{out}, cl_ulong{lines.stride}, cl_ulong{lines.line_stride},
      cl_ulong{lines.batch_stride}, lines.length, lines.lines, cl_ulong{pitch});
}

const Implementation bfloat16_parts{"bfloat16_parts", refuse, run};

}  // namespace ocl::gemm
