// The constants of a device's row (device_table.h) that a tuning file has in the table's place.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "opencl/device.h"

namespace ocl::tuner {

/// All constants of the device's row by name, with the values in use.
std::vector<std::pair<std::string, double>> constants(const Device& device);

/// Stores a result "device,<name>,<value>", which counts while the tuner is enabled. Throws
/// c10::ValueError for an unknown name, and for a value that kernels can't be built for.
void set_constant(const Device& device, const std::string& name, double value);

}  // namespace ocl::tuner
