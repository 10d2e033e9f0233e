// A piece of device memory as a buffer of its own, for code that takes no offsets.
#pragma once

#include <cstddef>

#include "opencl/device.h"

namespace ocl::python {

/// Owns a sub-buffer that begins where one may (Device's base_address_align), at or before the
/// address, and ends `bytes` after the address. Enqueued commands keep it: it can be released as
/// soon as they are. Throws Error.
class SubBuffer {
 public:
  SubBuffer(Device& device, const void* address, size_t bytes);
  ~SubBuffer();
  SubBuffer(SubBuffer&& other) noexcept : mem_(other.release()), offset_(other.offset_) {}
  SubBuffer(const SubBuffer&) = delete;
  SubBuffer& operator=(const SubBuffer&) = delete;

  cl_mem mem() const { return mem_; }
  /// Where the address lies in it.
  size_t offset() const { return offset_; }
  cl_mem release() {
    cl_mem mem = mem_;
    mem_ = nullptr;
    return mem;
  }

 private:
  cl_mem mem_ = nullptr;
  size_t offset_ = 0;
};

}  // namespace ocl::python
