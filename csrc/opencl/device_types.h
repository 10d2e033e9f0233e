// The kinds of devices that this machine has.
#pragma once

#include <string>
#include <vector>

namespace ocl {

/// "gpu", "accelerator" or "cpu" of each device, in the order of their indices. Enumerates on the
/// first call. Empty in a forked child of an initialised process.
std::vector<std::string> device_types();

}  // namespace ocl
