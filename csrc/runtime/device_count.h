// How many devices there are, without starting OpenCL in this process.
#pragma once

#include <string>
#include <vector>

namespace ocl {

/// Names the program that counts (csrc/device_count) and its arguments. Called by the Python
/// package.
void configure_device_count(std::vector<std::string> command);

/// device_count(), and before the first use the answer of that program: drivers start threads as
/// soon as they are asked for devices, and don't survive a fork. Programs ask long before they use
/// a device, if they do at all. Where the program can't be run OpenCL is started after all.
int count_devices() noexcept;

/// device_types(), and before the first use the answer of that program.
std::vector<std::string> types_of_devices();

/// Whether a graph of autograd's may have a node on a device.
bool autograd_knows() noexcept;
void tell_autograd() noexcept;

}  // namespace ocl
