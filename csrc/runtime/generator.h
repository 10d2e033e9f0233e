// The Philox generator of `ocl` devices; streams of numbers are those of at::Philox4_32.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace ocl {

/// Arguments of a random kernel: the Philox key and the first counter it may use.
struct PhiloxState {
  uint64_t seed;
  uint64_t offset;
};

/// Reserves `increment` Philox counters (rounded up to a multiple of 4) per work-item of
/// `generator`, or of the default generator of `device`. Thread-safe.
PhiloxState reserve_philox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                           uint64_t increment);

/// The default generator of a device.
const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator make_generator(c10::DeviceIndex device);
/// Whether the calling thread is in a function of the generator that had a capture given up. Its
/// caller may hold the generator's mutex.
bool is_asked(const at::Generator& generator);

}  // namespace ocl
