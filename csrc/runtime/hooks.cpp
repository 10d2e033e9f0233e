// Answers to the generic parts of torch: devices, generators, pinned memory, storage resizing.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "opencl/device.h"
#include "opencl/platform.h"
#include "runtime/allocator.h"
#include "runtime/device_count.h"
#include "runtime/generator.h"
#include "runtime/host_allocator.h"
#include "runtime/stream.h"

namespace ocl {
namespace {

// Autograd starts its devices' threads once, at the first backward pass. Where that came before
// the first use of OpenCL there were none to start (GuardImpl::deviceCount()): this makes up for
// it. Engine keeps both members for classes derived from it.
struct AutogradEngine final : torch::autograd::Engine {
  static void start_missing_threads(torch::autograd::Engine& engine) {
    static std::atomic<bool> started{false};
    if (started.load(std::memory_order_acquire)) return;
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    engine.initialize_device_threads_pool();
    if ((engine.*&AutogradEngine::device_ready_queues_).empty()) {
      (engine.*&AutogradEngine::start_device_threads)();
    }
    started.store(true, std::memory_order_release);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return count_devices() > 0; }
  /// Autograd asks in the first steps of a backward pass that some device takes part in.
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    if (process_was_forked() || (!is_initialized() && !autograd_knows())) return false;
    if (index >= count_devices()) return false;
    AutogradEngine::start_missing_threads(torch::autograd::Engine::get_default_engine());
    return is_initialized();
  }
  /// Raises with what to install if there is no device.
  void init() const override { ocl::device(0); }

  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(count_devices());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex previous = current_device();
    set_device(index);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);  // negative indices are ignored
  }

  at::Device getDeviceFromPtr(void* pointer) const override {
    const auto index = device_of_pointer(pointer);
    TORCH_CHECK(index, "the pointer ", pointer, " is not in the memory of any ocl device");
    return at::Device(kDeviceType, *index);
  }
  /// A PyTorch with CUDA pins memory by CUDA, whatever the device: DistributedDataParallel then
  /// asks whether what it got is pinned. Copies treat it as any other memory of the host.
  bool isPinnedPtr(const void* pointer) const override {
    return is_pinned(pointer) ||
           (at::globalContext().hasCUDA() && at::detail::getCUDAHooks().isPinnedPtr(pointer));
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return make_generator(index);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
    const c10::DeviceGuard guard(storage.device());
    c10::DataPtr memory = allocator()->allocate(bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0 && storage.data()) {
      allocator()->copy_data(memory.get(), storage.data(), kept);
      // The old memory is freed below, while the current stream may still copy from it.
      allocator()->recordStream(storage.data_ptr(), current_stream(storage.device().index()));
    }
    storage.set_data_ptr_noswap(std::move(memory));
    storage.set_nbytes(bytes);
  }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());  // torch keeps the pointer for ever
  return true;
}();

}  // namespace
}  // namespace ocl
