// Instructions that NVIDIA's driver assembles but does not compile OpenCL C for.
//
// The driver compiles for the plain target of a device (sm_90), while some instructions exist for
// its architecture-specific target alone (sm_90a: wgmma). A kernel file has them in asm statements
// as comments, and ProgramCache assembles the driver's own PTX again with the comments made
// instructions.
//
// Nor does it compile a kernel with more local memory than every device of NVIDIA's gives a
// work-group (48 KiB), though what it assembles may have as much as the device has. Such a kernel
// declares one small array and uses it by its address alone; it grows in the PTX.
#pragma once

#include <string>
#include <string_view>

namespace ocl {

/// The value of -D`name`= in build options; empty without one.
std::string value_of_define(std::string_view options, std::string_view name);

/// `ptx` for `target`, with each "//@target " removed, so that what follows in the line counts.
/// Throws std::runtime_error if it is not PTX.
std::string retarget_ptx(std::string ptx, std::string_view target);

/// `ptx` with its array in local memory of that size. Throws std::runtime_error unless there is
/// exactly one.
std::string resize_local_array(std::string ptx, std::string_view bytes);

}  // namespace ocl
