#include "engine/gemm/launch.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "engine/device_table.h"
#include "opencl/ceil_div.h"
#include "runtime/allocator.h"

namespace ocl::gemm {

namespace {

/// Multiplications and additions that take as long as one of NDRange's operations: a lane of the
/// narrowest vectors each.
constexpr int64_t kTermsPerOperation = 4;

}  // namespace

Workspace::Workspace(size_t bytes)
    : memory_(bytes == 0 ? c10::DataPtr() : allocator()->allocate(bytes)) {}

Kernel& get_kernel(const KernelFamily& family, const Plan& plan,
                   std::span<const Define> parameters) {
  constexpr size_t kMost = 24;
  std::array<Define, kMost> defines;
  size_t count = 0;
  const auto add = [&](const Define& define) { defines[count++] = define; };
  add({"C", plan.compute_tag});
  add({"IN0", plan.a_tag});
  add({"IN1", plan.b_tag});
  add({"OUT", plan.out_tag});
  add({"ACTIVATION", plan.activation});
  TORCH_INTERNAL_ASSERT(parameters.size() + count <= kMost);
  for (const Define& define : parameters) add(define);
  return family_with(plan.epilogue, family)
      .get(plan.device, std::span<const Define>(defines).first(count));
}

void launch_gemm(Kernel& kernel, const Plan& plan, const NDRange& range, const void* workspace,
                 std::span<const unsigned char> extra) {
  cl_uint index = 0;
  detail::set_argument(kernel, index, Pointer{plan.a});
  detail::set_argument(kernel, index, Pointer{plan.b});
  detail::set_argument(kernel, index, Pointer{plan.c});
  detail::set_argument(kernel, index, Pointer{plan.out});
  detail::set_argument(kernel, index, Pointer{workspace != nullptr ? workspace : plan.out});
  kernel.set_value(index++, plan.problem);
  kernel.set_bytes(index++, plan.alpha.bytes, plan.alpha.size);
  kernel.set_bytes(index++, plan.beta.bytes, plan.beta.size);
  set_epilogue(kernel, index, plan.epilogue);
  if (const PiecesOfB* pieces = plan.pieces) {
    const auto set = [&](const void* data) {
      detail::set_argument(kernel, index, Pointer{data != nullptr ? data : plan.out});
    };
    set(pieces->second_data);
    set(pieces->third_data);
    kernel.set_value(index++, Pieces{static_cast<uint32_t>(pieces->second),
                                     static_cast<uint32_t>(pieces->third)});
    if (const NormOfA* norm = pieces->norm) {
      set(norm->weight);
      kernel.set_value(index++, Norm{norm->epsilon, norm->shift});
    }
    if (pieces->scales != nullptr) std::ranges::for_each(pieces->scales->data, set);
  }
  if (!extra.empty()) kernel.set_bytes(index++, extra.data(), extra.size());
  const Arguments& p = plan.problem;
  const int64_t results = int64_t{p.m} * p.n;  // written even where there is nothing to sum
  const int64_t work = std::max(results, results * p.k / kTermsPerOperation);
  kernel.enqueue(plan.queue, range.of_work(work * p.batch));
}

std::span<const unsigned char> windows_of(const Plan& plan) {
  if (plan.windows == nullptr) return {};
  return {reinterpret_cast<const unsigned char*>(&plan.windows->arguments),
          sizeof plan.windows->arguments};
}

void copy_lines(const Plan& plan, const char* source, size_t element_size, uint64_t stride,
                uint64_t line_stride, uint64_t batch_stride, uint32_t length, uint32_t lines,
                uint64_t pitch, char* copy) {
  static const KernelFamily family{"gemm/copy_lines.cl", "gemm_copy_lines"};
  const char* bits = element_size == 16 ? "u128" : bits_tag(element_size);
  const bool cpu = plan.device.is_cpu();
  // A GPU's work-item writes 16 bytes.
  const uint64_t most = element_size < 8 ? 16 / element_size : 1;
  const uint64_t width =
      !cpu && stride == 1 && pitch % most == 0 && reinterpret_cast<uintptr_t>(copy) % 16 == 0 ? most
                                                                                              : 1;
  const size_t chunks = ceil_div(uint64_t{length}, width);
  launch(family.get(plan.device, {{"TAG", bits}, {"WIDTH", width}}), plan.queue,
         NDRange::grid(chunks * lines, plan.problem.batch, group_of_lanes(plan.device), 1),
         Pointer{source}, Pointer{copy}, cl_ulong{stride}, cl_ulong{line_stride},
         cl_ulong{batch_stride}, length, lines, cl_ulong{pitch});
}

}  // namespace ocl::gemm
