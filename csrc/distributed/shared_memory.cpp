#include "distributed/shared_memory.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "opencl/ceil_div.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::distributed {
namespace {

// Blocks are of whole granules: small tensors then find one that was kept.
constexpr size_t kGranule = size_t{2} << 20;

/// A tensor of a CPU device, and where its bytes lie in this process.
class HostBlock final : public SharedBlock {
 public:
  HostBlock(c10::DeviceIndex index, size_t size) {
    bytes = size;
    const c10::Device where(kDeviceType, index);
    tensor_ = at::empty({static_cast<int64_t>(size)}, at::TensorOptions(at::kByte).device(where));
    ours = static_cast<char*>(tensor_.data_ptr());
    theirs = reinterpret_cast<char*>(device(index).addresses().find_host(ours));
  }
  ~HostBlock() override { wait_for_last_use(); }

 private:
  at::Tensor tensor_;
};

class HostMemory final : public SharedMemory {
 public:
  c10::Device other(c10::DeviceIndex ours) override {
    const DeviceProperties& properties = device(ours).properties();
    TORCH_CHECK(properties.device_class == DeviceClass::cpu && properties.host_unified_memory,
                device(ours).description(), " does not share its memory with the host");
    return at::kCPU;
  }
  std::unique_ptr<SharedBlock> allocate(c10::DeviceIndex ours, size_t bytes) override {
    return std::make_unique<HostBlock>(ours, bytes);
  }
};

}  // namespace

void SharedBlock::wait_for_last_use() noexcept {
  try {
    if (last_use && !process_was_forked()) last_use->synchronize();
  } catch (const std::exception&) {  // a device that fails says so at the next call
  }
  last_use = nullptr;
}

std::unique_ptr<SharedMemory> host_memory() { return std::make_unique<HostMemory>(); }

WorkPtr SharedMemory::call(c10::Device, const std::function<WorkPtr()>& call) { return call(); }

void SharedMemory::finish(c10::Device, c10d::Work* work) {
  if (work != nullptr) work->wait();
}

std::unique_ptr<SharedBlock> BlockPool::take_kept(c10::DeviceIndex device, size_t bytes) {
  const std::lock_guard lock(mutex_);
  Blocks& blocks = kept_[device];
  const auto found = blocks.lower_bound(bytes);
  // A much larger one would be missed by the large tensor that it was made for.
  if (found == blocks.end() || found->first > 2 * bytes) return nullptr;
  auto block = std::move(found->second);
  blocks.erase(found);
  --counts_.kept;
  counts_.kept_bytes -= static_cast<int64_t>(block->bytes);
  return block;
}

std::unique_ptr<SharedBlock> BlockPool::make(c10::DeviceIndex device, size_t bytes) {
  try {
    return memory_->allocate(device, bytes);
  } catch (const std::exception&) {  // maybe what is kept is too much
    release_kept();
    return memory_->allocate(device, bytes);
  }
}

std::shared_ptr<SharedBlock> BlockPool::take(c10::DeviceIndex device, size_t bytes) {
  bytes = round_up(std::max<size_t>(1, bytes), kGranule);
  auto block = take_kept(device, bytes);
  const bool is_new = block == nullptr;
  if (is_new) block = make(device, bytes);
  {
    const std::lock_guard lock(mutex_);
    counts_.made += is_new ? 1 : 0;
    ++counts_.in_use;
    counts_.in_use_bytes += static_cast<int64_t>(block->bytes);
  }
  return {block.release(), [pool = shared_from_this(), device](SharedBlock* block) {
            pool->give_back(device, std::unique_ptr<SharedBlock>(block));
          }};
}

// A block that is not kept goes without the lock: it waits for its last use.
void BlockPool::give_back(c10::DeviceIndex device, std::unique_ptr<SharedBlock> block) {
  const std::lock_guard lock(mutex_);
  --counts_.in_use;
  counts_.in_use_bytes -= static_cast<int64_t>(block->bytes);
  if (static_cast<size_t>(counts_.kept_bytes) + block->bytes > most_kept_) return;
  ++counts_.kept;
  counts_.kept_bytes += static_cast<int64_t>(block->bytes);
  const size_t bytes = block->bytes;
  kept_[device].emplace(bytes, std::move(block));
}

void BlockPool::release_kept() {
  std::map<c10::DeviceIndex, Blocks> blocks;  // they go without the lock
  const std::lock_guard lock(mutex_);
  blocks.swap(kept_);
  counts_.kept = counts_.kept_bytes = 0;
}

void BlockPool::close() {
  {
    const std::lock_guard lock(mutex_);
    most_kept_ = 0;
  }
  release_kept();
}

BlockPool::Counts BlockPool::counts() {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace ocl::distributed
