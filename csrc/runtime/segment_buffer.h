// The buffer of a segment of device memory: in huge pages where the device is the host's CPU.
#pragma once

#include <cstddef>

#include "opencl/device.h"

namespace ocl {

/// A buffer of `bytes`, or null and the driver's error in `code`.
///
/// On a CPU the memory is this process's own, lent to the driver: aligned to huge pages, which the
/// system is asked for, where a driver's own allocation gets small ones. Large tensors are walked
/// once, so that nearly every small page costs a miss of the processor's address cache, and on a
/// virtual machine several. It goes back to the system when the driver is done with the buffer.
cl_mem create_segment_buffer(const Device& device, size_t bytes, cl_int& code);

}  // namespace ocl
