// Products of single precision by tensor cores, with all 24 bits: an element is a sum of three
// numbers of 8 bits (kernels/gemm/bfloat16x3.cl), and six terms in bfloat16 are added up in single
// precision (EXACT_TERMS of kernels/gemm/tensor_core.cl). Hopper multiplies bfloat16 15
// times as fast, so this takes about 0.6 of the time. Sums are more exact than a chain of fma()'s,
// since k is added up in short pieces.
#include "engine/gemm/bfloat16x3.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "engine/device_table.h"
#include "engine/gemm/launch.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/tiles.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

#include "gemm/bfloat16x3_arguments.clh"

/// How an operand is split: contiguous along k, or along its lines (rows of a, columns of b).
struct Split {
  FloatLines from;
  uint32_t pitch;
  bool along_k;

  Split(const Plan& plan, const char* data, uint64_t k_stride, uint64_t line_stride,
        uint64_t batch_stride, uint32_t lines)
      : along_k(reads_by_k(line_stride, k_stride)) {
    const uint32_t k = plan.problem.k;
    from = {data,
            along_k ? k_stride : line_stride,
            along_k ? line_stride : k_stride,
            batch_stride,
            along_k ? k : lines,
            along_k ? lines : k,
            batch_stride == 0 ? 1 : plan.problem.batch};
    pitch = static_cast<uint32_t>(round_up(size_t{from.length}, size_t{kChunk}));
  }
  uint64_t elements() const { return uint64_t{from.batch} * from.lines * pitch; }
  /// The strides of what is written.
  Strides strides(bool is_a) const {
    const uint64_t k = along_k ? 1 : pitch, line = along_k ? pitch : 1;
    const uint64_t batch = from.batch == 1 ? 0 : uint64_t{from.lines} * pitch;
    return is_a ? Strides{line, k, batch} : Strides{k, line, batch};
  }
};

Split split_a(const Plan& plan) {
  const Arguments& p = plan.problem;
  return {plan, plan.a, p.a.column, p.a.row, p.a.batch, p.m};
}
Split split_b(const Plan& plan) {
  const Arguments& p = plan.problem;
  return {plan, plan.b, p.b.row, p.b.column, p.b.batch, p.n};
}

const char* refuse(const Plan& plan) {
  constexpr uint32_t kLeastSize = 48;
  const Arguments& p = plan.problem;
  for (const char* tag : {plan.a_tag, plan.b_tag, plan.out_tag, plan.compute_tag}) {
    if (std::strcmp(tag, "f32") != 0) return "not of single precision";
  }
  if (plan.out_of_memory) return "there was no memory for the parts";
  if (plan.tf32 || plan.rounded_terms != 0) return "fewer bits will do";
  if (std::min({p.m, p.n, p.k}) < kLeastSize) return "rows, columns or k are few";
  const auto elements = static_cast<double>(split_a(plan).elements() + split_b(plan).elements());
  const double multiplications = static_cast<double>(p.batch) * p.m * p.n * p.k;
  return refuse_bfloat16x3(plan.device, multiplications, elements, 0);
}

void run_in_parts(const Plan& source, const Workspace& a_parts, const Workspace& b_parts) {
  const Split a = split_a(source), b = split_b(source);
  const Bfloat16x3 a_bytes(a.elements()), b_bytes(b.elements());
  write_bfloat16x3(source.queue, a.from, a_parts.data(), a.pitch, a_bytes);
  write_bfloat16x3(source.queue, b.from, b_parts.data(), b.pitch, b_bytes);
  Plan plan = source;
  plan.exact_terms = kExactTerms;
  plan.a = a_parts.data();
  plan.b = b_parts.data();
  plan.a_tag = plan.b_tag = "bf16";
  plan.a_size = plan.b_size = 2;
  plan.problem.a = a.strides(true);
  plan.problem.b = b.strides(false);
  plan.problem.a_part = a_bytes.distance;
  plan.problem.b_part = b_bytes.distance;
  run_again(plan);
}

void run(const Plan& plan) {
  try {
    const Workspace a(Bfloat16x3(split_a(plan).elements()).bytes());
    const Workspace b(Bfloat16x3(split_b(plan).elements()).bytes());
    return run_in_parts(plan, a, b);
  } catch (const c10::OutOfMemoryError&) {
    // Float32's own units need none.
  }
  Plan without = plan;
  without.out_of_memory = true;
  run_again(without);
}

const KernelFamily lines_family{"gemm/bfloat16x3.cl", "gemm_bfloat16x3"};
const KernelFamily turned_family{"gemm/bfloat16x3.cl", "gemm_bfloat16x3_turned"};

}  // namespace

const char* refuse_bfloat16x3(const Device& device, double multiplications, double elements,
                              double copied) {
  const DeviceProperties& properties = device.properties();
  if (!properties.has_fast_bfloat16 || warpgroups_fail()) {
    return "the device isn't known to multiply bfloat16 that much faster";
  }
  // Only one takes such parts.
  const char* const forced = engine.forced();
  if (forced != nullptr && forced != std::string_view(bfloat16x3.name) &&
      forced != std::string_view(tensor_core.name)) {
    return "another kernel is forced";
  }
  if (const char* reason = engine.reason_to_leave_out(tensor_core.name)) return reason;
  const DeviceRow& row = device_row(device);
  const double cost =
      row.x3_launch_cost + row.x3_element_cost * elements + row.x3_copy_cost * copied;
  if (multiplications < cost) return "splitting the operands costs more than is won";
  constexpr double kMostOfMemory = 1.0 / 8;
  if (elements * 6 > kMostOfMemory * static_cast<double>(properties.global_memory)) {
    return "the parts would take much memory";
  }
  return nullptr;
}

void write_bfloat16x3(Queue& queue, const FloatLines& lines, char* out, uint32_t pitch,
                      const Bfloat16x3& parts) {
  Device& device = queue.device();
  launch(lines_family.get(device, {}), queue,
         element_range(device, size_t{pitch} / kChunk * lines.lines * lines.batch),
         Pointer{lines.data}, Pointer{out}, cl_ulong{lines.stride}, cl_ulong{lines.line_stride},
         cl_ulong{lines.batch_stride}, lines.length, lines.lines, lines.batch, pitch,
         cl_ulong{parts.distance});
}

void write_bfloat16x3(Queue& queue, const FloatImages& images, char* out, uint32_t pitch,
                      const Bfloat16x3& parts) {
  const auto tiles = [](int64_t n, int64_t each) { return static_cast<size_t>(ceil_div(n, each)); };
  launch(turned_family.get(queue.device(), {}), queue,
         NDRange::linear(tiles(images.positions, kTurnedPositions) * tiles(pitch, kTurnedChannels) *
                             images.images * kTurnedItems,
                         kTurnedItems),
         Pointer{images.data}, Pointer{out}, images.positions, images.channels, pitch,
         cl_ulong{parts.distance});
}

const Implementation bfloat16x3{"bfloat16x3", refuse, run};

}  // namespace ocl::gemm
