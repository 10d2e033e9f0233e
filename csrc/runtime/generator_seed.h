// Seeding of all devices at once, which must not initialise OpenCL.
#pragma once

#include <cstdint>

namespace ocl {

/// Seeds the default generator of every device, also of those that are not in use yet. Thread-safe.
void seed_all_generators(uint64_t seed);

}  // namespace ocl
