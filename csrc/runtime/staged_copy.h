// Large copies between pageable host memory and a device with memory of its own: in pieces through
// a ring of pinned buffers, so that the host's threads copy one piece while the device copies
// others.
#pragma once

#include <cstddef>

#include "opencl/queue.h"

namespace ocl {

/// Whether a blocking copy of that many bytes between the device and pageable memory is faster so
/// than by the driver alone: not where the device uses the host's memory, nor for a few pieces.
bool takes_staged_copy(const Device& device, size_t bytes);

/// Host -> device and device -> host, in the order of the queue's work; the data are there on
/// return. Throws Error.
void staged_write(Queue& queue, void* address, const void* source, size_t bytes);
void staged_read(Queue& queue, void* destination, const void* address, size_t bytes);

}  // namespace ocl
