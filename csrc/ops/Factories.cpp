#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/Factories.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>

#include "engine/dtype.h"
#include "opencl/platform.h"
#include "ops/_efficientzerotensor.h"
#include "ops/empty.h"
#include "ops/empty_strided.h"
#include "ops/record_stream.h"
#include "ops/resize.h"
#include "ops/set.h"
#include "runtime/allocator.h"
#include "runtime/device_guard.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

constexpr c10::DispatchKeySet kKeySet{c10::DispatchKey::PrivateUse1};

c10::Device resolve(std::optional<c10::Device> requested) {
  const c10::DeviceIndex index =
      requested && requested->has_index() ? requested->index() : current_device();
  return {kDeviceType, index};
}

/// As upstream: uninitialised memory shows as NaN or the largest integer under
/// torch.use_deterministic_algorithms(True).
at::Tensor filled_if_deterministic(at::Tensor tensor) {
  at::Context& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() &&
                   context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::Layout::Strided,
              "ocl: only strided tensors can be made, not ", c10::layout_or_default(layout));
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

}  // namespace

at::Tensor empty_memory_format(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  const c10::Device target = resolve(device);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  check_dtype(ocl::device(target.index()), type);
  const DeviceGuard guard(target);
  return filled_if_deterministic(
      at::detail::empty_generic(sizes, allocator(), kKeySet, type, memory_format));
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::Device target = resolve(device);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  check_dtype(ocl::device(target.index()), type);
  const DeviceGuard guard(target);
  return filled_if_deterministic(
      at::detail::empty_strided_generic(sizes, strides, allocator(), kKeySet, type));
}

at::Tensor empty_with(c10::IntArrayRef sizes, const c10::TensorOptions& options) {
  return empty_memory_format(sizes, c10::typeMetaToScalarType(options.dtype()),
                             options.layout_opt(), options.device_opt(),
                             options.pinned_memory_opt(), options.memory_format_opt());
}

at::Tensor empty_strided_with(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                              const c10::TensorOptions& options) {
  return empty_strided(sizes, strides, c10::typeMetaToScalarType(options.dtype()),
                       options.layout_opt(), options.device_opt(), options.pinned_memory_opt());
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> memory_format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(self.storage().nbytes());
  if (impl->sizes() != sizes) {
    impl->set_sizes_contiguous(sizes);
    const DeviceGuard guard(self.device());
    const size_t bytes = at::detail::computeStorageNbytesContiguous(
        sizes, self.dtype().itemsize(), static_cast<size_t>(self.storage_offset()));
    if (impl->numel() != 0 && bytes > self.storage().nbytes()) {
      at::native::resize_bytes_nocuda(self.storage(), bytes);
    }
  }
  if (memory_format) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format ",
                *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  at::Context& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() &&
                   context.deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

at::Tensor& set_(at::Tensor& self) {
  const at::Tensor empty = empty_with({0}, self.options());
  return set__source_storage_storage_offset(self, empty.storage(), 0, {0}, {});
}

at::Tensor& set__source_storage_storage_offset(at::Tensor& self, at::Storage source,
                                               int64_t storage_offset, c10::IntArrayRef size,
                                               c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, storage_offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(storage_offset);
  if (stride.data() != nullptr) {
    self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
    const size_t bytes = at::detail::computeStorageNbytes(size, stride, self.dtype().itemsize(),
                                                          static_cast<size_t>(storage_offset));
    if (self.numel() != 0 && bytes > source.nbytes()) {
      const DeviceGuard guard(self.device());
      at::native::resize_bytes_nocuda(self.storage(), bytes);
    }
  } else {
    resize_(self, size, std::nullopt);
  }
  return self;
}

at::Tensor _efficientzerotensor(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                                std::optional<at::Layout>, std::optional<at::Device> device,
                                std::optional<bool>) {
  const c10::Device target = resolve(device);
  at::native::ZeroTensorAllocator zero_allocator(target);
  return at::detail::empty_generic(size, &zero_allocator,
                                   kKeySet | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  allocator()->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace ocl::native
