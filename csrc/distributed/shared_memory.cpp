#include "distributed/shared_memory.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>

#include "opencl/error.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::distributed {
namespace {

// Of CUDA's driver, whose headers are not needed for a build: cuda.h, "Virtual Memory Management".
struct Location {
  int type = 1, id = 0;  // CU_MEM_LOCATION_TYPE_DEVICE
};
struct AllocationProperties {
  int type = 1;          // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  Location location;
  void* windows = nullptr;
  std::array<unsigned char, 8> flags{};
};
struct Access {
  Location location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
using Address = unsigned long long;
using Handle = unsigned long long;
constexpr int kFileDescriptor = 1;

#define CUDA_FUNCTIONS(X)                                                          \
  X(cuInit, unsigned)                                                              \
  X(cuGetErrorString, int, const char**)                                           \
  X(cuDeviceGetCount, int*)                                                        \
  X(cuDeviceGetUuid, char*, int)                                                   \
  X(cuMemGetAllocationGranularity, size_t*, const AllocationProperties*, int)      \
  X(cuMemCreate, Handle*, size_t, const AllocationProperties*, unsigned long long) \
  X(cuMemExportToShareableHandle, void*, Handle, int, unsigned long long)          \
  X(cuMemAddressReserve, Address*, size_t, size_t, Address, unsigned long long)    \
  X(cuMemMap, Address, size_t, size_t, Handle, unsigned long long)                 \
  X(cuMemSetAccess, Address, size_t, const Access*, size_t)                        \
  X(cuMemUnmap, Address, size_t)                                                   \
  X(cuMemAddressFree, Address, size_t)                                             \
  X(cuMemRelease, Handle)

struct Cuda {
#define CUDA_DECLARE(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  CUDA_FUNCTIONS(CUDA_DECLARE)
#undef CUDA_DECLARE

  Cuda() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    TORCH_CHECK(library != nullptr, "NCCL on ocl needs CUDA's driver: ", dlerror());
#define CUDA_LOAD(name, ...)                                      \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name)); \
  TORCH_CHECK(name != nullptr, "NCCL on ocl: CUDA's driver has no " #name);
    CUDA_FUNCTIONS(CUDA_LOAD)
#undef CUDA_LOAD
    check(cuInit(0), "cuInit");
  }
  void check(int code, const char* call) const {
    if (code == 0) return;
    const char* text = nullptr;
    cuGetErrorString(code, &text);
    TORCH_CHECK(false, call, " failed: ", text != nullptr ? text : "?", " (", code, ")");
  }
};
#undef CUDA_FUNCTIONS

const Cuda& cuda_driver() {
  static const Cuda cuda;
  return cuda;
}
#define CUDA_CALL(name, ...) cuda_driver().check(cuda_driver().name(__VA_ARGS__), #name)

// Blocks are powers of two of at least what CUDA maps at a time. So many bytes are kept for the
// next calls: a few of the buckets of DistributedDataParallel.
constexpr size_t kLeastBytes = size_t{2} << 20, kMostFreeBytes = size_t{2} << 30;

// CL/cl_ext.h: cl_khr_device_uuid, cl_khr_external_memory_opaque_fd. Older headers lack them.
constexpr cl_device_info kUuid = 0x106A;
constexpr cl_ulong kOpaqueFileDescriptor = 0x2060;

/// CUDA's number for the device; -1 if it has none.
int find_cuda_device(const Device& device) {
  std::array<char, 16> wanted{}, uuid{};
  if (api().clGetDeviceInfo(device.id(), kUuid, sizeof wanted, wanted.data(), nullptr) != 0) {
    return -1;
  }
  int count = 0;
  CUDA_CALL(cuDeviceGetCount, &count);
  for (int i = 0; i < count; ++i) {
    CUDA_CALL(cuDeviceGetUuid, uuid.data(), i);
    if (uuid == wanted) return i;
  }
  return -1;
}

/// A function of the ICD loader that the package needs here alone.
template <class Function>
Function loader_function(const char* name) {
  void* library = dlopen(api().loader_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  auto* found = library == nullptr ? nullptr : dlsym(library, name);
  TORCH_CHECK(found != nullptr, "NCCL on ocl needs an ICD loader that has ", name);
  return reinterpret_cast<Function>(found);
}

/// clCreateBufferWithProperties, of OpenCL 3.0.
using CreateBuffer = cl_mem (*)(cl_context, const cl_ulong*, cl_mem_flags, size_t, void*, cl_int*);
/// clEnqueueAcquireExternalMemObjectsKHR: after it OpenCL may use the memory.
using Acquire = cl_int (*)(cl_command_queue, cl_uint, const cl_mem*, cl_uint, const cl_event*,
                           cl_event*);
using FindExtension = void* (*)(cl_platform_id, const char*);

void acquire(Device& device, cl_mem mem) {
  constexpr char kName[] = "clEnqueueAcquireExternalMemObjectsKHR";
  const auto find = loader_function<FindExtension>("clGetExtensionFunctionAddressForPlatform");
  const auto function = reinterpret_cast<Acquire>(find(device.platform(), kName));
  TORCH_CHECK(function != nullptr, "NCCL on ocl: the driver has no ", kName);
  Queue& queue = current_queue(static_cast<c10::DeviceIndex>(device.index()));
  const cl_int code = function(queue.handle(), 1, &mem, 0, nullptr, nullptr);
  queue.count();
  check(code, kName, &device);
  queue.finish();  // other queues use it next
}

}  // namespace

/// One piece of memory, with its address for CUDA and its place among the addresses of `ocl`.
class SharedMemory::Block {
 public:
  Block(Device& device, size_t bytes_) : bytes(bytes_), device_(device) {}
  /// What an error leaves, the destructor takes down.
  void make(int cuda) {
    AllocationProperties properties;
    properties.location.id = cuda;
    CUDA_CALL(cuMemCreate, &handle_, bytes, &properties, 0);
    CUDA_CALL(cuMemAddressReserve, &address_, bytes, 0, 0, 0);
    CUDA_CALL(cuMemMap, address_, bytes, 0, handle_, 0);
    mapped_ = true;
    const Access access{properties.location};
    CUDA_CALL(cuMemSetAccess, address_, bytes, &access, 1);
    int file = -1;
    CUDA_CALL(cuMemExportToShareableHandle, &file, handle_, kFileDescriptor, 0);
    // The driver takes the file over if it imports it.
    const cl_ulong list[] = {kOpaqueFileDescriptor, static_cast<cl_ulong>(file), 0};
    cl_int code = CL_SUCCESS;
    const auto create = loader_function<CreateBuffer>("clCreateBufferWithProperties");
    mem_ = create(device_.context(), list, CL_MEM_READ_WRITE, bytes, nullptr, &code);
    if (code != CL_SUCCESS) ::close(file);
    check(code, "clCreateBufferWithProperties", &device_);
    acquire(device_, mem_);
    place_ = device_.addresses().map(mem_, bytes, nullptr);
  }
  ~Block() {
    try {
      if (place_ != nullptr) device_.addresses().unmap(place_);
    } catch (const std::exception&) {  // a device that fails says so at the next call
    }
    const Cuda& cuda = cuda_driver();
    if (mem_ != nullptr) api().clReleaseMemObject(mem_);
    if (mapped_) cuda.cuMemUnmap(address_, bytes);
    if (address_ != 0) cuda.cuMemAddressFree(address_, bytes);
    if (handle_ != 0) cuda.cuMemRelease(handle_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void* place() const { return place_; }
  void* address() const { return reinterpret_cast<void*>(address_); }
  const size_t bytes;

 private:
  Device& device_;
  Handle handle_ = 0;
  Address address_ = 0;
  bool mapped_ = false;
  cl_mem mem_ = nullptr;
  void* place_ = nullptr;
};

SharedMemory& SharedMemory::of(c10::DeviceIndex index) {
  static std::mutex mutex;
  // Never destroyed: tensors may be, later.
  static auto* const all = new std::map<c10::DeviceIndex, SharedMemory*>;
  std::lock_guard lock(mutex);
  SharedMemory*& memory = (*all)[index];
  if (memory == nullptr) {
    const Device& owner = device(index);
    TORCH_CHECK(
        owner.properties().extensions.find("cl_khr_external_memory_opaque_fd") != std::string::npos,
        "NCCL takes tensors of NVIDIA's devices, whose memory CUDA can share, but ocl:",
        static_cast<int>(index), " is ", owner.properties().name);
    const int cuda = find_cuda_device(owner);
    TORCH_CHECK(cuda >= 0, "NCCL on ocl: CUDA doesn't see ocl:", static_cast<int>(index), ", ",
                owner.properties().name, "; is CUDA_VISIBLE_DEVICES set?");
    memory = new SharedMemory(index, cuda);
  }
  return *memory;
}

SharedMemory::SharedMemory(c10::DeviceIndex index, int cuda)
    : ocl_(kDeviceType, index), cuda_(c10::kCUDA, static_cast<c10::DeviceIndex>(cuda)) {}

std::shared_ptr<SharedMemory::Block> SharedMemory::take(size_t bytes) {
  const size_t size = std::bit_ceil(std::max(bytes, kLeastBytes));
  std::unique_ptr<Block> block;
  {
    std::lock_guard lock(mutex_);
    auto& list = free_[size];
    if (!list.empty()) {
      block = std::move(list.back());
      list.pop_back();
      free_bytes_ -= size;
    }
  }
  if (!block) {
    block = std::make_unique<Block>(device(ocl_.index()), size);
    std::lock_guard lock(driver_);
    block->make(cuda_.index());
  }
  return {block.release(), [this](Block* last) { give_back(std::unique_ptr<Block>(last)); }};
}

void SharedMemory::give_back(std::unique_ptr<Block> block) {
  {
    std::lock_guard lock(mutex_);
    if (free_bytes_ + block->bytes <= kMostFreeBytes) {
      free_bytes_ += block->bytes;
      free_[block->bytes].push_back(std::move(block));
      return;
    }
  }
  // The last copy from it may be under way still.
  c10::impl::VirtualGuardImpl(kDeviceType).synchronizeDevice(ocl_.index());
}

SharedMemory::Pair SharedMemory::like(const at::Tensor& tensor) {
  const auto block = take(tensor.nbytes());
  const auto view = [&](void* address, c10::Device device) {
    return at::for_blob(address, tensor.sizes())
        .deleter([block](void*) {})
        .options(at::TensorOptions(tensor.scalar_type()).device(device))
        .target_device(device)
        .make_tensor();
  };
  return {view(block->place(), ocl_), view(block->address(), cuda_)};
}

void SharedMemory::synchronize() const {
  const c10::impl::VirtualGuardImpl impl(c10::kCUDA);
  impl.synchronizeStream(impl.getStream(cuda_));
}

}  // namespace ocl::distributed
