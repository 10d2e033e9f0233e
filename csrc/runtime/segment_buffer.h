// The buffer of a segment of device memory: in huge pages where the device is the host's CPU.
#pragma once

#include <cstddef>

#include "opencl/device.h"

namespace ocl {

struct SegmentBuffer {
  cl_mem mem;
  void* host;  // where its bytes lie in this process; null: nowhere
};

/// A buffer of `bytes`. Throws Error.
///
/// On a CPU the memory is this process's own, lent to the driver: aligned to huge pages, which the
/// system is asked for, where a driver's own allocation gets small ones. Large tensors are walked
/// once, so that nearly every small page costs a miss of the processor's address cache, and on a
/// virtual machine several. It goes back to the system when the driver is done with the buffer.
SegmentBuffer create_segment_buffer(const Device& device, size_t bytes);

}  // namespace ocl
