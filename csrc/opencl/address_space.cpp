#include "opencl/address_space.h"

#include <sys/mman.h>

#include <iterator>
#include <sstream>
#include <stdexcept>

#include "opencl/ceil_div.h"

namespace ocl {
namespace {

constexpr size_t kLeastBytes = size_t{1} << 30;

void* reserve(size_t bytes, int protection) {
  void* address =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

}  // namespace

AddressSpace::AddressSpace(size_t bytes) {
  reserve_range(bytes);
  // A host with a limit on its address space (ulimit -v, some containers) may refuse 1 TiB.
  while (reservation_ == nullptr && bytes_ / 2 >= kLeastBytes) reserve_range(bytes_ / 2);
  const bool limited = bytes_ < bytes;
  if (limited && reservation_ != nullptr && bytes_ / 2 >= kLeastBytes) {
    // A CPU's buffers are held to the same limit, and need as much of it.
    munmap(reservation_, reservation_bytes_);
    reserve_range(bytes_ / 2);
  }
  if (reservation_ == nullptr) {
    throw std::runtime_error(
        "can't reserve " + std::to_string(bytes_ >> 30) +
        " GiB of address space for device memory: is the virtual memory limited (ulimit -v)?");
  }
  const auto start = reinterpret_cast<uintptr_t>(reservation_);
  base_ = round_up(start, kGranule);
  granules_ =
      static_cast<Granule*>(reserve(bytes_ / kGranule * sizeof(Granule), PROT_READ | PROT_WRITE));
  if (granules_ == nullptr) {
    munmap(reservation_, reservation_bytes_);
    throw std::runtime_error("out of host memory for the table of device addresses");
  }
  free_[0] = bytes_;
}

void AddressSpace::reserve_range(size_t bytes) {
  bytes_ = bytes;
  reservation_bytes_ = bytes + kGranule;
  reservation_ = reserve(reservation_bytes_, PROT_NONE);
}

AddressSpace::~AddressSpace() {
  munmap(granules_, bytes_ / kGranule * sizeof(Granule));
  munmap(reservation_, reservation_bytes_);
}

void* AddressSpace::map(cl_mem mem, size_t size, const void* host) {
  const size_t rounded = size == 0 ? kGranule : round_up(size, kGranule);
  std::lock_guard<std::mutex> lock(mutex_);
  // First fit: segments are few and large, and low addresses keep the table's touched pages few.
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [start, bytes] = *it;
    if (bytes < rounded) continue;
    free_.erase(it);
    if (bytes > rounded) free_[start + rounded] = bytes - rounded;
    mapped_[start] = rounded;
    for (uintptr_t at = start; at < start + rounded; at += kGranule) {
      granules_[at / kGranule] = {mem, start, reinterpret_cast<uintptr_t>(host)};
    }
    return reinterpret_cast<void*>(base_ + start);
  }
  throw std::runtime_error("device address space exhausted: no free range of " +
                           std::to_string(rounded) + " bytes in " + std::to_string(bytes_ >> 30) +
                           " GiB");
}

void AddressSpace::unmap(void* address) {
  std::lock_guard<std::mutex> lock(mutex_);
  uintptr_t start = reinterpret_cast<uintptr_t>(address) - base_;
  const auto it = mapped_.find(start);
  if (it == mapped_.end()) {
    throw std::runtime_error("AddressSpace::unmap: the address is not the start of a segment");
  }
  size_t bytes = it->second;
  mapped_.erase(it);
  for (uintptr_t at = start; at < start + bytes; at += kGranule) {
    granules_[at / kGranule] = {nullptr, 0, 0};
  }
  epoch_.fetch_add(1, std::memory_order_relaxed);
  auto next = free_.lower_bound(start);
  if (next != free_.end() && next->first == start + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == start) {
      start = previous->first;
      bytes += previous->second;
      free_.erase(previous);
    }
  }
  free_[start] = bytes;
}

Location AddressSpace::find_outside(const void* pointer) const {
  if (pointer == nullptr) return {nullptr, 0};
  std::ostringstream text;
  text << "address " << pointer << " is not memory of this device";
  if (contains(pointer)) text << ": it was freed, or lies past the end of its segment";
  throw std::runtime_error(text.str());
}

}  // namespace ocl
