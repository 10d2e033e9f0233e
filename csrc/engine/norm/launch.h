// What the two halves of the normalisation engine share: operands in a kernel's argument struct.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>

#include "engine/dtype.h"
#include "opencl/kernel.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl {

/// The operands of one launch; `Arguments` has offset[]. Operands that are undefined stand for
/// nothing the kernel reads and get the first one's buffer.
template <class Arguments>
struct NormLaunch {
  NormLaunch(Device& device, const Arguments& arguments) : device(device), arguments(arguments) {}

  /// An operand of unknown extent, which may be the largest; nothing for a null `address`.
  NormLaunch& add(const void* address, size_t element_size = 1) {
    if (address != nullptr) work = NDRange::kManyOperations;
    return place(address, element_size);
  }
  NormLaunch& add(const at::Tensor& tensor) {
    if (!tensor.defined()) return place(nullptr, 1);
    if (work != NDRange::kManyOperations) work = std::max(work, 2 * tensor.numel());
    return place(tensor.const_data_ptr(), tensor.element_size());
  }

  /// Whether each operand begins at a multiple of `width` of its elements.
  bool aligned(uint32_t width) const {
    for (int i = 0; i < count; ++i) {
      if (arguments.offset[i] % (width * sizes[i]) != 0) return false;
    }
    return true;
  }

  /// Sets buffers, then `scalars`, then the struct.
  void enqueue(Queue& queue, Kernel& kernel, const NDRange& range,
               std::initializer_list<ScalarArgument> scalars = {}) {
    cl_uint index = 0;
    for (int i = 0; i < count; ++i) kernel.set_buffer(index++, buffers[i]);
    for (const ScalarArgument& scalar : scalars) {
      kernel.set_bytes(index++, scalar.bytes, scalar.size);
    }
    kernel.set_value(index, arguments);
    kernel.enqueue(queue, range.of_work(work));
  }

  Device& device;
  Arguments arguments;
  std::array<cl_mem, 8> buffers{};
  std::array<size_t, 8> sizes{};
  int count = 0;
  int64_t work = 0;  // of the whole launch, by its largest operand (NDRange::work)

 private:
  NormLaunch& place(const void* address, size_t element_size) {
    sizes[count] = element_size;
    if (address == nullptr) {
      buffers[count] = buffers[0];
      arguments.offset[count++] = 0;
      return *this;
    }
    const Location location = device.addresses().find(address);
    buffers[count] = location.mem;
    arguments.offset[count++] = location.offset;
    return *this;
  }
};

/// The tag of a dtype, or `otherwise` for an undefined tensor.
inline const char* tag_or(const at::Tensor& tensor, const char* otherwise) {
  return tensor.defined() ? tag(tensor.scalar_type()) : otherwise;
}

/// Lanes of `dtype` for stretches of `length` elements: no wider than the device likes nor than the
/// stretch.
inline uint32_t norm_width(const Device& device, c10::ScalarType dtype, int64_t length) {
  auto width = static_cast<uint32_t>((device.is_cpu() ? 64 : 16) / c10::elementSize(dtype));
  while (width > 1 && width > length) width /= 2;
  return width;
}

constexpr int64_t kNormElementsPerItem = 16384;  // on a CPU, fewer are not worth a work-item
constexpr size_t kNormGpuLocal = 128;

}  // namespace ocl
