#include "engine/pointwise/kernel.h"

#include <algorithm>
#include <bit>

#include "engine/device_table.h"
#include "opencl/device_assert.h"
#include "opencl/kernel_family.h"

namespace ocl::pointwise {

namespace {

// This family serves no access mode in particular: it has no options of its own.
const KernelFamily plain_family{"pointwise/contiguous.cl", "pointwise_contiguous"};

/// Whether the functor, or a copy, builds for a dtype it is written for: then it is the dtype that
/// another build failed for, and not a mistake in the source.
bool builds(Device& device, const Operands& operands, const Op& op, const char* macro,
            const char* tag, bool copy) {
  static constexpr const char* kOut[] = {"OUT0", "OUT1"};
  static constexpr const char* kIn[] = {"IN0", "IN1", "IN2", "IN3", "IN4"};
  DefineList defines;
  defines.add({"OP", macro});
  defines.add({"C", tag});
  defines.add({"WIDTH", 1});
  defines.add({"NOUT", copy ? 1 : operands.outputs});
  defines.add({"NIN", copy ? 1 : operands.inputs});
  defines.add({"NSCALARS", copy ? 0 : operands.op_scalars});
  defines.add({"SCALAR_INPUTS", 0});
  for (int i = 0; i < (copy ? 1 : operands.outputs); ++i) defines.add({kOut[i], tag});
  for (int i = 0; i < (copy ? 1 : operands.inputs); ++i) defines.add({kIn[i], tag});
  if (!copy && (op.flags & flag::special)) defines.add({"NEED_SPECIAL", 1});
  if (operands.complex && copy) defines.add({"NEED_COMPLEX", 1});
  try {
    plain_family.get(device, defines.view()).handle();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Whether the functor has no meaning for the dtype, while both are sound by themselves.
bool is_refusal(Device& device, const Operands& operands, const Op& op) {
  const char* const copy_macro = operands.complex ? "cop_copy" : "op_copy";
  return builds(device, operands, op, copy_macro, operands.compute_tag, true) &&
         (builds(device, operands, op, op.real_macro, "f32", false) ||
          builds(device, operands, op, op.real_macro, "i32", false));
}

}  // namespace

bool should_stream(const Device& device, const Operands& operands, uint64_t moved) {
  if (operands.outputs == operands.count) return false;
  if (moved < 2 * device.properties().last_level_cache) return false;
  for (int i = operands.outputs; i < operands.count; ++i) {
    for (int k = 0; k < operands.outputs; ++k) {
      if (operands.data[i] == operands.data[k]) return false;
    }
  }
  return true;
}

bool is_special(const Device& device, const Operands& operands, const Op& op) {
  if (!(op.flags & flag::special)) return false;
  const bool has_vectors = op.flags & flag::special_float && device.is_cpu();
  return !has_vectors || operands.compute_tag != tag(at::kFloat);
}

/// A CPU wants registers full of the widest dtype. A GPU moves 16 bytes per work-item at most,
/// and only if they are aligned: neighbours then touch neighbouring memory, which is what its
/// bandwidth needs. So a functor that takes one element at a time gets one there.
Access choose_access(const Device& device, const Operands& operands, const Op& op, uint64_t moved,
                     c10::function_ref<bool(int, size_t)> is_aligned) {
  if (operands.complex || operands.has_complex) return {};
  const auto all_aligned = [&](size_t width) {
    for (int i = 0; i < operands.count; ++i) {
      if (!is_aligned(i, width * operands.element_size[i])) return false;
    }
    return true;
  };
  size_t widest = 1;
  for (int i = 0; i < operands.count; ++i) widest = std::max(widest, operands.element_size[i]);
  if (device.is_cpu()) {
    const size_t width = std::min<size_t>(16, 64 / std::max(widest, operands.compute_size));
    const bool streaming = should_stream(device, operands, moved) && all_aligned(width);
    return {static_cast<int>(width), streaming, streaming};
  }
  if (is_special(device, operands, op)) return {};
  const size_t width = std::max<size_t>(1, 16 / widest);
  if (width == 1 || !all_aligned(width)) return {};
  return {static_cast<int>(width), true, false};
}

/// Vectors to a work-item of a CPU where all operands are contiguous: four cache lines of the
/// widest operand. Starting a work-item costs as much as a vector, of which narrow dtypes have only
/// 16 bytes.
int vectors_per_item(const Device& device, const Operands& operands, const Op& op,
                     const Access& access) {
  if (!device.is_cpu() || access.width == 1 || is_special(device, operands, op)) return 1;
  size_t widest = 1;
  for (int i = 0; i < operands.count; ++i) widest = std::max(widest, operands.element_size[i]);
  return static_cast<int>(std::max<size_t>(1, 256 / (access.width * widest)));
}

bool takes_complex_vectors(const Device& device, const Operands& operands, const Op& op) {
  if (!(op.flags & flag::complex_vectors) || !operands.complex || !device.is_cpu()) return false;
  if (operands.dtype != at::kComplexFloat && operands.dtype != at::kComplexDouble) return false;
  return std::all_of(operands.tags.begin(), operands.tags.begin() + operands.count,
                     [&](const char* tag) { return tag == operands.compute_tag; });
}

/// A work-group costs something: a CPU's are larger where every core still gets several, and a
/// GPU starts only so many at a time, which makes fills slow. Two sizes on a CPU whose driver
/// compiles for each; on others also smaller ones, for a CPU runs the work-items past the end too.
/// `vectors`: what a work-item takes.
size_t local_size(const Device& device, size_t items, size_t vectors) {
  if (!device.is_cpu()) return group_of_elements(device);
  const size_t usual = std::max<size_t>(1, group_of_rows(device) / vectors);
  const size_t larger =
      std::max<size_t>(1, static_cast<size_t>(device_row(device).large_group) / vectors);
  if (items < usual && !device.quirks().compiles_at_launch) return std::bit_ceil(items);
  const size_t large = static_cast<size_t>(items_of_cores(device, 2)) * larger;
  const bool fits = larger <= device.properties().max_work_group_size;
  return items >= large && fits ? larger : usual;
}

void common_defines(DefineList& defines, const Device& device, const Operands& operands,
                    const Op& op, const Access& access) {
  static constexpr const char* kOut[] = {"OUT0", "OUT1"};
  static constexpr const char* kIn[] = {"IN0", "IN1", "IN2", "IN3", "IN4"};
  defines.add({"OP", operands.complex ? op.complex_macro : op.real_macro});
  defines.add({"C", operands.compute_tag});
  defines.add({"WIDTH", access.width});
  defines.add({"NOUT", operands.outputs});
  defines.add({"NIN", operands.inputs});
  defines.add({"NSCALARS", operands.op_scalars});
  defines.add({"SCALAR_INPUTS", operands.scalar_mask});
  for (int i = 0; i < operands.outputs; ++i) defines.add({kOut[i], operands.tags[i]});
  for (int i = operands.outputs; i < operands.count; ++i) {
    defines.add({kIn[operands.input_number[i]], operands.tags[i]});
  }
  if (op.flags & flag::special) {
    defines.add({is_special(device, operands, op) ? "NEED_SPECIAL" : "NEED_SPECIAL_FLOAT", 1});
  }
  if (operands.complex) defines.add({"NEED_COMPLEX", 1});
  if (operands.dtype == c10::ScalarType::Half || operands.dtype == c10::ScalarType::BFloat16) {
    defines.add({"HALF", tag(operands.dtype)});
  }
  if (operands.has_float8) {
    defines.add({"NEED_FLOAT8", 1});
    defines.add({"E4M3_ABOVE", e4m3_above()});
  }
  if (access.aligned) defines.add({"ALIGNED_VECTORS", 1});
  if (access.streaming) defines.add({"STREAMING_STORES", 1});
  if (access.vectors > 1) defines.add({"VECTORS", access.vectors});
  if (access.paired) defines.add({"PAIRS", 1});
  if (operands.checked) defines.add({"FAILS", op.check.macro});
  if (operands.wide_quotient) defines.add({"WIDE_QUOTIENT", 1});
  if (operands.rounded_mask != 0) {
    defines.add({"ROUNDINGS", operands.rounded_mask});
    defines.add({"ROUND_TO", storage_tag(operands.dtype)});
  }
}

Kernel& kernel_of(const KernelFamily& family, Device& device, const DefineList& defines,
                  const Operands& operands, const Op& op) {
  try {
    return family.get(device, defines.view());
  } catch (const Error& error) {
    if (error.code() != CL_BUILD_PROGRAM_FAILURE || !is_refusal(device, operands, op)) throw;
    op.raise_refusal(operands.dtype, device);
  }
}

void enqueue(Kernel& kernel, Queue& queue, const NDRange& range, const Operands& operands,
             const Op& op, const Bytes& own) {
  cl_uint index = 0;
  for (int i = 0; i < operands.count; ++i) {
    ocl::detail::set_argument(kernel, index, SvmPointer{operands.data[i]});
  }
  kernel.set_bytes(index++, own.bytes, own.size);
  for (int i = 0; i < operands.total_scalars; ++i) {
    kernel.set_bytes(index++, operands.scalars[i].bytes, operands.scalars[i].size);
  }
  if (operands.checked) {
    kernel.set_buffer(index++, queue.device().asserts().mem());
    kernel.set_value(index++, op.check_site);
  }
  kernel.enqueue(queue, range);
}

}  // namespace ocl::pointwise
