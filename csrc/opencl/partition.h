// A device as several: TORCH_OCL_PARTITION. So programs for several devices run everywhere.
#pragma once

#include <vector>

#include "opencl/api.h"

namespace ocl {

/// The number in TORCH_OCL_PARTITION; 1 if it is unset, with a warning if it is no number above 0.
int wanted_parts();

/// Sub-devices with the same number of compute units (clCreateSubDevices, OpenCL 1.2, 4.3). Where
/// the device or its driver has none: the device itself, as often.
std::vector<cl_device_id> parts_of(cl_device_id id, int parts);

}  // namespace ocl
