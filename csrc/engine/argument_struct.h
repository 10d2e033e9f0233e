// A kernel's by-value struct whose arrays depend on a compile parameter, filled member by member.
//
// Offers: ArgumentStruct.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ocl {

/// Members go in the order of the kernel's declaration, 64-bit ones first; 1024 bytes at most.
class ArgumentStruct {
 public:
  void put64(uint64_t value) { put(&value, sizeof value); }
  void put32(uint32_t value) { put(&value, sizeof value); }
  /// Structs hold ulongs, so their size is a multiple of 8.
  void finish() {
    if (size_ % 8 != 0) put32(0);
  }
  const void* data() const { return bytes_.data(); }
  size_t size() const { return size_; }

 private:
  void put(const void* value, size_t bytes) {
    std::memcpy(bytes_.data() + size_, value, bytes);
    size_ += bytes;
  }
  alignas(8) std::array<unsigned char, 1024> bytes_;
  size_t size_ = 0;
};

}  // namespace ocl
