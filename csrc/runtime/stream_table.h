// The runtime's own view of the streams, beyond the contract in stream.h: the bound on device
// indices and calls that wait or ask without raising device assertions.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace ocl {

/// Per-device tables of the runtime have this many entries.
inline constexpr c10::DeviceIndex kMaxDevices = 64;

/// Waits for every queue of the device that exists; does not raise device assertions.
void finish_device(c10::DeviceIndex index);
/// True if the stream has no unfinished work; does not wait.
bool stream_is_idle(c10::Stream stream);

}  // namespace ocl
