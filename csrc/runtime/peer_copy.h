// Copies between two devices. OpenCL contexts share nothing, so the devices meet in pinned host
// memory.
#pragma once

#include <cstddef>

#include "opencl/queue.h"

namespace ocl {

/// Enqueues a copy that comes after the work on both queues so far; later work on either comes
/// after it. Nobody waits: a thread passes the pieces on, and both queues stand at a user event
/// until the copy is done. Where a device fails meanwhile, the next wait for either queue raises
/// it. Throws Error where the driver refuses, std::runtime_error while a graph is captured.
void peer_copy(Queue& to, void* destination, Queue& from, const void* source, size_t bytes);

}  // namespace ocl
