// Memory that a device's tensors share with what the inner backend takes: for NCCL, CUDA's. A call
// gets blocks of it, copies its tensors there on the device, and never passes the host's memory.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "distributed/work.h"

namespace ocl::distributed {

/// One piece of memory, as both sides know it.
class SharedBlock {
 public:
  SharedBlock() = default;
  virtual ~SharedBlock() = default;
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  char* ours = nullptr;    // an address of `ocl`
  char* theirs = nullptr;  // the inner backend's
  size_t bytes = 0;
  /// The copies from it on `ocl`; null: none. Who writes to it waits for them.
  std::shared_ptr<c10::Event> last_use;

 protected:
  /// For destructors of those that have the memory. Never throws.
  void wait_for_last_use() noexcept;
};

/// Who makes such memory, and how the inner backend is called on its side.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  /// Where the inner backend's tensors are for those of a device. Throws c10::Error, with what is
  /// missing, if nothing can be shared.
  virtual c10::Device other(c10::DeviceIndex ours) = 0;
  /// Throws c10::Error or Error if there is no more.
  virtual std::unique_ptr<SharedBlock> allocate(c10::DeviceIndex ours, size_t bytes) = 0;
  /// Makes a call of the inner backend on the calling thread.
  virtual WorkPtr call(c10::Device other, const std::function<WorkPtr()>& call);
  /// The host waits until the work that call() returned is done, on the other side's device as
  /// well. Throws what the work failed with. Null: NCCL returns none where a call is synchronous.
  virtual void finish(c10::Device other, c10d::Work* work);
};

/// CUDA's, for NCCL. Asks for nothing before it is used.
std::unique_ptr<SharedMemory> cuda_memory();
/// The host's, for a CPU device: it has the way of a call tested where there is no GPU.
std::unique_ptr<SharedMemory> host_memory();

/// A group's blocks. Those that calls are done with are kept for others, up to a number of bytes.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  struct Counts {
    int64_t made = 0, in_use = 0, in_use_bytes = 0, kept = 0, kept_bytes = 0;
  };

  BlockPool(std::unique_ptr<SharedMemory> memory, size_t most_kept)
      : memory_(std::move(memory)), most_kept_(most_kept) {}

  SharedMemory& memory() { return *memory_; }
  /// A block of that size or more. It comes back with the last copy of the pointer, in any thread.
  std::shared_ptr<SharedBlock> take(c10::DeviceIndex device, size_t bytes);
  /// Gives what is kept back to the driver, and keeps no more.
  void close();
  Counts counts();

 private:
  using Blocks = std::multimap<size_t, std::unique_ptr<SharedBlock>>;
  std::unique_ptr<SharedBlock> take_kept(c10::DeviceIndex device, size_t bytes);
  std::unique_ptr<SharedBlock> make(c10::DeviceIndex device, size_t bytes);
  void give_back(c10::DeviceIndex device, std::unique_ptr<SharedBlock> block);
  void release_kept();

  std::unique_ptr<SharedMemory> memory_;
  std::mutex mutex_;  // of what follows
  size_t most_kept_;
  std::map<c10::DeviceIndex, Blocks> kept_;
  Counts counts_;
};

}  // namespace ocl::distributed
