// Pinned host memory: pages the driver can copy from and to without staging, cached like device
// memory and protected by events while a copy is in flight.
#pragma once

#include <c10/core/Allocator.h>

#include "opencl/queue.h"

namespace ocl {

/// Allocates pinned memory on the current device's driver; the DataPtrs are CPU memory. Throws
/// std::runtime_error as device() does if there is no device.
c10::Allocator* pinned_allocator();

/// True for an address inside a live pinned allocation, or in memory that was registered. Never
/// initialises OpenCL.
bool is_pinned(const void* pointer) noexcept;

/// The work now on `queue` reads or writes the allocation that `pointer` lies in: its memory is not
/// handed out again before that work is done. Ignores memory that is not pinned.
void record_host_use(const void* pinned_pointer, Queue& queue);

/// Has memory that others allocated count as pinned, as cudaHostRegister does: copies may go on
/// after a call returns, and whoever registered it keeps it until they are done. False if a part of
/// it counts as pinned already.
bool register_host_memory(const void* pointer, size_t size);
/// False if nothing is registered at that address.
bool unregister_host_memory(const void* pointer);

/// Gives cached pinned memory back to the driver.
void release_pinned_cache();

}  // namespace ocl
