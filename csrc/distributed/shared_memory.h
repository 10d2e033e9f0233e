// Memory that an OpenCL device and CUDA have in common. NCCL works on it as CUDA's, and kernels of
// `ocl` copy to it and from it. CUDA makes it with its virtual memory functions, and OpenCL imports
// it (cl_khr_external_memory_opaque_fd). Addresses of one mean nothing to the other.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace ocl::distributed {

class SharedMemory {
 public:
  /// The same bytes as two tensors. The memory is handed out again once both are gone.
  struct Pair {
    at::Tensor ocl, cuda;
  };

  /// That of a device, for as long as the process lives. Throws c10::Error with what is missing.
  static SharedMemory& of(c10::DeviceIndex index);

  /// What CUDA has of the device.
  c10::Device cuda() const { return cuda_; }
  /// Memory for the elements of `tensor`, in their logical order.
  Pair like(const at::Tensor& tensor);
  /// Held by calls of NCCL, which at first make a communicator, and while memory is made.
  std::mutex& driver() { return driver_; }
  /// Waits for what CUDA's current stream has been given.
  void synchronize() const;

 private:
  class Block;
  SharedMemory(c10::DeviceIndex index, int cuda);
  std::shared_ptr<Block> take(size_t bytes);
  void give_back(std::unique_ptr<Block> block);

  const c10::Device ocl_, cuda_;
  std::mutex driver_;
  std::mutex mutex_;  // of what follows
  std::map<size_t, std::vector<std::unique_ptr<Block>>> free_;
  size_t free_bytes_ = 0;
};

}  // namespace ocl::distributed
