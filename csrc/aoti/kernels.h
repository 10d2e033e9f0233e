// For the C++ that inductor generates, beside its own headers: kernels, guards.
#pragma once

#include <torch/csrc/inductor/aoti_runtime/utils.h>
#include <torch_ocl/aoti/c_shim_ocl.h>

#include <atomic>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "aoti/shim.h"

// torch's own says which line of the generated C++ failed, and not what it was.
#undef AOTI_TORCH_ERROR_CODE_CHECK
#define AOTI_TORCH_ERROR_CODE_CHECK(call) \
  if ((call) != AOTI_TORCH_SUCCESS) torch_ocl::raise(#call)

namespace torch_ocl {

[[noreturn]] inline void raise(const char* call) {
  const std::string words = aoti_torch_ocl_error();
  const std::string name = std::string(call).substr(0, std::string(call).find('('));
  throw std::runtime_error(words.empty() ? name + " failed" : words + "\n(" + name + ")");
}

inline uint64_t number(int64_t value) { return static_cast<uint64_t>(value); }
inline uint64_t real(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// A list of integers that is an expression.
template <int count>
struct Integers {
  int64_t values[count];
};

/// Builds a graph's programs at the first call for a device: `built` has a bit for each.
inline void build_once(std::atomic<uint64_t>& built, int32_t device_index,
                       const AOTIOclProgram* programs, int64_t count) {
  const uint64_t bit = uint64_t{1} << (device_index & 63);
  if (__builtin_expect((built.load(std::memory_order_acquire) & bit) != 0, 1)) return;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_ocl_build_programs(device_index, programs, count));
  built.fetch_or(bit);
}

/// A generated kernel that is made at its first launch. Thread-safe.
class Kernel {
 public:
  Kernel(std::nullptr_t) {}
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() {
    if (AOTIOclKernelHandle handle = handle_.load()) aoti_torch_ocl_delete_kernel(handle);
  }

  void launch(const AOTIOclKernel& kernel, int32_t device_index,
              std::initializer_list<AtenTensorHandle> tensors,
              std::initializer_list<uint64_t> numbers) {
    AOTIOclKernelHandle handle = handle_.load(std::memory_order_acquire);
    if (__builtin_expect(handle == nullptr, 0)) handle = make(kernel, device_index);
    AOTI_TORCH_ERROR_CODE_CHECK(
        aoti_torch_ocl_launch_kernel(handle, tensors.begin(), static_cast<int64_t>(tensors.size()),
                                     numbers.begin(), static_cast<int64_t>(numbers.size())));
  }

 private:
  AOTIOclKernelHandle make(const AOTIOclKernel& kernel, int32_t device_index) {
    AOTIOclKernelHandle made = nullptr, other = nullptr;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_ocl_create_kernel(&kernel, device_index, &made));
    if (handle_.compare_exchange_strong(other, made)) return made;
    aoti_torch_ocl_delete_kernel(made);
    return other;
  }

  std::atomic<AOTIOclKernelHandle> handle_{nullptr};
};

/// A matrix product or convolution with a fused epilogue. Thread-safe; it owns nothing.
class Fused {
 public:
  constexpr explicit Fused(const AOTIOclFused& description) : description_(description) {}

  void run(AtenTensorHandle a, AtenTensorHandle b, AtenTensorHandle c,
           std::initializer_list<AtenTensorHandle> tensors,
           std::initializer_list<int64_t> numbers) {
    AOTIOclKernelsHandle kernels = kernels_.load(std::memory_order_acquire);
    if (__builtin_expect(kernels == nullptr, 0)) {
      AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_ocl_kernels_of_text(description_.text, &kernels));
      kernels_.store(kernels, std::memory_order_release);
    }
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_ocl_run_fused(
        &description_, kernels, a, b, c, tensors.begin(), static_cast<int64_t>(tensors.size()),
        numbers.begin(), static_cast<int64_t>(numbers.size())));
  }

 private:
  const AOTIOclFused description_;
  std::atomic<AOTIOclKernelsHandle> kernels_{nullptr};
};

/// Makes a device current.
class DeviceGuard {
 public:
  explicit DeviceGuard(int32_t device_index) { set(device_index, &previous_); }
  ~DeviceGuard() { aoti_torch_ocl_exchange_device(previous_, nullptr); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  void set_index(int32_t device_index) { set(device_index, nullptr); }

 private:
  static void set(int32_t device_index, int32_t* previous) {
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_ocl_exchange_device(device_index, previous));
  }

  int32_t previous_ = 0;
};

/// Makes a device current, and one of its streams: the one with that id, or the current one for a
/// null pointer.
class StreamGuard {
 public:
  StreamGuard(const void* stream, int32_t device_index)
      : device_(device_index), index_(device_index), has_stream_(stream != nullptr) {
    if (!has_stream_) return;
    const auto id = static_cast<int64_t>(reinterpret_cast<intptr_t>(stream));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_ocl_exchange_stream(index_, id, &previous_));
  }
  ~StreamGuard() {
    if (has_stream_) aoti_torch_ocl_exchange_stream(index_, previous_, nullptr);
  }
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  DeviceGuard device_;
  int32_t index_;
  bool has_stream_;
  int64_t previous_ = 0;
};

}  // namespace torch_ocl
