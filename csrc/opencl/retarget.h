// Instructions that NVIDIA's driver assembles but does not compile OpenCL C for.
//
// The driver compiles for the plain target of a device (sm_90), while some instructions exist for
// its architecture-specific target alone (sm_90a: wgmma). A kernel file has them in asm statements
// as comments, and ProgramCache assembles the driver's own PTX again with the comments made
// instructions.
//
// Offers: ptx_target_of(), retarget_ptx().
#pragma once

#include <string>
#include <string_view>

namespace ocl {

/// The value of -DOCL_PTX_TARGET in build options; empty without one.
std::string ptx_target_of(std::string_view options);

/// `ptx` for `target`, with each "//@target " removed, so that what follows in the line counts.
/// Throws std::runtime_error if it is not PTX.
std::string retarget_ptx(std::string ptx, std::string_view target);

}  // namespace ocl
