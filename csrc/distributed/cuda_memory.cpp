// Memory of CUDA that is a buffer of OpenCL, too. It has to be CUDA's: an address or a buffer of
// OpenCL means nothing to CUDA, whereas OpenCL imports what CUDA exports.
#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pybind11/pybind11.h>

#include <array>
#include <optional>

#include "distributed/cuda_driver.h"
#include "distributed/shared_memory.h"
#include "opencl/ceil_div.h"
#include "opencl/external_memory.h"
#include "opencl/platform.h"
#include "runtime/stream.h"
#include "runtime/stream_table.h"

namespace ocl::distributed {
namespace {

/// The device's context is current on the calling thread as long as this lives.
class InContext {
 public:
  explicit InContext(cuda::Context* context) { OCL_CUDA(push_context, context); }
  ~InContext() {
    cuda::Context* popped = nullptr;
    cuda::driver().pop_context(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
};

/// A device of CUDA's driver, with the context that PyTorch uses.
struct CudaDevice {
  int ordinal = 0;
  cuda::Context* context = nullptr;
};

class CudaBlock final : public SharedBlock {
 public:
  CudaBlock(Device& device, const CudaDevice& cuda, size_t wanted) : device_(device), cuda_(cuda) {
    try {
      const InContext in(cuda_.context);
      map_on_cuda(wanted);
      map_on_ocl();
    } catch (...) {
      release();
      throw;
    }
  }
  // While the process ends, the drivers may be gone.
  ~CudaBlock() override {
    if (process_was_forked() || Py_IsInitialized() == 0) return;
    wait_for_last_use();
    release();
  }

 private:
  void map_on_cuda(size_t wanted) {
    cuda::AllocationProperties properties;
    properties.location.id = cuda_.ordinal;
    size_t granule = 0;
    OCL_CUDA(granularity, &granule, &properties, /*CU_MEM_ALLOC_GRANULARITY_MINIMUM*/ 0);
    bytes = round_up(wanted, granule);
    OCL_CUDA(create, &handle_, bytes, &properties, 0);
    created_ = true;
    OCL_CUDA(reserve, &address_, bytes, 0, 0, 0);
    OCL_CUDA(map, address_, bytes, 0, handle_, 0);
    mapped_ = true;
    cuda::Access access;
    access.location.id = cuda_.ordinal;
    OCL_CUDA(set_access, address_, bytes, &access, 1);
    theirs = reinterpret_cast<char*>(address_);
  }

  // The import waits for nothing on CUDA: the memory is new.
  void map_on_ocl() {
    int descriptor = -1;
    OCL_CUDA(export_handle, &descriptor, handle_, cuda::AllocationProperties().handles, 0);
    Queue& queue = current_queue(static_cast<c10::DeviceIndex>(device_.index()));
    mem_ = import_external_memory(queue, descriptor, bytes);
    queue.finish();  // other streams use it
    ours = static_cast<char*>(device_.addresses().map(mem_, bytes));
  }

  /// Releases as much of it as there is.
  void release() noexcept {
    try {
      if (ours != nullptr) device_.addresses().unmap(ours);
      if (mem_ != nullptr) api().clReleaseMemObject(mem_);
      const cuda::Driver& driver = cuda::driver();
      const InContext in(cuda_.context);
      if (mapped_) driver.unmap(address_, bytes);
      if (address_ != 0) driver.free_address(address_, bytes);
      if (created_) driver.release(handle_);
    } catch (const std::exception&) {  // no driver, no memory
    }
  }

  Device& device_;
  CudaDevice cuda_;
  cuda::Handle handle_ = 0;
  cuda::Address address_ = 0;
  bool created_ = false, mapped_ = false;
  cl_mem mem_ = nullptr;
};

/// The device of CUDA that is the same as one of OpenCL. Their numbers may differ.
CudaDevice find(const Device& device) {
  const auto wanted = device_uuid(device);
  TORCH_CHECK(wanted.has_value(), "NCCL for ocl tensors: ", device.description(),
              " has no cl_khr_device_uuid, which says what CUDA device it is");
  const auto count = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CudaDevice found{ordinal};
    DeviceUuid uuid{};
    int handle = 0;
    OCL_CUDA(get_device, &handle, ordinal);
    OCL_CUDA(get_uuid, uuid.data(), handle);
    if (uuid != *wanted) continue;
    OCL_CUDA(retain_context, &found.context, handle);  // PyTorch keeps it as long
    return found;
  }
  TORCH_CHECK(false, "NCCL for ocl tensors: none of PyTorch's ", static_cast<int>(count),
              " CUDA devices is ", device.description(), ". CUDA_VISIBLE_DEVICES may hide it.");
}

class CudaMemory final : public SharedMemory {
 public:
  c10::Device other(c10::DeviceIndex ours) override {
    return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(partner(ours).ordinal)};
  }

  std::unique_ptr<SharedBlock> allocate(c10::DeviceIndex ours, size_t bytes) override {
    return std::make_unique<CudaBlock>(device(ours), partner(ours), bytes);
  }

  // NCCL orders its work after the current stream, and that of a call that the program waits for
  // runs there. The program's own work on CUDA is no concern of it.
  WorkPtr call(c10::Device other, const std::function<WorkPtr()>& call) override {
    const c10::DeviceGuard device(other);
    const c10::StreamGuard stream(stream_of(other));
    return call();
  }

  // NCCL's wait() makes the current stream wait. It is another one at each time: an earlier send
  // may wait for its peer for long. NCCL's own streams are of the other pool.
  void finish(c10::Device other, c10d::Work* work) override {
    const c10::impl::VirtualGuardImpl impl(c10::DeviceType::CUDA);
    if (work == nullptr) return impl.synchronizeStream(stream_of(other));  // where call() put it
    const c10::DeviceGuard device(other);
    const c10::Stream mine = impl.getStreamFromGlobalPool(other, /*isHighPriority=*/true);
    const c10::StreamGuard stream(mine);
    work->wait();
    impl.synchronizeStream(mine);
    if (std::exception_ptr error = work->exception()) std::rethrow_exception(error);
  }

 private:
  const CudaDevice& partner(c10::DeviceIndex ours) {
    const std::lock_guard lock(mutex_);
    auto& slot = partners_[ours];
    if (!slot) {
      TORCH_CHECK(c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA),
                  "NCCL for ocl tensors: this PyTorch was built without CUDA");
      const std::string refusal = external_memory_refusal(device(ours));
      TORCH_CHECK(refusal.empty(),
                  "NCCL for ocl tensors: memory can't be shared with CUDA: ", refusal,
                  ". The backend \"gloo\" needs nothing of that.");
      cuda::driver();
      at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
      slot = find(device(ours));
    }
    return *slot;
  }

  c10::Stream stream_of(c10::Device other) {
    const std::lock_guard lock(mutex_);
    auto& slot = streams_[other.index()];
    const c10::impl::VirtualGuardImpl impl(c10::DeviceType::CUDA);
    if (!slot) slot = impl.getStreamFromGlobalPool(other, /*isHighPriority=*/true);
    return *slot;
  }

  std::mutex mutex_;  // of what follows; an entry never changes
  std::array<std::optional<CudaDevice>, kMaxDevices> partners_;
  std::array<std::optional<c10::Stream>, kMaxDevices> streams_;
};

}  // namespace

std::unique_ptr<SharedMemory> cuda_memory() { return std::make_unique<CudaMemory>(); }

}  // namespace ocl::distributed
