// A reserved range of host addresses that stands for device memory.
//
// OpenCL 1.2 hands out opaque cl_mem handles, PyTorch needs pointers with arithmetic. A segment
// (one cl_mem) is mapped at an address of a PROT_NONE reservation: views, offsets and resize work
// on the pointer, a stray host read faults instead of returning garbage, and find() turns an
// address back into (cl_mem, byte offset) with one table load.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "opencl/api.h"

namespace ocl {

/// Where an address lives: what a kernel argument needs.
struct Location {
  cl_mem mem;
  cl_ulong offset;  // bytes from the start of mem
};

class AddressSpace {
 public:
  static constexpr size_t kGranule = size_t{2} << 20;
  static constexpr size_t kDefaultBytes = size_t{1} << 40;

  /// Reserves the range, or what the host allows of it; throws std::runtime_error if that is less
  /// than 1 GiB.
  explicit AddressSpace(size_t bytes = kDefaultBytes);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  /// Gives `mem` (of `size` bytes) an address, granule aligned; `host` is where its bytes lie in
  /// this process, if they do. Throws std::runtime_error when the range is used up. Thread-safe.
  void* map(cl_mem mem, size_t size, const void* host = nullptr);
  /// Forgets a segment; its addresses may be given again. Thread-safe.
  void unmap(void* address);

  /// Lock-free. A null pointer gives {nullptr, 0}, as an empty tensor has; an address that is not
  /// mapped throws std::runtime_error.
  Location find(const void* pointer) const {
    const uintptr_t relative = reinterpret_cast<uintptr_t>(pointer) - base_;
    if (__builtin_expect(relative >= bytes_, 0)) return find_outside(pointer);
    const Granule& granule = granules_[relative / kGranule];
    if (__builtin_expect(granule.mem == nullptr, 0)) return find_outside(pointer);
    return {granule.mem, relative - granule.start};
  }

  /// Where the byte lies in this process: for memory mapped with `host`, by the rules of find().
  uint64_t find_host(const void* pointer) const {
    const uintptr_t relative = reinterpret_cast<uintptr_t>(pointer) - base_;
    if (__builtin_expect(relative >= bytes_, 0)) return find_outside(pointer).offset;
    const Granule& granule = granules_[relative / kGranule];
    if (__builtin_expect(granule.mem == nullptr, 0)) return find_outside(pointer).offset;
    return granule.host + (relative - granule.start);
  }

  /// Changes whenever a segment is forgotten: a cl_mem handle remembered from before may have been
  /// given to another buffer since.
  uint32_t epoch() const { return epoch_.load(std::memory_order_relaxed); }

  bool contains(const void* pointer) const {
    return reinterpret_cast<uintptr_t>(pointer) - base_ < bytes_;
  }

 private:
  struct Granule {
    cl_mem mem;
    uintptr_t start;  // the segment's start, relative to base_
    uintptr_t host;   // its memory in this process
  };
  void reserve_range(size_t bytes);
  Location find_outside(const void* pointer) const;

  uintptr_t base_ = 0;
  size_t bytes_ = 0;
  void* reservation_ = nullptr;
  size_t reservation_bytes_ = 0;
  Granule* granules_ = nullptr;  // lazily committed, one per granule
  std::atomic<uint32_t> epoch_{0};
  std::mutex mutex_;
  std::map<uintptr_t, size_t> free_;    // start -> bytes, coalesced, relative to base_
  std::map<uintptr_t, size_t> mapped_;  // start -> bytes (granule multiples)
};

}  // namespace ocl
