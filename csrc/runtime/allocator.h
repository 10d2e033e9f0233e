// The caching allocator of `ocl` devices: large segments, 512-byte aligned blocks, pools per
// stream.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <optional>

namespace ocl {

/// The allocator registered for PrivateUse1. Allocates on the current device and stream.
c10::DeviceAllocator* allocator();

/// The index of the device whose memory `pointer` lies in; nullopt for any other address.
std::optional<c10::DeviceIndex> device_of_pointer(const void* pointer) noexcept;

/// Limits what this process may reserve on a device to `fraction` (in (0, 1]) of its memory.
/// Initially TORCH_OCL_MEMORY_FRACTION, or 1. Throws c10::ValueError for other fractions.
void set_memory_fraction(c10::DeviceIndex index, double fraction);
double memory_fraction(c10::DeviceIndex index);

/// Memory on a stream as an address alone, for release_memory().
void* allocate_memory(c10::DeviceIndex index, size_t size, c10::StreamId stream);
void release_memory(void* address);

}  // namespace ocl
