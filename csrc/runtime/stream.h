// Streams: c10::Stream ids of an `ocl` device and the in-order queue behind each; the current
// device and stream of the calling thread.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "opencl/queue.h"

namespace ocl {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

/// The calling thread's current device index (0 at first). Does not initialise OpenCL.
c10::DeviceIndex current_device() noexcept;
/// Makes `index` current. Throws as ocl::device() does if there is no such device.
void set_device(c10::DeviceIndex index);
/// Sets the device, and returns the one that was current.
c10::DeviceIndex exchange_device(c10::DeviceIndex index);
/// Sets the device without checking that it exists; out-of-range indices are ignored.
void set_device_unchecked(c10::DeviceIndex index) noexcept;

/// The default stream (id 0), or one of the device's pool; pools are created on first use and
/// handed out round robin. priority < 0: high.
c10::Stream default_stream(c10::DeviceIndex device);
c10::Stream stream_from_pool(c10::DeviceIndex device, int priority = 0);
/// The stream of a queue that others made, the same at every call. Throws c10::ValueError if it is
/// out of order or belongs to another context or device, c10::Error for more than 191 of them.
c10::Stream stream_from_external(c10::DeviceIndex device, cl_command_queue queue);
/// -1 for a stream of high priority, 0 for others.
int priority_of(c10::Stream stream);
c10::Stream current_stream(c10::DeviceIndex device);
/// Returns the stream that was current for that device.
c10::Stream exchange_stream(c10::Stream stream);

/// The queue behind a stream.
Queue& queue_of(c10::Stream stream);
/// The queue of the calling thread's current stream on `device`: what every op launches on. Warm: a
/// thread-local load, no lock.
Queue& current_queue(c10::DeviceIndex device);
/// Has a copy from the host wait with the queue's launches, if these wait for programs; false
/// otherwise. Other streams may read what was copied from the host without an event, so that this
/// is for a device's only queue.
bool defer_host_copy(Queue& queue, void* address, const void* source, size_t bytes);

/// Waits, then raises what kernels reported (an index out of range: c10::IndexError, or c10::Error
/// where CPU torch raises that).
void synchronize(c10::Stream stream);
void synchronize_device(c10::DeviceIndex device);
/// Raises what kernels reported before the last wait on `queue`.
void raise_device_assertions(Queue& queue);
/// Every blocking read calls it: it does the same, and what the sync debug mode says.
void raise_after_read(Queue& queue);

/// An op that waits for the device does this: 0 nothing, 1 a warning, 2 an error.
void set_sync_debug_mode(int mode);
int sync_debug_mode();
/// How often the calling thread has waited for a device, or read from it.
uint64_t waits_of_thread() noexcept;

}  // namespace ocl
