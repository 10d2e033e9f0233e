// The two halves of the normalisation engine share these: the lists of implementations, and what is
// asked of operands.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <span>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/device.h"

namespace ocl::norm {

using namespace kernel_types;
#include "norm/arguments.clh"

struct RowPlan;
struct ChannelPlan;

extern const std::span<const Implementation<RowPlan>* const> forward_of_rows, backward_of_rows;
extern const std::span<const Implementation<ChannelPlan>* const> of_channels;
extern Engine engine;

/// Whether each operand that is defined begins at a multiple of `width` of its elements.
inline bool begin_aligned(uint32_t width, std::initializer_list<const at::Tensor*> operands) {
  for (const at::Tensor* operand : operands) {
    if (operand->defined() && reinterpret_cast<uintptr_t>(operand->const_data_ptr()) %
                                      (width * operand->element_size()) !=
                                  0) {
      return false;
    }
  }
  return true;
}

/// The operand's address; null if it is undefined.
inline const void* address_of(const at::Tensor& operand) {
  return operand.defined() ? operand.const_data_ptr() : nullptr;
}

/// The tag of a dtype, or `otherwise` for an undefined tensor.
inline const char* tag_or(const at::Tensor& tensor, const char* otherwise) {
  return tensor.defined() ? tag(tensor.scalar_type()) : otherwise;
}

/// Lanes of `dtype` for stretches of `length` elements: no wider than the device likes nor than the
/// stretch.
inline uint32_t vector_width(const Device& device, c10::ScalarType dtype, int64_t length) {
  return vector_lanes(device, c10::elementSize(dtype), length);
}

/// Elements that are worth a CPU's work-item.
inline int64_t elements_per_item(const Device& device) {
  return 4 * device_row(device).item_elements;
}

}  // namespace ocl::norm
