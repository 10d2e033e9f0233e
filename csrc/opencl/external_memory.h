// Memory of another API on the same device, as a buffer (cl_khr_external_memory_opaque_fd).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "opencl/device.h"
#include "opencl/queue.h"

namespace ocl {

/// Why the device can't import memory by a file descriptor; empty if it can.
std::string external_memory_refusal(const Device& device);

/// A buffer of the memory behind the descriptor, which this takes over, whatever happens. Commands
/// of any of the device's queues may use it after what `queue` has then. The caller owns the
/// handle. Throws Error if the driver refuses.
cl_mem import_external_memory(Queue& queue, int descriptor, size_t bytes);

using DeviceUuid = std::array<uint8_t, 16>;
/// The id by which other APIs know the device (cl_khr_device_uuid); nullopt where the driver lacks
/// that.
std::optional<DeviceUuid> device_uuid(const Device& device);

}  // namespace ocl
