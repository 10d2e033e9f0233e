// The kernels of floor 1's tests, written to a folder of their own: TORCH_OCL_KERNEL_DIR names it.
#pragma once

#include "opencl/kernel.h"
#include "opencl/kernel_family.h"

namespace floor1 {

using ocl::KernelFamily;

/// Writes them below work_folder.
void write_kernels();

extern const KernelFamily fill_kernel;
extern const KernelFamily empty_kernel;
extern const KernelFamily null_kernel;
extern const KernelFamily other_kernel;
extern const KernelFamily slow_kernel;
extern const KernelFamily math_kernel;
extern const KernelFamily features_kernel;
extern const KernelFamily checked_kernel;
extern const KernelFamily broken_kernel;
extern const KernelFamily skipped_kernel;
extern const KernelFamily no_include_kernel;
extern const KernelFamily branches_kernel;
extern const KernelFamily absent_kernel;
extern const KernelFamily absent_name_kernel;

}  // namespace floor1
